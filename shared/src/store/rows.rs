//! Rows into the domain. What no code of ours writes is named with its table, column and id.

use super::StoreError;
use super::db::{Column, Row};
use crate::domain::{
    EngineKind, Interaction, InteractionId, InteractionKind, InteractionState, Job, JobId, JobKind, JobState,
    Message, MessageId, Role, Session, SessionId, SessionStatus, Truncated, TurnId, Usage, WorkerId,
};

/// The columns that [`message`] reads.
macro_rules! message_columns {
    () => {
        "id, session_id, seq, turn_id, job_id, role, content, thinking, tool_calls, tool_call_id, model, input_tokens, \
         output_tokens, cache_tokens, thinking_tokens, cost_nanos, attachments, engine_metadata, external_id, origin, \
         cancelled, failed, truncated, created_ms"
    };
}
pub(super) use message_columns as MESSAGE_COLUMNS;

/// The columns that [`session`] reads, for a table named `s`.
macro_rules! session_columns {
    () => {
        "s.id, s.agent, s.engine, s.model, s.title, s.cwd, s.metadata, s.archived, s.native_session_id, \
         s.parent_session_id, s.forked_from_message_id, s.message_count, s.last_message_id, s.compact_size, \
         s.history_version, s.input_tokens, s.output_tokens, s.cache_tokens, s.cost_nanos, s.active_turn_id, \
         s.created_ms, s.updated_ms, s.connected_ms, \
         CASE WHEN s.active_turn_id IS NOT NULL THEN CASE WHEN EXISTS (SELECT 1 FROM interactions i \
                   WHERE i.session_id = s.id AND i.state = 'open') THEN 'waiting' ELSE 'running' END \
              WHEN EXISTS (SELECT 1 FROM jobs j WHERE j.session_id = s.id AND j.state IN ('pending', 'claimed')) \
              THEN 'queued' \
              WHEN s.last_turn_failed THEN 'error' ELSE 'idle' END AS status"
    };
}
pub(super) use session_columns as SESSION_COLUMNS;

/// The columns that [`job`] reads, for tables named `j` and `s`.
macro_rules! job_columns {
    () => {
        "j.id, j.session_id, s.agent, j.seq, j.kind, j.state, j.message_id, j.turn_id, j.worker_id, j.attempt, \
         j.result, j.problem, j.created_ms, j.started_ms, j.ended_ms"
    };
}
pub(super) use job_columns as JOB_COLUMNS;

/// The columns that [`interaction`] reads.
macro_rules! interaction_columns {
    () => {
        "id, session_id, turn_id, kind, state, payload, answer, created_ms, expires_ms, resolved_ms"
    };
}
pub(super) use interaction_columns as INTERACTION_COLUMNS;

pub(super) fn json<T: serde::de::DeserializeOwned>(
    row: &Row,
    table: &'static str,
    column: &'static str,
) -> Result<Option<T>, StoreError> {
    let Some(text) = row.get::<Option<String>>(column)? else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(StoreError::inconsistent(table, column, id_of(row))),
    }
}

fn id_of(row: &Row) -> String {
    row.get::<uuid::Uuid>("id")
        .map(|id| id.to_string())
        .or_else(|_| row.get::<i64>("id").map(|id| id.to_string()))
        .unwrap_or_default()
}

fn named<T>(
    row: &Row,
    table: &'static str,
    column: &'static str,
    parse: fn(&str) -> Option<T>,
) -> Result<T, StoreError> {
    parse(&row.get::<String>(column)?).ok_or_else(|| StoreError::inconsistent(table, column, id_of(row)))
}

/// An optional value in a type of its own.
fn opt<T: Column, U>(row: &Row, column: &str, wrap: fn(T) -> U) -> Result<Option<U>, StoreError>
where
    Option<T>: Column,
{
    Ok(row.get::<Option<T>>(column)?.map(wrap))
}

