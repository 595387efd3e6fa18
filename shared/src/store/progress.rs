//! What a turn brings before it ends, stored as it happens: a crash loses none of it.

use super::again::claimed_again;
use super::db::{Tx, values};
use super::drain::{Claimed, Consumed, Which, claim, pending_jobs};
use super::messages::{NewMessage, insert_message};
use super::step::{Noted, Stepped, ids_of, messages_again};
use super::tx::{Locked, SessionTx};
use super::{Store, StoreError, WrittenMessage};
use crate::domain::{JobId, Lease, Message, MessageId, Role, TurnId, Usage};

/// Jobs whose messages reach the model as one.
#[derive(Debug, Clone)]
pub struct Together {
    /// The jobs, in order; never empty.
    pub jobs: Vec<Claimed>,
    /// Their place in the order of consumption.
    pub consumed_seq: i64,
}

/// How a running turn takes what comes meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    /// It stands between two steps, and the model has it with the next one.
    Boundary,
    /// The engine takes it and decides itself when the model has it ([`Store::delivered`]).
    AnyTime {
        /// How many messages it has room for.
        room: usize,
    },
}

impl Meanwhile {
    /// How many messages at once.
    pub(super) fn most(self) -> i64 {
        match self {
            Self::Boundary => 200,
            Self::AnyTime { room } => i64::try_from(room).unwrap_or(i64::MAX),
        }
    }
}

/// Why a tool call has no result of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The turn was ended while it ran.
    Interrupted,
    /// The worker was lost while it ran.
    Unknown,
    /// The worker was stopped on purpose while it ran.
    Stopped,
}

impl CallEnd {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Interrupted => "(interrupted: the turn was ended before this had a result)",
            Self::Unknown => {
                "(outcome unknown: the worker was lost before this had a result; it may or may not have taken effect)"
            }
            Self::Stopped => {
                "(interrupted: the worker was stopped for maintenance before this had a result; it may or may not have \
                 taken effect)"
            }
        }
    }
}

