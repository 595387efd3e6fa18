//! Children: a turn has another agent work in a session of its own, and is woken when that has an answer.

use super::admit::insert_session;
use super::db::{Tx, values};
use super::messages::{NewMessage, insert_message};
use super::progress::OpenCall;
use super::tx::{Locked, SessionTx, lock};
use super::{NewSession, Outcome, Store, StoreError};
use crate::domain::{JobId, JobKind, Lease, MessageId, Role, SessionId, SessionJob, TurnId};

/// A child that a running turn wants.
#[derive(Debug, Clone)]
pub struct Spawn {
    /// The turn.
    pub turn: TurnId,
    /// The message of the parent in which the child is asked for, and the call in it.
    pub message: MessageId,
    /// The id of that call: asked for twice, also by a later attempt of the turn, there is one child.
    pub call: String,
    /// The child's session.
    pub session: NewSession,
    /// What it is told.
    pub text: String,
    /// Whether its answer wakes the parent, instead of being waited for.
    pub wakes: bool,
    /// The permissions that bind the child beside its own, as [`Store::rules_above`] gives them back; `None`: none do.
    pub rules_above: Option<String>,
}

impl Store {
    /// Creates a child session with its first job.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was created.
    pub async fn spawn(&self, lease: &Lease, spawn: &Spawn) -> Result<SessionJob, StoreError> {
        self.transact(|| self.spawn_once(lease, spawn)).await
    }

    async fn spawn_once(&self, lease: &Lease, spawn: &Spawn) -> Result<SessionJob, StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        if row.active_turn != Some(spawn.turn) {
            return Err(StoreError::LeaseLost);
        }
        let key = key(spawn.message, &spawn.call);
        let sql = "SELECT id, session_id FROM jobs WHERE idempotency_key = $1";
        if let Some(found) = tx.first(sql, values![key.as_str()]).await? {
            let (job, session) = (JobId(found.get("id")?), SessionId(found.get("session_id")?));
            return Ok(SessionJob { job, session, kind: JobKind::Chat });
        }
        insert_session(&mut tx, &spawn.session, row.now_ms).await?;
        let mut child = Locked::fresh(&spawn.session, row.now_ms);
        let job = JobId::generate();
        let message = NewMessage {
            job: Some(job),
            content: spawn.text.clone(),
            origin: format!("agent:{}", row.agent),
            ..NewMessage::of(Role::User)
        };
        let message = insert_message(&mut tx, &mut child, message).await?;
        let sql = "INSERT INTO jobs (id, session_id, seq, kind, state, message_id, idempotency_key, created_ms, \
                   wakes_session_id, wakes_message_id, waited_by_turn_id) \
                   VALUES ($1, $2, $3, 'chat', 'pending', $4, $5, $6, $7, $8, $9)";
        let (wakes, by) = if spawn.wakes { (Some(row.id.0), Some(spawn.message.0)) } else { (None, None) };
        let waits = (!spawn.wakes).then_some(spawn.turn.0);
        let seq = child.next_seq();
        tx.run(sql, values![job.0, child.id.0, seq, message.id.0, key, row.now_ms, wakes, by, waits]).await?;
        let sql = "UPDATE sessions SET parent_session_id = $2, last_seq = $3, message_count = 1, last_message_id = $4, \
                   enqueued_ms = $5, rules_above = $6 WHERE id = $1";
        let rules = spawn.rules_above.as_deref();
        let values = values![child.id.0, row.id.0, child.last_seq, message.id.0, row.now_ms, rules];
        tx.run(sql, values).await?;
        tx.commit().await?;
        Ok(SessionJob { job, session: child.id, kind: JobKind::Chat })
    }

    /// Whether a call has a child already, from an attempt of its turn that was cut off.
    pub async fn has_child(&self, message: MessageId, call: &str) -> Result<bool, StoreError> {
        let sql = "SELECT id FROM jobs WHERE idempotency_key = $1";
        Ok(self.db.first(sql, values![key(message, call)]).await?.is_some())
    }

    /// The jobs of children that a turn has waited for which has ended since, however it did: nobody waits for them. In the
    /// order of their ids, those after `after` only.
    pub async fn orphans(&self, after: Option<JobId>, limit: i64) -> Result<Vec<JobId>, StoreError> {
        let sql = "SELECT j.id FROM jobs j LEFT JOIN turns t ON t.id = j.waited_by_turn_id \
                   WHERE j.waited_by_turn_id IS NOT NULL AND j.state IN ('pending', 'claimed') \
                   AND coalesce(t.state, '') <> 'running' AND j.id > $1 ORDER BY j.id LIMIT $2";
        let after = after.map_or(uuid::Uuid::nil(), |job| job.0);
        let orphans = self.db.all(sql, values![after, limit]).await?;
        orphans.iter().map(|row| Ok(JobId(row.get("id")?))).collect()
    }

    /// The message in which a turn has called tools last.
    pub async fn calling(&self, turn: TurnId) -> Result<Option<MessageId>, StoreError> {
        let sql = "SELECT id FROM messages WHERE session_id = (SELECT session_id FROM turns WHERE id = $1) \
                   AND turn_id = $1 AND tool_calls IS NOT NULL ORDER BY id DESC LIMIT 1";
        self.db.first(sql, values![turn.0]).await?.map(|row| Ok(MessageId(row.get("id")?))).transpose()
    }

    /// The permissions that bind a session beside its agent's own: those of the agents that have started it, however far up.
    pub async fn rules_above(&self, session: SessionId) -> Result<Option<String>, StoreError> {
        let sql = "SELECT rules_above FROM sessions WHERE id = $1";
        self.db.first(sql, values![session.0]).await?.map_or(Ok(None), |row| row.get("rules_above"))
    }

    /// How many ancestors a session has, counted up to `most`.
    pub async fn depth(&self, session: SessionId, most: u32) -> Result<u32, StoreError> {
        let (mut depth, mut at) = (0, session);
        while depth < most {
            // A fork was made by a person, whatever its source is a child of.
            let sql =
                "SELECT parent_session_id FROM sessions WHERE id = $1 AND forked_from_message_id IS NULL";
            let Some(row) = self.db.first(sql, values![at.0]).await? else { break };
            let Some(parent) = row.get::<Option<uuid::Uuid>>("parent_session_id")? else { break };
            (depth, at) = (depth + 1, SessionId(parent));
        }
        Ok(depth)
    }
}