pub(super) fn message(row: &Row) -> Result<Message, StoreError> {
    const TABLE: &str = "messages";
    let usage = match row.get::<Option<i64>>("output_tokens")? {
        Some(output_tokens) => Some(Usage {
            input_tokens: row.get::<Option<i64>>("input_tokens")?.unwrap_or_default(),
            output_tokens,
            cache_tokens: row.get::<Option<i64>>("cache_tokens")?.unwrap_or_default(),
            cost_nanos: row.get("cost_nanos")?,
        }),
        None => None,
    };
    Ok(Message {
        id: MessageId(row.get("id")?),
        session: SessionId(row.get("session_id")?),
        seq: row.get("seq")?,
        turn: opt(row, "turn_id", TurnId)?,
        job: opt(row, "job_id", JobId)?,
        role: named(row, TABLE, "role", Role::from_name)?,
        content: row.get("content")?,
        thinking: row.get("thinking")?,
        tool_calls: json(row, TABLE, "tool_calls")?,
        tool_call_id: row.get("tool_call_id")?,
        model: row.get("model")?,
        usage,
        thinking_tokens: row.get("thinking_tokens")?,
        attachments: json(row, TABLE, "attachments")?,
        engine_metadata: json(row, TABLE, "engine_metadata")?,
        external_id: row.get("external_id")?,
        origin: row.get("origin")?,
        cancelled: row.get("cancelled")?,
        failed: row.get("failed")?,
        truncated: match row.get::<Option<String>>("truncated")? {
            Some(name) => Some(
                Truncated::from_name(&name)
                    .ok_or_else(|| StoreError::inconsistent(TABLE, "truncated", id_of(row)))?,
            ),
            None => None,
        },
        created_ms: row.get("created_ms")?,
    })
}

pub(super) fn session(row: &Row) -> Result<Session, StoreError> {
    const TABLE: &str = "sessions";
    Ok(Session {
        id: SessionId(row.get("id")?),
        agent: row.get("agent")?,
        engine: named(row, TABLE, "engine", EngineKind::from_name)?,
        model: row.get("model")?,
        title: row.get("title")?,
        cwd: row.get("cwd")?,
        metadata: json(row, TABLE, "metadata")?.unwrap_or_default(),
        archived: row.get("archived")?,
        native_session: row.get("native_session_id")?,
        parent: opt(row, "parent_session_id", SessionId)?,
        forked_from: opt(row, "forked_from_message_id", MessageId)?,
        message_count: row.get("message_count")?,
        compact_size: row.get("compact_size")?,
        history_version: row.get("history_version")?,
        usage: Usage {
            input_tokens: row.get("input_tokens")?,
            output_tokens: row.get("output_tokens")?,
            cache_tokens: row.get("cache_tokens")?,
            cost_nanos: row.get("cost_nanos")?,
        },
        active_turn: opt(row, "active_turn_id", TurnId)?,
        last_message: opt(row, "last_message_id", MessageId)?,
        status: named(row, TABLE, "status", SessionStatus::from_name)?,
        created_ms: row.get("created_ms")?,
        updated_ms: row.get("updated_ms")?,
        connected_ms: row.get("connected_ms")?,
    })
}

pub(super) fn job(row: &Row) -> Result<Job, StoreError> {
    const TABLE: &str = "jobs";
    Ok(Job {
        id: JobId(row.get("id")?),
        session: SessionId(row.get("session_id")?),
        agent: row.get("agent")?,
        seq: row.get("seq")?,
        kind: named(row, TABLE, "kind", JobKind::from_name)?,
        state: named(row, TABLE, "state", JobState::from_name)?,
        message: opt(row, "message_id", MessageId)?,
        turn: opt(row, "turn_id", TurnId)?,
        worker: opt(row, "worker_id", WorkerId)?,
        attempt: row.get("attempt")?,
        result: json(row, TABLE, "result")?,
        problem: json(row, TABLE, "problem")?,
        created_ms: row.get("created_ms")?,
        started_ms: row.get("started_ms")?,
        ended_ms: row.get("ended_ms")?,
    })
}

pub(super) fn interaction(row: &Row) -> Result<Interaction, StoreError> {
    const TABLE: &str = "interactions";
    Ok(Interaction {
        id: InteractionId(row.get("id")?),
        session: SessionId(row.get("session_id")?),
        turn: TurnId(row.get("turn_id")?),
        kind: named(row, TABLE, "kind", InteractionKind::from_name)?,
        state: named(row, TABLE, "state", InteractionState::from_name)?,
        payload: json(row, TABLE, "payload")?.unwrap_or_default(),
        answer: json(row, TABLE, "answer")?,
        created_ms: row.get("created_ms")?,
        expires_ms: row.get("expires_ms")?,
        resolved_ms: row.get("resolved_ms")?,
    })
}
