//! The rows of a cut: what goes, what stays, and what the model is shown of it afterwards.

use super::db::{Row, Tx, values};
use super::doomed::doom_own;
use super::finish::{Ended, end_job, unanswered};
use super::maintenance::{NativeFork, find};
use super::progress::{COMPACTION, CallEnd};
use super::rows::json;
use super::tx::{Locked, SessionTx};
use super::{Outcome, Store, StoreError};
use crate::domain::{Anchor, ContextSource, CutResult, EngineKind, JobId, JobKind, MessageId, SessionId};

/// The last message of the model up to a point.
struct Point {
    id: MessageId,
    /// Its anchor in the present native session.
    anchor: Option<String>,
    /// The ids of the tool calls in it.
    calls: Vec<String>,
}

/// What came of the deletion of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedMessage {
    /// Whether the engine still remembers it.
    pub context_drift: bool,
}

impl Store {
    /// Deletes one message. An engine that keeps conversations of its own goes on remembering it.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`]; [`StoreError::MessageNotFound`]; [`StoreError::SessionBusy`].
    pub async fn delete_message(
        &self,
        session: SessionId,
        message: MessageId,
    ) -> Result<DeletedMessage, StoreError> {
        self.transact(|| self.delete_message_once(session, message)).await
    }

    async fn delete_message_once(
        &self,
        session: SessionId,
        message: MessageId,
    ) -> Result<DeletedMessage, StoreError> {
        let mut held = self.lock(session).await?;
        find(&mut held.tx, session, message).await?;
        if held.is_busy().await? {
            return Err(StoreError::SessionBusy);
        }
        let SessionTx { mut tx, row } = held;
        delete(&mut tx, session, MessageId(message.0 - 1), message).await?;
        recount(&mut tx, &row, session).await?;
        tx.commit().await?;
        Ok(DeletedMessage { context_drift: row.engine.keeps_conversations() && row.native_session.is_some() })
    }
}

/// Deletes what comes after `at`, as far as it was there when the cut was admitted. `native` is the copy of the engine's
/// conversation that goes on from here.
pub(super) async fn trim(
    tx: &mut Tx,
    row: &Locked,
    at: MessageId,
    newest: MessageId,
    native: Option<&NativeFork>,
) -> Result<CutResult, StoreError> {
    let lost = lost_word(tx, row, at, newest).await?;
    let (mut deleted, mut from) = (0, at);
    for result in lost_results(tx, row, at, newest).await? {
        deleted += delete(tx, row.id, from, MessageId(result.0 - 1)).await?;
        let sql = "UPDATE messages SET content = $2 WHERE id = $1";
        tx.run(sql, values![result.0, CallEnd::Interrupted.text()]).await?;
        from = result;
    }
    deleted += delete(tx, row.id, from, newest).await?;
    drop_last_summary(tx, row.id).await?;
    let context_source = settle(tx, row, row.id, native, lost).await?;
    // It remembers what is gone.
    doom_own(tx, row).await?;
    let sql =
        "UPDATE sessions SET native_session_id = $2, native_host = $3, last_turn_failed = $4 WHERE id = $1";
    let (id, host) = (native.map(|fork| fork.native.as_str()), native.map(|fork| fork.host.as_str()));
    tx.run(sql, values![row.id.0, id, host, false]).await?;
    recount(tx, row, row.id).await?;
    Ok(result_of(row.id, row.engine, deleted, native, context_source))
}

pub(super) fn result_of(
    session_id: SessionId,
    engine: EngineKind,
    deleted: i64,
    native: Option<&NativeFork>,
    context_source: ContextSource,
) -> CutResult {
    CutResult {
        session_id,
        deleted,
        claude_forked: native.is_some() && engine == EngineKind::ClaudeCli,
        engine_forked: native.is_some(),
        context_source,
    }
}

/// A cut at a summary: it is displayed on, and stands for nothing any more. The model is shown its messages again.
pub(super) async fn drop_last_summary(tx: &mut Tx, session: SessionId) -> Result<(), StoreError> {
    let sql = "UPDATE messages SET consumed_seq = NULL WHERE session_id = $1 AND origin = $2 \
               AND id = (SELECT max(id) FROM messages WHERE session_id = $1)";
    tx.run(sql, values![session.0, COMPACTION]).await.map(drop)
}

/// Deletes the messages after one, up to and with another; returns how many.
async fn delete(
    tx: &mut Tx,
    session: SessionId,
    after: MessageId,
    last: MessageId,
) -> Result<i64, StoreError> {
    let sql = "DELETE FROM messages WHERE session_id = $1 AND id > $2 AND id <= $3";
    let deleted = tx.run(sql, values![session.0, after.0, last.0]).await?;
    Ok(i64::try_from(deleted).unwrap_or(i64::MAX))
}

