//! Messages: stored once, displayed in the order of arrival, replayed in the order of consumption.

use super::db::{Tx, values};
use super::rows::{MESSAGE_COLUMNS, message};
use super::tx::Locked;
use super::{Store, StoreError};
use crate::domain::{JobId, Message, MessageId, Role, SessionId, TurnId, Usage};

/// A message that has no id yet.
pub(super) struct NewMessage {
    pub(super) turn: Option<TurnId>,
    pub(super) job: Option<JobId>,
    pub(super) role: Role,
    pub(super) content: String,
    pub(super) thinking: Option<String>,
    pub(super) model: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) thinking_tokens: Option<i64>,
    pub(super) origin: String,
    pub(super) cancelled: bool,
    /// Whether the model has it already: what the model writes is consumed as it arrives.
    pub(super) consumed: bool,
}

impl NewMessage {
    pub(super) const fn of(role: Role) -> Self {
        Self {
            turn: None,
            job: None,
            role,
            content: String::new(),
            thinking: None,
            model: None,
            usage: None,
            thinking_tokens: None,
            origin: String::new(),
            cancelled: false,
            consumed: false,
        }
    }
}

/// One entry of what a model is shown: messages that were consumed together are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextEntry {
    /// Who wrote it.
    pub role: Role,
    /// The text.
    pub content: String,
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
    let sql = "INSERT INTO messages (session_id, turn_id, job_id, seq, consumed_seq, role, content, thinking, model, \
               input_tokens, output_tokens, cache_tokens, thinking_tokens, cost_nanos, origin, cancelled, created_ms) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) RETURNING id";
    let values = values![
        row.id.0,
        new.turn.map(|turn| turn.0),
        new.job.map(|job| job.0),
        seq,
        new.consumed.then_some(seq),
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
    ];
    let id = MessageId(tx.one(sql, values).await?.get("id")?);
    row.last_message = Some(id);
    Ok(Message {
        id,
        session: row.id,
        turn: new.turn,
        job: new.job,
        role: new.role,
        content: new.content,
        thinking: new.thinking,
        tool_calls: None,
        tool_call_id: None,
        model: new.model,
        usage,
        thinking_tokens: new.thinking_tokens,
        attachments: None,
        engine_metadata: None,
        external_id: None,
        origin: new.origin,
        cancelled: new.cancelled,
        created_ms: row.now_ms,
    })
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

    /// What the model saw before the given turn, in the order of consumption.
    pub async fn context_before(
        &self,
        session: SessionId,
        turn: TurnId,
    ) -> Result<Vec<ContextEntry>, StoreError> {
        let sql = "SELECT id, role, content, consumed_seq FROM messages \
                   WHERE session_id = $1 AND consumed_seq IS NOT NULL AND (turn_id IS NULL OR turn_id <> $2) \
                   ORDER BY consumed_seq, seq";
        let mut entries: Vec<ContextEntry> = Vec::new();
        let mut last_consumed = None;
        for row in self.db.all(sql, values![session.0, turn.0]).await? {
            let role = Role::from_name(&row.get::<String>("role")?).ok_or_else(|| {
                let id = row.get::<i64>("id").unwrap_or_default();
                StoreError::inconsistent("messages", "role", id)
            })?;
            let content: String = row.get("content")?;
            let consumed: i64 = row.get("consumed_seq")?;
            match entries.last_mut() {
                Some(entry) if last_consumed == Some(consumed) => {
                    entry.content.push_str("\n\n");
                    entry.content.push_str(&content);
                }
                _ => entries.push(ContextEntry { role, content }),
            }
            last_consumed = Some(consumed);
        }
        Ok(entries)
    }
}
