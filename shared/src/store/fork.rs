//! A fork: a new session with another's messages up to a point.

use super::StoreError;
use super::admit::{NewSession, insert_session};
use super::cut::{drop_last_summary, lost_results, lost_word, recount, result_of, settle};
use super::db::{Tx, values};
use super::maintenance::NativeFork;
use super::progress::CallEnd;
use super::tx::Locked;
use crate::domain::{CutResult, Fork, MessageId, SessionId};

/// Makes the new session of a held one. Its totals begin at 0: what its messages have cost is the source's.
pub(super) async fn fork(
    tx: &mut Tx,
    row: &Locked,
    asked: &Fork,
    newest: MessageId,
    native: Option<&NativeFork>,
    cwd: &str,
) -> Result<CutResult, StoreError> {
    let (into, at) = (asked.into, asked.at.unwrap_or(newest));
    let source = tx.one("SELECT title, metadata FROM sessions WHERE id = $1", values![row.id.0]).await?;
    let metadata: String = source.get("metadata")?;
    let new = NewSession {
        id: into,
        agent: row.agent.clone(),
        engine: row.engine,
        model: row.model.clone(),
        title: asked.title.clone().or(source.get("title")?),
        cwd: cwd.to_owned(),
        metadata: serde_json::from_str(&metadata)
            .map_err(|_| StoreError::inconsistent("sessions", "metadata", row.id))?,
    };
    insert_session(tx, &new, row.now_ms).await?;
    copy(tx, row.id, into, (MessageId(0), at), None).await?;
    for result in lost_results(tx, row, at, newest).await? {
        let only = (MessageId(result.0 - 1), result);
        copy(tx, row.id, into, only, Some(CallEnd::Interrupted.text())).await?;
    }
    drop_last_summary(tx, into).await?;
    let lost = lost_word(tx, row, at, newest).await?;
    let context_source = settle(tx, row, into, native, lost).await?;
    let sql = "UPDATE sessions SET parent_session_id = $2, forked_from_message_id = $3, last_seq = $4, \
               native_session_id = $5, native_host = $6, \
               rules_above = (SELECT source.rules_above FROM sessions source WHERE source.id = $2) WHERE id = $1";
    let values = values![
        into.0,
        row.id.0,
        Some(at.0).filter(|at| 0 < *at),
        row.last_seq,
        native.map(|fork| fork.native.as_str()),
        native.map(|fork| fork.host.as_str()),
    ];
    tx.run(sql, values).await?;
    recount(tx, row, into).await?;
    Ok(result_of(into, row.engine, 0, native, context_source))
}

/// Copies the messages after one, up to and with another. A copy keeps its places in both orders and names its source row
/// in `external_id`. It has no turn, job or cost: those belong to the source.
async fn copy(
    tx: &mut Tx,
    source: SessionId,
    into: SessionId,
    (after, last): (MessageId, MessageId),
    content: Option<&str>,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO messages (session_id, seq, consumed_seq, role, content, thinking, tool_calls, tool_call_id, \
               model, input_tokens, output_tokens, cache_tokens, thinking_tokens, attachments, engine_metadata, \
               native_session_id, external_id, origin, cancelled, failed, truncated, opaque, unsent, created_ms) \
               SELECT $2, seq, consumed_seq, role, coalesce($5, content), thinking, tool_calls, tool_call_id, \
               model, input_tokens, output_tokens, cache_tokens, thinking_tokens, attachments, engine_metadata, \
               native_session_id, 'forkcopy:' || id, origin, cancelled, failed, truncated, opaque, unsent, created_ms \
               FROM messages WHERE session_id = $1 AND id > $3 AND id <= $4 ORDER BY id";
    tx.run(sql, values![source.0, into.0, after.0, last.0, content]).await.map(drop)
}