/// The last message of the model up to `at`.
async fn point(tx: &mut Tx, row: &Locked, at: MessageId) -> Result<Option<Point>, StoreError> {
    let sql = "SELECT id, tool_calls, engine_metadata, native_session_id FROM messages \
               WHERE session_id = $1 AND role = 'assistant' AND id <= $2 ORDER BY id DESC LIMIT 1";
    let Some(found) = tx.first(sql, values![row.id.0, at.0]).await? else { return Ok(None) };
    let calls: Vec<serde_json::Value> = json(&found, "messages", "tool_calls")?.unwrap_or_default();
    Ok(Some(Point {
        id: MessageId(found.get("id")?),
        anchor: anchor(row, &found)?,
        calls: calls.iter().filter_map(|call| Some(call.get("id")?.as_str()?.to_owned())).collect(),
    }))
}

/// A message's anchor, where it is one of the present native session.
fn anchor(row: &Locked, message: &Row) -> Result<Option<String>, StoreError> {
    let (Some(native), Some(key)) = (&row.native_session, row.engine.anchor_key()) else { return Ok(None) };
    let of: Option<String> = message.get("native_session_id")?;
    let metadata: Option<serde_json::Value> = json(message, "messages", "engine_metadata")?;
    let at = metadata.as_ref().and_then(|metadata| metadata.get(key)?.as_str());
    Ok(at.filter(|_| of.as_ref() == Some(native)).map(str::to_owned))
}

/// Where the native session has to be forked for a cut: at the last message of the model that is kept, or at the last
/// result that is kept of its calls. `None` where that message has no anchor.
pub(super) async fn fork_point(
    tx: &mut Tx,
    row: &Locked,
    at: MessageId,
) -> Result<Option<Anchor>, StoreError> {
    let Some(Point { id, anchor: Some(said), .. }) = point(tx, row, at).await? else { return Ok(None) };
    let sql = "SELECT engine_metadata, native_session_id FROM messages \
               WHERE session_id = $1 AND role = 'tool' AND id > $2 AND id <= $3 ORDER BY id DESC";
    let results = tx.all(sql, values![row.id.0, id.0, at.0]).await?;
    let results = results.iter().map(|result| anchor(row, result)).collect::<Result<Vec<_>, _>>()?;
    let at = results.into_iter().flatten().next().unwrap_or(said);
    Ok(row.native_session.clone().map(|native| Anchor { native, at }))
}

/// The results behind a cut of calls before it. They stay, as rows that say why there is no result: the conversation
/// ends at the cut, and a model is never shown a call without one.
pub(super) async fn lost_results(
    tx: &mut Tx,
    row: &Locked,
    at: MessageId,
    newest: MessageId,
) -> Result<Vec<MessageId>, StoreError> {
    let Some(Point { id, calls: mut open, .. }) = point(tx, row, at).await? else {
        return Ok(Vec::new());
    };
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, role, tool_call_id FROM messages WHERE session_id = $1 AND id > $2 AND id <= $3 \
               AND role IN ('assistant', 'tool') ORDER BY id";
    let mut lost = Vec::new();
    for row in tx.all(sql, values![row.id.0, id.0, newest.0]).await? {
        let (id, call) = (MessageId(row.get("id")?), row.get::<Option<String>>("tool_call_id")?);
        // The model speaks again only when it has all results.
        let Some(call) = call else { break };
        if let Some(found) = open.iter().position(|open| *open == call) {
            open.swap_remove(found);
            lost.extend((at < id).then_some(id));
        }
    }
    Ok(lost)
}

/// The last place, in the order of consumption, of what the model said after a cut.
pub(super) async fn lost_word(
    tx: &mut Tx,
    row: &Locked,
    at: MessageId,
    newest: MessageId,
) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT max(consumed_seq) AS lost FROM messages \
               WHERE session_id = $1 AND role = 'assistant' AND id > $2 AND id <= $3";
    tx.one(sql, values![row.id.0, at.0, newest.0]).await?.get("lost")
}

/// Makes the messages that a session has now one conversation: that of a held one after a trim, or of its fork. Without a
/// word of the model in it, it begins anew. What people said after the last one, and was answered by what is `lost`, is not
/// in the engine's own conversation: it goes along with the next message. Returns where the next turn's memory comes from.
pub(super) async fn settle(
    tx: &mut Tx,
    source: &Locked,
    session: SessionId,
    native: Option<&NativeFork>,
    lost: Option<i64>,
) -> Result<ContextSource, StoreError> {
    move_anchors(tx, session, native).await?;
    let sql = "SELECT max(consumed_seq) AS said FROM messages WHERE session_id = $1 AND role = 'assistant'";
    let Some(said) = tx.one(sql, values![session.0]).await?.get::<Option<i64>>("said")? else {
        let sql = "UPDATE messages SET consumed_seq = NULL, unsent = $2 WHERE session_id = $1";
        tx.run(sql, values![session.0, false]).await?;
        return Ok(ContextSource::Empty);
    };
    if source.engine.keeps_conversations() {
        // Mail that waits was not yet consumed, and has no place in that order. What was cancelled or has failed had its
        // end before the cut: nobody wants it done now.
        let sql = "UPDATE messages SET unsent = $5 WHERE session_id = $1 AND role = 'user' \
                   AND consumed_seq > $2 AND consumed_seq < $3 AND seq NOT IN (SELECT m.seq FROM messages m \
                       JOIN turns t ON t.id = m.turn_id WHERE m.session_id = $4 AND m.role = 'user' \
                       AND t.state IN ('cancelled', 'failed'))";
        tx.run(sql, values![session.0, said, lost, source.id.0, true]).await?;
    }
    Ok(if native.is_some() { ContextSource::Native } else { ContextSource::Replay })
}

