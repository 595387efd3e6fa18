//! Native sessions that are to be deleted: what a cut leaves behind, and the copy that a cut is about to make.
//!
//! The copy is put on the list before it is made, and the transaction that makes it count takes it off: whatever happens
//! in between, nothing is left on a host that nobody knows of.

use super::db::{Tx, values};
use super::tx::{Locked, SessionTx};
use super::{Store, StoreError};
use crate::domain::{EngineKind, Lease, SessionId};

/// How often a deletion is tried before it is given up.
const ATTEMPTS: i64 = 10;

/// A native session, and what it takes to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoomedNative {
    /// The engine's id of it.
    pub native: String,
    /// The session that it is or was of.
    pub session: SessionId,
    /// That session's working directory; empty for the worker's choice.
    pub cwd: String,
    /// The host that has its files.
    pub host: String,
}

/// A native session that is due to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Which one.
    pub native: DoomedNative,
    /// The agent whose sessions it was one of.
    pub agent: String,
    /// The engine that knows how.
    pub engine: EngineKind,
    /// Which try this is, from 1.
    pub attempt: i64,
    /// Whether it is the last one: then the entry is gone already.
    pub last: bool,
}

impl Store {
    /// Puts the native session on the list that a fork or a trim is about to make: unless its commit takes it off, it is
    /// due in `grace_ms`.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: it must not be made.
    pub async fn doom(&self, lease: &Lease, native: &DoomedNative, grace_ms: i64) -> Result<(), StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        insert(&mut tx, &row, native, row.now_ms.saturating_add(grace_ms)).await?;
        tx.commit().await
    }

    /// Native sessions of a host and an engine that are due. Each counts as tried, and is due again in `retry_ms` unless it is
    /// forgotten; after the last try it is forgotten here.
    pub async fn take_doomed(
        &self,
        host: &str,
        engine: EngineKind,
        limit: i64,
        retry_ms: i64,
    ) -> Result<Vec<Doomed>, StoreError> {
        let mut tx = self.db.begin().await?;
        let now_ms = tx.now_ms().await?;
        let sql = "UPDATE doomed_natives SET attempt = attempt + 1, due_ms = $3 WHERE due_ms <= $2 \
                   AND native_session_id IN (SELECT native_session_id FROM doomed_natives \
                       WHERE host = $1 AND engine = $5 AND due_ms <= $2 ORDER BY due_ms LIMIT $4) \
                   RETURNING native_session_id, session_id, agent, cwd, attempt";
        let retry_ms = now_ms.saturating_add(retry_ms);
        let mut found = Vec::new();
        for row in tx.all(sql, values![host, now_ms, retry_ms, limit, engine.as_str()]).await? {
            let native: String = row.get("native_session_id")?;
            let attempt: i64 = row.get("attempt")?;
            let last = ATTEMPTS <= attempt;
            if last {
                forget(&mut tx, &native).await?;
            }
            let session = SessionId(row.get("session_id")?);
            let native = DoomedNative { native, session, cwd: row.get("cwd")?, host: host.to_owned() };
            found.push(Doomed { native, agent: row.get("agent")?, engine, attempt, last });
        }
        tx.commit().await?;
        Ok(found)
    }

    /// Takes a native session off the list, because it is gone.
    pub async fn forget_doomed(&self, native: &str) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        forget(&mut tx, native).await?;
        tx.commit().await
    }
}

async fn forget(tx: &mut Tx, native: &str) -> Result<(), StoreError> {
    tx.run("DELETE FROM doomed_natives WHERE native_session_id = $1", values![native]).await.map(drop)
}

async fn insert(tx: &mut Tx, row: &Locked, native: &DoomedNative, due_ms: i64) -> Result<(), StoreError> {
    let sql = "INSERT INTO doomed_natives (native_session_id, session_id, agent, engine, cwd, host, due_ms) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (native_session_id) DO NOTHING";
    let values = values![
        native.native.as_str(),
        native.session.0,
        row.agent.as_str(),
        row.engine.as_str(),
        native.cwd.as_str(),
        native.host.as_str(),
        due_ms,
    ];
    tx.run(sql, values).await.map(drop)
}

/// Puts what a held session's conversation was on the list, due at once. Where nobody knows on which host its files are,
/// there is nothing to be done.
pub(super) async fn doom_own(tx: &mut Tx, row: &Locked) -> Result<(), StoreError> {
    let (Some(native), Some(host)) = (&row.native_session, &row.native_host) else { return Ok(()) };
    let own =
        DoomedNative { native: native.clone(), session: row.id, cwd: row.cwd.clone(), host: host.clone() };
    insert(tx, row, &own, row.now_ms).await
}

/// Takes a copy off the list that was made in time. `false`: it may be gone by now, and must not be used.
pub(super) async fn spare(tx: &mut Tx, native: &str, now_ms: i64) -> Result<bool, StoreError> {
    let sql = "DELETE FROM doomed_natives WHERE native_session_id = $1 AND due_ms > $2 AND attempt = 0";
    Ok(tx.run(sql, values![native, now_ms]).await? == 1)
}
