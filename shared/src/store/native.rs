//! Engines' own conversations: which one a session has, and what a turn has come to that an engine goes on with.

use super::db::values;
use super::doomed::doom_own;
use super::messages::{NewMessage, insert_message};
use super::outbox::{self, Closing};
use super::progress::{count_call, count_messages};
use super::rows::json;
use super::step::{Receipt, Stepped, messages_again};
use super::tx::SessionTx;
use super::{Store, StoreError, WrittenMessage};
use crate::domain::{
    EngineKind, EventKind, Lease, Message, MessageId, Role, Scope, SessionId, Stored, TurnId, Usage,
};

/// What a turn has come to so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoFar {
    /// Model calls that were counted.
    pub iterations: i64,
    /// What they used.
    pub usage: Usage,
    /// The anchors of its messages.
    pub anchors: Vec<String>,
    /// The calls that have a result.
    pub results: Vec<String>,
}

impl Store {
    /// Gives a session the native session that its engine has opened on `host`, before anything is said in it: whoever
    /// takes over finds it. The one that it had is deleted where its files are: nothing refers to it any more.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was written.
    pub async fn adopt_native(&self, lease: &Lease, native: &str, host: &str) -> Result<(), StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        if row.native_session.as_deref() != Some(native) {
            doom_own(&mut tx, &row).await?;
        }
        let sql = "UPDATE sessions SET native_session_id = $2, native_host = $3 WHERE id = $1";
        tx.run(sql, values![row.id.0, native, host]).await?;
        tx.commit().await
    }

    /// The newest anchor of a session's messages in that native session; those of the turn that is to run do not count: what
    /// of it is there, its engine finds out by the messages' ids.
    pub async fn newest_anchor(
        &self,
        engine: EngineKind,
        session: SessionId,
        native: &str,
        turn: TurnId,
    ) -> Result<Option<String>, StoreError> {
        let Some(key) = engine.anchor_key() else { return Ok(None) };
        let sql = "SELECT engine_metadata FROM messages WHERE session_id = $1 AND native_session_id = $2 \
                   AND engine_metadata IS NOT NULL AND (turn_id IS NULL OR turn_id <> $3) ORDER BY id DESC LIMIT 1";
        let Some(row) = self.db.first(sql, values![session.0, native, turn.0]).await? else {
            return Ok(None);
        };
        let metadata: Option<serde_json::Value> = json(&row, "messages", "engine_metadata")?;
        Ok(metadata.and_then(|metadata| metadata.get(key)?.as_str().map(str::to_owned)))
    }

    /// Stores a message that the engine's conversation got without any message of ours asking for it. It answers nothing,
    /// and stands in the ledger as a turn of its own. The model had it before the messages of the turn that runs, where
    /// those are still `ahead`.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was stored.
    pub async fn autonomous(
        &self,
        lease: &Lease,
        written: &WrittenMessage,
        ahead: bool,
    ) -> Result<Message, StoreError> {
        match self.lock_step(lease).await? {
            Stepped::New(held) => {
                self.store_autonomous(held, lease, written, Autonomous::During { ahead }).await
            }
            Stepped::Done(held, receipt) => autonomous_again(held, &receipt).await,
        }
        .map(|(message, _)| message)
    }

    /// The same between turns: after a run under this lease has ended, and while nobody has run the session since. Returns
    /// what is to be published of it as well.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`], also where the session has work that waits: nothing was stored. It is for that run to
    /// store.
    pub async fn autonomous_between(
        &self,
        lease: &Lease,
        written: &WrittenMessage,
    ) -> Result<(Message, Option<Stored>), StoreError> {
        let held = match self.lock(lease.session).await {
            Err(StoreError::SessionNotFound) => return Err(StoreError::LeaseLost),
            other => other?,
        };
        let mut held = match self.done(held).await? {
            Stepped::New(held) => held,
            Stepped::Done(held, receipt) => return autonomous_again(held, &receipt).await,
        };
        let is_free = held.row.lease_worker.is_none() && held.row.lease_token == lease.token;
        if !is_free || held.has_open_jobs().await? {
            return Err(StoreError::LeaseLost);
        }
        self.store_autonomous(held, lease, written, Autonomous::Between).await
    }

    /// What a turn has come to so far, over all its attempts.
    pub async fn so_far(&self, engine: EngineKind, turn: TurnId) -> Result<SoFar, StoreError> {
        let sql = "SELECT iterations, input_tokens, output_tokens, cache_tokens, cost_nanos FROM turns WHERE id = $1";
        let Some(row) = self.db.first(sql, values![turn.0]).await? else { return Ok(SoFar::default()) };
        let mut found = SoFar {
            iterations: row.get("iterations")?,
            usage: Usage {
                input_tokens: row.get("input_tokens")?,
                output_tokens: row.get("output_tokens")?,
                cache_tokens: row.get("cache_tokens")?,
                cost_nanos: row.get("cost_nanos")?,
            },
            ..SoFar::default()
        };
        let sql = "SELECT id, engine_metadata, tool_call_id FROM messages \
                   WHERE session_id = (SELECT session_id FROM turns WHERE id = $1) AND turn_id = $1 ORDER BY id";
        for row in self.db.all(sql, values![turn.0]).await? {
            let metadata: Option<serde_json::Value> = json(&row, "messages", "engine_metadata")?;
            let anchor = engine
                .anchor_key()
                .zip(metadata)
                .and_then(|(key, metadata)| metadata.get(key).and_then(|at| at.as_str()).map(str::to_owned));
            match row.get::<Option<String>>("tool_call_id")? {
                Some(call) => found.results.push(call),
                None => found.anchors.extend(anchor),
            }
        }
        Ok(found)
    }
}

