//! The locked session: where each of the three transactions starts.

use super::db::{Db, Tx, values};
use super::{Store, StoreError};
use crate::domain::{EngineKind, Lease, LeaseToken, MessageId, SessionId, TurnId, WorkerId};

/// A session's row, held until the transaction ends, and the database's time when it was got.
pub(super) struct SessionTx {
    pub(super) tx: Tx,
    pub(super) row: Locked,
}

/// What a transaction has to know of the session it holds.
pub(super) struct Locked {
    pub(super) id: SessionId,
    pub(super) agent: String,
    pub(super) engine: EngineKind,
    pub(super) model: Option<String>,
    pub(super) cwd: String,
    pub(super) native_session: Option<String>,
    pub(super) native_host: Option<String>,
    pub(super) last_seq: i64,
    pub(super) last_message: Option<MessageId>,
    pub(super) lease_worker: Option<WorkerId>,
    pub(super) lease_token: LeaseToken,
    pub(super) lease_expires_ms: i64,
    pub(super) active_turn: Option<TurnId>,
    pub(super) cancel_turn: Option<TurnId>,
    pub(super) now_ms: i64,
}

impl Locked {
    /// The worker whose lease is alive.
    pub(super) fn live_worker(&self) -> Option<WorkerId> {
        self.lease_worker.filter(|_| self.now_ms < self.lease_expires_ms)
    }

    /// The next place in the order of arrival.
    pub(super) fn next_seq(&mut self) -> i64 {
        self.last_seq += 1;
        self.last_seq
    }
}

impl SessionTx {
    /// Begins a transaction and locks the session in it.
    pub(super) async fn lock(db: &Db, session: SessionId) -> Result<Self, StoreError> {
        let mut tx = db.begin().await?;
        let row = lock(&mut tx, session).await?;
        Ok(Self { tx, row })
    }

    /// The same for a run: where the lease is no longer the session's, nothing can be written.
    ///
    /// An expired lease that nobody has taken is still the run's: it ends by being taken, not by the clock.
    pub(super) async fn lock_leased(db: &Db, lease: &Lease) -> Result<Self, StoreError> {
        let held = match Self::lock(db, lease.session).await {
            // A deleted session's lease is as lost as any.
            Err(StoreError::SessionNotFound) => return Err(StoreError::LeaseLost),
            other => other?,
        };
        if held.row.lease_worker != Some(lease.worker) || held.row.lease_token != lease.token {
            return Err(StoreError::LeaseLost);
        }
        Ok(held)
    }

    /// Whether any job of the session has not ended.
    pub(super) async fn has_open_jobs(&mut self) -> Result<bool, StoreError> {
        let sql = "SELECT seq FROM jobs WHERE session_id = $1 AND state IN ('pending', 'claimed') LIMIT 1";
        Ok(self.tx.first(sql, values![self.row.id.0]).await?.is_some())
    }
}

/// Locks a session in a transaction that has begun.
pub(super) async fn lock(tx: &mut Tx, session: SessionId) -> Result<Locked, StoreError> {
    let row = tx.lock_session(session.0).await?.ok_or(StoreError::SessionNotFound)?;
    let engine: String = row.get("engine")?;
    Ok(Locked {
        id: SessionId(row.get("id")?),
        agent: row.get("agent")?,
        engine: EngineKind::from_name(&engine)
            .ok_or_else(|| StoreError::inconsistent("sessions", "engine", session))?,
        model: row.get("model")?,
        cwd: row.get("cwd")?,
        native_session: row.get("native_session_id")?,
        native_host: row.get("native_host")?,
        last_seq: row.get("last_seq")?,
        last_message: row.get::<Option<i64>>("last_message_id")?.map(MessageId),
        lease_worker: row.get::<Option<uuid::Uuid>>("lease_worker")?.map(WorkerId),
        lease_token: LeaseToken(row.get("lease_token")?),
        lease_expires_ms: row.get("lease_expires_ms")?,
        active_turn: row.get::<Option<uuid::Uuid>>("active_turn_id")?.map(TurnId),
        cancel_turn: row.get::<Option<uuid::Uuid>>("cancel_turn_id")?.map(TurnId),
        now_ms: tx.clock.read(row.get("now_ms")?),
    })
}

impl Store {
    pub(super) async fn lock(&self, session: SessionId) -> Result<SessionTx, StoreError> {
        SessionTx::lock(&self.db, session).await
    }

    pub(super) async fn lock_leased(&self, lease: &Lease) -> Result<SessionTx, StoreError> {
        SessionTx::lock_leased(&self.db, lease).await
    }
}