impl Store {
    /// Stores messages of a running turn and counts what they used.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was stored. So too where the turn does not run any more.
    pub async fn append(
        &self,
        lease: &Lease,
        turn: TurnId,
        written: &[WrittenMessage],
    ) -> Result<Vec<Message>, StoreError> {
        let SessionTx { mut tx, mut row } = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(mut held, receipt) => {
                let ids: Vec<MessageId> = receipt.read()?;
                return messages_again(&mut held.tx, held.row.id, &ids).await;
            }
        };
        if row.active_turn != Some(turn) {
            return Err(StoreError::LeaseLost);
        }
        let stored = store_messages(&mut tx, &mut row, turn, written, false).await?;
        for message in &stored {
            if message.role == Role::Assistant {
                count_call(&mut tx, &row, turn, message.usage.unwrap_or_default()).await?;
            }
        }
        count_messages(&mut tx, &row, stored.len(), &self.noted(&ids_of(&stored))).await?;
        tx.commit().await?;
        Ok(stored)
    }

    /// Stores what an engine has recorded of the messages at a place in the order of consumption: it gets that back with them.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was stored. So too where the turn does not run any more.
    pub async fn record_opaque(
        &self,
        lease: &Lease,
        turn: TurnId,
        place: i64,
        opaque: &serde_json::Value,
    ) -> Result<(), StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        if row.active_turn != Some(turn) {
            return Err(StoreError::LeaseLost);
        }
        let sql = "UPDATE messages SET opaque = $3 WHERE session_id = $1 AND consumed_seq = $2 \
                   AND role IN ('user', 'tool')";
        tx.run(sql, values![row.id.0, place, opaque.to_string()]).await?;
        tx.commit().await
    }

    /// Counts what a running turn has used for nothing that is stored.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was counted. So too where the turn does not run any more.
    pub async fn spend(&self, lease: &Lease, turn: TurnId, usage: Usage) -> Result<(), StoreError> {
        let Stepped::New(SessionTx { mut tx, row }) = self.lock_step(lease).await? else { return Ok(()) };
        if row.active_turn != Some(turn) {
            return Err(StoreError::LeaseLost);
        }
        count_usage(&mut tx, &row, turn, usage, 0).await?;
        self.note(&mut tx, &row, &()).await?;
        tx.commit().await
    }

    /// Claims for a running turn what may reach the model before it ends: messages that were sent while it works, and, at a
    /// boundary, what its children have to say. Returned in the order in which they reach the model; those that belong
    /// together are one message.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was claimed.
    pub async fn drain_more(
        &self,
        lease: &Lease,
        turn: TurnId,
        to: Meanwhile,
    ) -> Result<Vec<Together>, StoreError> {
        let mut held = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(mut held, receipt) => return together_again(&mut held.tx, receipt.read()?).await,
        };
        if held.row.active_turn != Some(turn) {
            return Err(StoreError::LeaseLost);
        }
        // A cancel that was granted answers what came before it; the turn ends without taking more.
        if held.row.cancel_turn.is_some() {
            return Ok(Vec::new());
        }
        let pending = pending_jobs(&mut held.tx, lease.session, Which::Meanwhile(to)).await?;
        let mut groups: Vec<Together> = Vec::new();
        for job in pending.into_iter().map(|job| job.claimed) {
            match groups.last_mut() {
                Some(last) if last.jobs[0].kind == job.kind => last.jobs.push(job),
                _ => groups.push(Together { jobs: vec![job], consumed_seq: 0 }),
            }
        }
        for group in &mut groups {
            let consumed = match to {
                Meanwhile::Boundary => Consumed::Now,
                Meanwhile::AnyTime { .. } => Consumed::Later,
            };
            group.consumed_seq = claim(&mut held, lease, turn, &group.jobs, consumed).await?;
        }
        if !groups.is_empty() {
            let sql = "UPDATE sessions SET last_seq = $2, updated_ms = $3 WHERE id = $1";
            held.tx.run(sql, values![held.row.id.0, held.row.last_seq, held.row.now_ms]).await?;
            let receipt: Vec<TogetherReceipt> = groups
                .iter()
                .map(|group| (group.jobs.iter().map(|job| job.job).collect(), group.consumed_seq))
                .collect();
            self.note(&mut held.tx, &held.row, &receipt).await?;
            held.tx.commit().await?;
        }
        Ok(groups)
    }

    /// Stores the summary that stands for the context up to and with `up_to` (a place in the order of consumption).
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was stored.
    pub async fn compact(
        &self,
        lease: &Lease,
        turn: TurnId,
        summary: &str,
        up_to: i64,
        usage: Usage,
    ) -> Result<Message, StoreError> {
        let SessionTx { mut tx, mut row } = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(mut held, receipt) => {
                let id: MessageId = receipt.read()?;
                let found = messages_again(&mut held.tx, held.row.id, &[id]).await?;
                return found.into_iter().next().ok_or(StoreError::LeaseLost);
            }
        };
        if row.active_turn != Some(turn) {
            return Err(StoreError::LeaseLost);
        }
        let message = NewMessage {
            turn: Some(turn),
            content: summary.to_owned(),
            usage: Some(usage),
            origin: COMPACTION.to_owned(),
            consumed_seq: Some(up_to),
            ..NewMessage::of(Role::System)
        };
        let message = insert_message(&mut tx, &mut row, message).await?;
        count_usage(&mut tx, &row, turn, usage, 0).await?;
        count_messages(&mut tx, &row, 1, &self.noted(&message.id)).await?;
        let sql = "UPDATE sessions SET compact_size = (SELECT count(*) FROM messages WHERE session_id = $1 \
                   AND consumed_seq <= $2 AND origin <> $3) WHERE id = $1";
        tx.run(sql, values![row.id.0, up_to, COMPACTION]).await?;
        tx.commit().await?;
        Ok(message)
    }
}

/// Jobs that reached the model together, and their place, as a receipt has them.
type TogetherReceipt = (Vec<JobId>, i64);

async fn together_again(tx: &mut Tx, receipt: Vec<TogetherReceipt>) -> Result<Vec<Together>, StoreError> {
    let mut groups = Vec::with_capacity(receipt.len());
    for (ids, consumed_seq) in receipt {
        let jobs = claimed_again(tx, &ids).await?;
        groups.push(Together { jobs, consumed_seq });
    }
    Ok(groups)
}

/// The origin of summaries.
pub(super) const COMPACTION: &str = "compaction";

pub(super) async fn store_messages(
    tx: &mut Tx,
    row: &mut Locked,
    turn: TurnId,
    written: &[WrittenMessage],
    cancelled: bool,
) -> Result<Vec<Message>, StoreError> {
    let mut stored = Vec::with_capacity(written.len());
    for written in written {
        let by_model = written.role == Role::Assistant;
        let message = NewMessage {
            turn: Some(turn),
            content: written.content.clone(),
            tool_calls: written.tool_calls.clone(),
            tool_call_id: written.tool_call_id.clone(),
            thinking: written.thinking.clone(),
            model: written.model.clone(),
            // What was not reported is unknown, not 0.
            usage: (by_model && written.usage.is_known()).then_some(written.usage),
            thinking_tokens: (by_model && written.usage.is_known()).then_some(written.thinking_tokens),
            origin: "engine".to_owned(),
            anchor: written.anchor.clone(),
            cancelled,
            failed: written.failed,
            truncated: written.truncated,
            opaque: written.opaque.clone(),
            consumed_seq: Some(row.last_seq + 1),
            ..NewMessage::of(written.role)
        };
        stored.push(insert_message(tx, row, message).await?);
    }
    Ok(stored)
}

