//! Engines' own conversations: which one a session has, and what a turn has come to that an engine goes on with.

use super::db::values;
use super::doomed::doom_own;
use super::messages::{NewMessage, insert_message};
use super::progress::{count_call, count_messages};
use super::rows::json;
use super::tx::SessionTx;
use super::{Store, StoreError, WrittenMessage};
use crate::domain::{EngineKind, Lease, Message, Role, SessionId, TurnId, Usage};

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
        store_autonomous(self.lock_leased(lease).await?, lease, written, ahead).await
    }

    /// The same between turns: after a run under this lease has ended, and while nobody has run the session since.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`], also where the session has work that waits: nothing was stored. It is for that run to
    /// store.
    pub async fn autonomous_between(
        &self,
        lease: &Lease,
        written: &WrittenMessage,
    ) -> Result<Message, StoreError> {
        let mut held = match self.lock(lease.session).await {
            Err(StoreError::SessionNotFound) => return Err(StoreError::LeaseLost),
            other => other?,
        };
        let is_free = held.row.lease_worker.is_none() && held.row.lease_token == lease.token;
        if !is_free || held.has_open_jobs().await? {
            return Err(StoreError::LeaseLost);
        }
        store_autonomous(held, lease, written, false).await
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

async fn store_autonomous(
    SessionTx { mut tx, mut row }: SessionTx,
    lease: &Lease,
    written: &WrittenMessage,
    ahead: bool,
) -> Result<Message, StoreError> {
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
    if let Some(running) = row.active_turn.filter(|_| ahead) {
        let sql = "UPDATE messages SET consumed_seq = $3 WHERE session_id = $1 AND turn_id = $2 AND role = 'user' \
                   AND consumed_seq IS NOT NULL";
        tx.run(sql, values![row.id.0, running.0, row.next_seq()]).await?;
    }
    count_call(&mut tx, &row, turn, written.usage).await?;
    count_messages(&mut tx, &row, 1).await?;
    tx.commit().await?;
    Ok(message)
}
