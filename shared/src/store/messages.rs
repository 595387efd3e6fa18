//! Messages: stored once, displayed in the order of arrival, replayed in the order of consumption.

use super::db::{Row, Tx, values};
use super::pairs::paired;
use super::progress::COMPACTION;
use super::rows::{MESSAGE_COLUMNS, json, message};
use super::tx::Locked;
use super::{Store, StoreError};
use crate::domain::{
    Anchor, EngineKind, JobId, Message, MessageId, Role, SessionId, Truncated, TurnId, Usage,
};

/// A message that has no id yet.
pub(super) struct NewMessage {
    pub(super) turn: Option<TurnId>,
    pub(super) job: Option<JobId>,
    pub(super) role: Role,
    pub(super) content: String,
    pub(super) tool_calls: Option<serde_json::Value>,
    pub(super) tool_call_id: Option<String>,
    pub(super) attachments: Option<serde_json::Value>,
    pub(super) thinking: Option<String>,
    pub(super) model: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) thinking_tokens: Option<i64>,
    pub(super) origin: String,
    pub(super) cancelled: bool,
    /// Its place in the order of consumption, where the model has it already.
    pub(super) consumed_seq: Option<i64>,
    pub(super) anchor: Option<Anchor>,
    pub(super) failed: bool,
    pub(super) truncated: Option<Truncated>,
    pub(super) opaque: Option<serde_json::Value>,
}

impl NewMessage {
    pub(super) const fn of(role: Role) -> Self {
        Self {
            turn: None,
            job: None,
            role,
            content: String::new(),
            tool_calls: None,
            tool_call_id: None,
            attachments: None,
            thinking: None,
            model: None,
            usage: None,
            thinking_tokens: None,
            origin: String::new(),
            cancelled: false,
            consumed_seq: None,
            anchor: None,
            failed: false,
            truncated: None,
            opaque: None,
        }
    }
}

/// One entry of what a model is shown: messages of people that were consumed together are one.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextEntry {
    /// Who wrote it.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The tools that the model called with it, as a JSON array.
    pub tool_calls: Option<serde_json::Value>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// Files that came with it, as a JSON array.
    pub attachments: Option<serde_json::Value>,
    /// Its place in the order of consumption.
    pub consumed_seq: i64,
    /// The turn that consumed or wrote it.
    pub turn: Option<TurnId>,
    /// What the engine has given with it, or recorded of it.
    pub opaque: Option<serde_json::Value>,
}

/// Which messages of a session to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct MessagePage {
    /// Only later ones than this.
    pub after: Option<MessageId>,
    /// Only earlier ones than this; without `after`, the newest of them.
    pub before: Option<MessageId>,
    /// At most so many.
    pub limit: i64,
}

/// Stores a message in a held session.
pub(super) async fn insert_message(
    tx: &mut Tx,
    row: &mut Locked,
    new: NewMessage,
) -> Result<Message, StoreError> {
    let seq = row.next_seq();
    let usage = new.usage;
    let anchor = new.anchor.and_then(|anchor| Some((metadata(row.engine, &anchor.at)?, anchor.native)));
    let (engine_metadata, native) = anchor.unzip();
    let sql = "INSERT INTO messages (session_id, turn_id, job_id, seq, consumed_seq, role, content, thinking, model, \
               input_tokens, output_tokens, cache_tokens, thinking_tokens, cost_nanos, origin, cancelled, created_ms, \
               tool_calls, tool_call_id, attachments, engine_metadata, native_session_id, failed, truncated, opaque) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, \
               $22, $23, $24, $25) \
               RETURNING id";
    let values = values![
        row.id.0,
        new.turn.map(|turn| turn.0),
        new.job.map(|job| job.0),
        seq,
        new.consumed_seq,
        new.role.as_str(),
        new.content.as_str(),
        new.thinking.as_deref(),
        new.model.as_deref(),
        usage.map(|usage| usage.input_tokens),
        usage.map(|usage| usage.output_tokens),
        usage.map(|usage| usage.cache_tokens),
        new.thinking_tokens,
        usage.and_then(|usage| usage.cost_nanos),
        new.origin.as_str(),
        new.cancelled,
        row.now_ms,
        new.tool_calls.as_ref().map(ToString::to_string),
        new.tool_call_id.as_deref(),
        new.attachments.as_ref().map(ToString::to_string),
        engine_metadata.as_ref().map(ToString::to_string),
        native,
        new.failed,
        new.truncated.map(Truncated::as_str),
        new.opaque.as_ref().map(ToString::to_string),
    ];
    let id = MessageId(tx.one(sql, values).await?.get("id")?);
    row.last_message = Some(id);
    Ok(Message {
        id,
        session: row.id,
        seq,
        turn: new.turn,
        job: new.job,
        role: new.role,
        content: new.content,
        thinking: new.thinking,
        tool_calls: new.tool_calls,
        tool_call_id: new.tool_call_id,
        model: new.model,
        usage,
        thinking_tokens: new.thinking_tokens,
        attachments: new.attachments,
        engine_metadata,
        external_id: None,
        origin: new.origin,
        cancelled: new.cancelled,
        failed: new.failed,
        truncated: new.truncated,
        created_ms: row.now_ms,
    })
}

/// An anchor as messages carry it.
pub(super) fn metadata(engine: EngineKind, at: &str) -> Option<serde_json::Value> {
    engine.anchor_key().map(|key| serde_json::json!({ key: at }))
}

