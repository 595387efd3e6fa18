//! The sweep: mail whose ring was lost is rung for again.

use super::db::values;
use super::tx::SessionTx;
use super::{Store, StoreError};
use crate::domain::{JobId, JobKind, SessionId, SessionJob};

impl Store {
    /// Sessions that have mail, no lease, and were not put on a queue for `age_ms`. They count as put there now.
    pub async fn sweep(&self, age_ms: i64, limit: i64) -> Result<Vec<SessionJob>, StoreError> {
        let due = "SELECT DISTINCT j.session_id FROM jobs j JOIN sessions s ON s.id = j.session_id \
                   WHERE j.state = 'pending' AND s.lease_worker IS NULL AND s.enqueued_ms <= $1 LIMIT $2";
        let now_ms = self.now_ms().await?;
        let mut found = Vec::new();
        for row in self.db.all(due, values![now_ms - age_ms, limit]).await? {
            let session = SessionId(row.get("session_id")?);
            // One transaction each: no order of locks over several sessions.
            let mut held = match self.lock(session).await {
                Err(StoreError::SessionNotFound) => continue,
                other => other?,
            };
            let sql = "UPDATE sessions SET enqueued_ms = $2 \
                       WHERE id = $1 AND lease_worker IS NULL AND enqueued_ms <= $3";
            if held.tx.run(sql, values![session.0, held.row.now_ms, now_ms - age_ms]).await? == 0 {
                continue;
            }
            found.extend(head(&mut held).await?);
            held.tx.commit().await?;
        }
        Ok(found)
    }
}

/// The pending job of a held session that runs next.
pub(super) async fn head(held: &mut SessionTx) -> Result<Option<SessionJob>, StoreError> {
    let sql = "SELECT id, kind FROM jobs WHERE session_id = $1 AND state = 'pending' \
               ORDER BY turn_id IS NULL, seq LIMIT 1";
    let Some(row) = held.tx.first(sql, values![held.row.id.0]).await? else { return Ok(None) };
    let job = JobId(row.get("id")?);
    let kind = JobKind::from_name(&row.get::<String>("kind")?)
        .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
    Ok(Some(SessionJob { job, session: held.row.id, kind }))
}