/// A call that has no result.
pub(super) struct OpenCall {
    /// The message in which it is.
    pub(super) message: MessageId,
    pub(super) id: String,
}

/// Gives every call of a turn that has no result one that says so: a model is never shown a call without a result.
pub(super) async fn close_open_calls(
    tx: &mut Tx,
    row: &mut Locked,
    turn: TurnId,
    end: CallEnd,
) -> Result<Vec<Message>, StoreError> {
    let open = open_calls(tx, row, turn).await?;
    close_calls(tx, row, turn, open, end).await
}

/// The calls of a turn that have no result, in order.
pub(super) async fn open_calls(tx: &mut Tx, row: &Locked, turn: TurnId) -> Result<Vec<OpenCall>, StoreError> {
    let sql = "SELECT id, tool_calls, tool_call_id FROM messages WHERE session_id = $1 AND turn_id = $2 \
               AND (tool_calls IS NOT NULL OR tool_call_id IS NOT NULL) ORDER BY id";
    let mut open: Vec<OpenCall> = Vec::new();
    for found in tx.all(sql, values![row.id.0, turn.0]).await? {
        if let Some(answered) = found.get::<Option<String>>("tool_call_id")? {
            open.retain(|call| call.id != answered);
        }
        if let Some(calls) = found.get::<Option<String>>("tool_calls")? {
            let message = MessageId(found.get("id")?);
            let calls: Vec<serde_json::Value> = serde_json::from_str(&calls)
                .map_err(|_| StoreError::inconsistent("messages", "tool_calls", message))?;
            let call = |call: &serde_json::Value| Some(call.get("id")?.as_str()?.to_owned());
            open.extend(calls.iter().filter_map(call).map(|id| OpenCall { message, id }));
        }
    }
    Ok(open)
}

/// Gives these calls results that say why they have no other.
pub(super) async fn close_calls(
    tx: &mut Tx,
    row: &mut Locked,
    turn: TurnId,
    open: Vec<OpenCall>,
    end: CallEnd,
) -> Result<Vec<Message>, StoreError> {
    let result = |call: OpenCall| WrittenMessage {
        role: Role::Tool,
        content: end.text().to_owned(),
        tool_call_id: Some(call.id),
        ..WrittenMessage::default()
    };
    let written: Vec<_> = open.into_iter().map(result).collect();
    store_messages(tx, row, turn, &written, false).await
}

/// Counts a model call in the ledger and in the session's totals.
pub(super) async fn count_call(
    tx: &mut Tx,
    row: &Locked,
    turn: TurnId,
    usage: Usage,
) -> Result<(), StoreError> {
    count_usage(tx, row, turn, usage, 1).await
}

/// The same for so many iterations: a call that summarises is none.
async fn count_usage(
    tx: &mut Tx,
    row: &Locked,
    turn: TurnId,
    usage: Usage,
    iterations: i64,
) -> Result<(), StoreError> {
    let Usage { input_tokens, output_tokens, cache_tokens, cost_nanos } = usage;
    let sql = "UPDATE turns SET iterations = iterations + $6, input_tokens = input_tokens + $2, \
               output_tokens = output_tokens + $3, cache_tokens = cache_tokens + $4, \
               cost_nanos = coalesce(cost_nanos + $5, cost_nanos, $5) WHERE id = $1";
    tx.run(sql, values![turn.0, input_tokens, output_tokens, cache_tokens, cost_nanos, iterations]).await?;
    let sql = "UPDATE sessions SET input_tokens = input_tokens + $2, output_tokens = output_tokens + $3, \
               cache_tokens = cache_tokens + $4, cost_nanos = coalesce(cost_nanos + $5, cost_nanos, $5) WHERE id = $1";
    tx.run(sql, values![row.id.0, input_tokens, output_tokens, cache_tokens, cost_nanos]).await.map(drop)
}

/// Counts messages that were stored in a held session, and notes the step that stored them.
pub(super) async fn count_messages(
    tx: &mut Tx,
    row: &Locked,
    stored: usize,
    noted: &Noted,
) -> Result<(), StoreError> {
    let stored = i64::try_from(stored).unwrap_or(i64::MAX);
    let sql = "UPDATE sessions SET last_seq = $2, message_count = message_count + $3, last_message_id = $4, \
               updated_ms = $5, last_step = coalesce($6, last_step), step_receipt = coalesce($7, step_receipt) \
               WHERE id = $1";
    let last = row.last_message.map(|id| id.0);
    let (step, receipt) = noted.values();
    tx.run(sql, values![row.id.0, row.last_seq, stored, last, row.now_ms, step, receipt]).await.map(drop)
}