impl Store {
    /// The messages of a session, ascending. Empty for a session that does not exist.
    pub async fn messages(&self, session: SessionId, page: MessagePage) -> Result<Vec<Message>, StoreError> {
        let ascending = concat!(
            "SELECT ",
            MESSAGE_COLUMNS!(),
            " FROM messages WHERE session_id = $1 AND id > $2 AND id < $3 ORDER BY id LIMIT $4"
        );
        let newest = concat!(
            "SELECT ",
            MESSAGE_COLUMNS!(),
            " FROM messages WHERE session_id = $1 AND id > $2 AND id < $3 ORDER BY id DESC LIMIT $4"
        );
        let from_the_end = page.after.is_none() && page.before.is_some();
        let after = page.after.map_or(0, |id| id.0);
        let before = page.before.map_or(i64::MAX, |id| id.0);
        let sql = if from_the_end { newest } else { ascending };
        let rows = self.db.all(sql, values![session.0, after, before, page.limit]).await?;
        let mut found = rows.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        if from_the_end {
            found.reverse();
        }
        Ok(found)
    }

    /// What the model is shown, in the order of consumption: the newest summary, and what came after what it stands for.
    pub async fn context(&self, session: SessionId) -> Result<Vec<ContextEntry>, StoreError> {
        let summary = "SELECT id, role, content, tool_calls, tool_call_id, attachments, opaque, failed, consumed_seq, turn_id, \
                       '' AS turn_state FROM messages WHERE session_id = $1 AND origin = $2 AND consumed_seq IS NOT NULL ORDER BY id DESC LIMIT 1";
        let rest = "SELECT m.id, role, content, tool_calls, tool_call_id, attachments, opaque, failed, consumed_seq, turn_id, \
                    coalesce(t.state, '') AS turn_state FROM messages m LEFT JOIN turns t ON t.id = m.turn_id \
                    WHERE m.session_id = $1 AND consumed_seq > $3 AND origin <> $2 AND NOT unsent \
                    ORDER BY consumed_seq, seq";
        let summary = self.db.first(summary, values![session.0, COMPACTION]).await?;
        let mut entries: Vec<ContextEntry> =
            summary.as_ref().map(context_entry).transpose()?.into_iter().collect();
        let from = entries.first().map_or(0, |summary| summary.consumed_seq);
        let mut ended = None;
        for row in self.db.all(rest, values![session.0, COMPACTION, from]).await? {
            let entry = context_entry(&row)?;
            if entries.last().is_some_and(|last| last.turn != entry.turn) {
                entries.extend(unanswered(entries.last(), ended));
            }
            ended = Unanswered::of(&row.get::<String>("turn_state")?);
            match entries.last_mut() {
                Some(last) if last.role == Role::User && last.consumed_seq == entry.consumed_seq => {
                    last.content.push_str("\n\n");
                    last.content.push_str(&entry.content);
                    last.attachments = joined(last.attachments.take(), entry.attachments);
                    last.opaque = last.opaque.take().or(entry.opaque);
                }
                _ => entries.push(entry),
            }
        }
        entries.extend(unanswered(entries.last(), ended));
        Ok(paired(entries))
    }
}

/// Why a turn may have ended before the model had answered.
#[derive(Debug, Clone, Copy)]
enum Unanswered {
    Cancelled,
    Failed,
}

impl Unanswered {
    fn of(turn_state: &str) -> Option<Self> {
        match turn_state {
            "cancelled" => Some(Self::Cancelled),
            "failed" => Some(Self::Failed),
            _ => None,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Cancelled => "(This was cancelled before I could answer.)",
            Self::Failed => "(I could not answer this: the turn failed.)",
        }
    }
}

/// What is shown behind a message that the model had not finished when its turn failed.
const BROKEN_OFF: &str = "\n\n(This message broke off here: the turn failed.)";

/// What ends a turn that was cancelled, or failed, before the model had answered: else it would do now what nobody wants
/// any more, or take what failed for a part of what it is asked next.
fn unanswered(last: Option<&ContextEntry>, ended: Option<Unanswered>) -> Option<ContextEntry> {
    let last = last.filter(|last| last.role != Role::Assistant || last.tool_calls.is_some())?;
    Some(ContextEntry {
        role: Role::Assistant,
        content: ended?.text().to_owned(),
        tool_calls: None,
        tool_call_id: None,
        attachments: None,
        consumed_seq: last.consumed_seq,
        turn: last.turn,
        opaque: None,
    })
}

fn context_entry(row: &Row) -> Result<ContextEntry, StoreError> {
    let id: i64 = row.get("id")?;
    let role = Role::from_name(&row.get::<String>("role")?);
    let mut content: String = row.get("content")?;
    if row.get("failed")? {
        content.push_str(BROKEN_OFF);
    }
    Ok(ContextEntry {
        role: role.ok_or_else(|| StoreError::inconsistent("messages", "role", id))?,
        content,
        tool_calls: json(row, "messages", "tool_calls")?,
        tool_call_id: row.get("tool_call_id")?,
        attachments: json(row, "messages", "attachments")?,
        consumed_seq: row.get("consumed_seq")?,
        turn: row.get::<Option<uuid::Uuid>>("turn_id")?.map(TurnId),
        opaque: json(row, "messages", "opaque")?,
    })
}

/// Two JSON arrays as one.
fn joined(first: Option<serde_json::Value>, second: Option<serde_json::Value>) -> Option<serde_json::Value> {
    match (first, second) {
        (Some(serde_json::Value::Array(mut all)), Some(serde_json::Value::Array(more))) => {
            all.extend(more);
            Some(serde_json::Value::Array(all))
        }
        (first, second) => first.or(second),
    }
}