/// Moves the anchors of a session's messages from a native session to its copy. All others point nowhere from now on.
async fn move_anchors(
    tx: &mut Tx,
    session: SessionId,
    native: Option<&NativeFork>,
) -> Result<(), StoreError> {
    let sql = "SELECT id, native_session_id, engine_metadata FROM messages \
               WHERE session_id = $1 AND native_session_id IS NOT NULL";
    let anchored = tx.all(sql, values![session.0]).await?;
    let sql = "UPDATE messages SET native_session_id = NULL, engine_metadata = NULL \
               WHERE session_id = $1 AND native_session_id IS NOT NULL";
    tx.run(sql, values![session.0]).await?;
    let Some(fork) = native else { return Ok(()) };
    let mut moved = Vec::new();
    for row in anchored {
        let metadata: Option<serde_json::Map<String, serde_json::Value>> =
            json(&row, "messages", "engine_metadata")?;
        let of: Option<String> = row.get("native_session_id")?;
        let Some(mut metadata) = metadata.filter(|_| of.as_ref() == Some(&fork.source)) else { continue };
        let is_copied = metadata.values_mut().all(|anchor| {
            let new = anchor.as_str().and_then(|anchor| fork.anchors.get(anchor));
            new.map(|new| *anchor = new.as_str().into()).is_some()
        });
        if is_copied {
            // A text in a text: the column has JSON as the engine gave it.
            let metadata = serde_json::Value::Object(metadata).to_string();
            moved.push(serde_json::json!({ "id": row.get::<i64>("id")?, "metadata": metadata }));
        }
    }
    // One statement, however long the conversation is: callers of the session wait for this transaction.
    let (sql, moved) = (tx.dialect().set_anchors, serde_json::Value::Array(moved).to_string());
    tx.run(sql, values![fork.native.as_str(), moved]).await.map(drop)
}

/// Counts a session's messages anew. The newest summary that is left stands for what it stood for.
pub(super) async fn recount(tx: &mut Tx, row: &Locked, session: SessionId) -> Result<(), StoreError> {
    let sql = "UPDATE sessions SET history_version = history_version + 1, updated_ms = $3, \
               message_count = (SELECT count(*) FROM messages WHERE session_id = $1), \
               last_message_id = (SELECT max(id) FROM messages WHERE session_id = $1), \
               compact_size = (SELECT count(*) FROM messages WHERE session_id = $1 AND origin <> $2 \
                   AND consumed_seq <= (SELECT consumed_seq FROM messages WHERE session_id = $1 AND origin = $2 \
                       AND consumed_seq IS NOT NULL ORDER BY id DESC LIMIT 1)) \
               WHERE id = $1";
    tx.run(sql, values![session.0, COMPACTION, row.now_ms]).await.map(drop)
}

/// Ends the wakes of children that no message of the session asks for any more.
pub(super) async fn end_orphaned_wakes(tx: &mut Tx, row: &Locked) -> Result<Vec<Ended>, StoreError> {
    let sql = "SELECT w.id, w.message_id FROM jobs w JOIN jobs j ON j.id = w.woken_by \
               WHERE w.session_id = $1 AND w.state = 'pending' AND NOT EXISTS (SELECT 1 FROM messages m \
                   WHERE m.id = j.wakes_message_id AND m.session_id = $1) ORDER BY w.seq";
    let mut ended = Vec::new();
    for wake in tx.all(sql, values![row.id.0]).await? {
        let job = JobId(wake.get("id")?);
        let outcome = Outcome::Answered(Box::new(unanswered(row, job, JobKind::Wake)));
        ended.push(end_job(tx, job, JobKind::Wake, outcome, row.now_ms).await?);
        if let Some(message) = wake.get::<Option<i64>>("message_id")? {
            delete(tx, row.id, MessageId(message - 1), MessageId(message)).await?;
        }
    }
    if !ended.is_empty() {
        recount(tx, row, row.id).await?;
    }
    Ok(ended)
}