/// When the model said something that nobody asked for.
#[derive(Clone, Copy)]
enum Autonomous {
    /// While a turn ran, whose messages it had not seen where they are still `ahead`.
    During { ahead: bool },
    /// Between turns.
    Between,
}

async fn autonomous_again(
    mut held: SessionTx,
    receipt: &Receipt,
) -> Result<(Message, Option<Stored>), StoreError> {
    let (id, stored): (MessageId, Option<i64>) = receipt.read()?;
    let found = messages_again(&mut held.tx, held.row.id, &[id]).await?;
    let message = found.into_iter().next().ok_or(StoreError::LeaseLost)?;
    Ok((message, outbox::find(&mut held.tx, stored).await?))
}

impl Store {
    async fn store_autonomous(
        &self,
        SessionTx { mut tx, mut row }: SessionTx,
        lease: &Lease,
        written: &WrittenMessage,
        when: Autonomous,
    ) -> Result<(Message, Option<Stored>), StoreError> {
        let turn = TurnId::generate();
        let message = NewMessage {
            turn: Some(turn),
            content: written.content.clone(),
            tool_calls: written.tool_calls.clone(),
            thinking: written.thinking.clone(),
            model: written.model.clone(),
            usage: Some(written.usage),
            thinking_tokens: Some(written.thinking_tokens),
            origin: "autonomous".to_owned(),
            anchor: written.anchor.clone(),
            consumed_seq: Some(row.last_seq + 1),
            ..NewMessage::of(Role::Assistant)
        };
        let message = insert_message(&mut tx, &mut row, message).await?;
        let sql = "INSERT INTO turns (id, session_id, state, attempt, worker_id, token, model, message_id, started_ms, \
               ended_ms) VALUES ($1, $2, 'completed', 1, $3, $4, $5, $6, $7, $7)";
        let model = written.model.as_deref();
        let (worker, token) = (lease.worker.0, lease.token.0);
        tx.run(sql, values![turn.0, row.id.0, worker, token, model, message.id.0, row.now_ms]).await?;
        if let Some(running) = row.active_turn.filter(|_| matches!(when, Autonomous::During { ahead: true }))
        {
            let sql = "UPDATE messages SET consumed_seq = $3 WHERE session_id = $1 AND turn_id = $2 AND role = 'user' \
                   AND consumed_seq IS NOT NULL";
            tx.run(sql, values![row.id.0, running.0, row.next_seq()]).await?;
        }
        count_call(&mut tx, &row, turn, written.usage).await?;
        let mut closing = Closing::of(&row);
        // A run tells of it itself.
        if let Autonomous::Between = when {
            let scope = Scope { turn: message.turn, message: Some(message.id), ..Scope::default() };
            closing.tell(scope, &EventKind::MessageCompleted { message: Box::new(message.clone().into()) });
        }
        let stored = closing.leave(&mut tx, None).await?;
        let receipt = (message.id, stored.as_ref().map(|stored| stored.id));
        count_messages(&mut tx, &row, 1, &self.noted(&receipt)).await?;
        tx.commit().await?;
        Ok((message, stored))
    }
}