/// The idempotency key of a child's first job. With the message, since a model may use a call's id again in a long turn;
/// with a space, which no key of a client has.
fn key(message: MessageId, call: &str) -> String {
    format!("spawn {} {call}", message.0)
}

/// Which of these calls is the first that has a child.
pub(super) async fn first_with_child(tx: &mut Tx, calls: &[OpenCall]) -> Result<Option<usize>, StoreError> {
    for (index, OpenCall { message, id }) in calls.iter().enumerate() {
        let sql = "SELECT id FROM jobs WHERE idempotency_key = $1";
        if tx.first(sql, values![key(*message, id)]).await?.is_some() {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Tells the parent that waits for it of a job's end, in the transaction that ends it: once, and only where the message
/// that asked for the child is still part of the conversation. Returns the job to ring for.
///
/// Locks the parent while the child is held; nothing locks the two the other way round.
pub(super) async fn wake_parent(
    tx: &mut Tx,
    job: JobId,
    outcome: &Outcome,
) -> Result<Option<SessionJob>, StoreError> {
    let sql = "SELECT j.wakes_session_id, j.wakes_message_id, s.id, s.agent FROM jobs j \
               JOIN sessions s ON s.id = j.session_id WHERE j.id = $1";
    let found = tx.one(sql, values![job.0]).await?;
    let (Some(parent), Some(message)) =
        (found.get::<Option<uuid::Uuid>>("wakes_session_id")?, found.get::<Option<i64>>("wakes_message_id")?)
    else {
        return Ok(None);
    };
    let mut row = match lock(tx, SessionId(parent)).await {
        Err(StoreError::SessionNotFound) => return Ok(None),
        other => other?,
    };
    let sql = "SELECT id FROM messages WHERE id = $1 AND session_id = $2";
    if tx.first(sql, values![message, parent]).await?.is_none() {
        return Ok(None);
    }
    let (agent, child): (String, uuid::Uuid) = (found.get("agent")?, found.get("id")?);
    let said = match outcome {
        Outcome::Answered(result) => result.content.clone(),
        // Nobody waits for a cut of a child.
        Outcome::Cut(_) | Outcome::Cancelled => return Ok(None),
        Outcome::Failed(problem) => {
            format!("(failed: {})", problem.detail.as_deref().unwrap_or(problem.code.title()))
        }
    };
    let wake = JobId::generate();
    let text = NewMessage {
        job: Some(wake),
        content: format!("[The agent {agent:?} that you started, session {child}, has finished:]\n{said}"),
        origin: format!("agent:{agent}"),
        ..NewMessage::of(Role::User)
    };
    let text = insert_message(tx, &mut row, text).await?;
    let sql = "INSERT INTO jobs (id, session_id, seq, kind, state, message_id, created_ms, woken_by) \
               VALUES ($1, $2, $3, 'wake', 'pending', $4, $5, $6)";
    let seq = row.next_seq();
    tx.run(sql, values![wake.0, parent, seq, text.id.0, row.now_ms, job.0]).await?;
    let sql = "UPDATE sessions SET last_seq = $2, message_count = message_count + 1, last_message_id = $3, \
               updated_ms = $4, enqueued_ms = $4 WHERE id = $1";
    tx.run(sql, values![parent, row.last_seq, text.id.0, row.now_ms]).await?;
    Ok(Some(SessionJob { job: wake, session: SessionId(parent), kind: JobKind::Wake }))
}
