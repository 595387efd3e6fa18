//! The locked session: where each of the three transactions starts.

use std::time::Duration;

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
    pub(super) active_turn: Option<TurnId>,
    pub(super) cancel_turn: Option<TurnId>,
    /// The last step of a run.
    pub(super) last_step: Option<uuid::Uuid>,
    pub(super) now_ms: i64,
}

impl Locked {
    /// The next place in the order of arrival.
    pub(super) fn next_seq(&mut self) -> i64 {
        self.last_seq += 1;
        self.last_seq
    }
}

impl SessionTx {
    /// Begins a transaction of a caller and locks the session in it.
    pub(super) async fn lock(db: &Db, session: SessionId) -> Result<Self, StoreError> {
        Self::locked(db.begin_for(session.0).await?, session).await
    }

    async fn locked(mut tx: Tx, session: SessionId) -> Result<Self, StoreError> {
        let row = lock(&mut tx, session).await?;
        Ok(Self { tx, row })
    }

    /// The same with a short lock timeout, which holds for the rest of the transaction too.
    pub(super) async fn lock_short_wait(db: &Db, session: SessionId) -> Result<Self, StoreError> {
        let mut tx = db.begin_short_wait().await?;
        let row = lock(&mut tx, session).await?;
        Ok(Self { tx, row })
    }

    /// The same for a run: where the lease is no longer the session's, nothing can be written.
    ///
    /// The lease of a dead worker that nobody has taken is still the run's: it ends by being taken, not by the clock.
    pub(super) async fn lock_leased(db: &Db, lease: &Lease) -> Result<Self, StoreError> {
        let held = Self::lock_for_run(db, lease.session).await?;
        held.is_held_by(lease)?;
        Ok(held)
    }

    /// The same, whatever has become of the lease.
    pub(super) async fn lock_for_run(db: &Db, session: SessionId) -> Result<Self, StoreError> {
        match Self::locked(db.begin().await?, session).await {
            // A deleted session's lease is as lost as any.
            Err(StoreError::SessionNotFound) => Err(StoreError::LeaseLost),
            other => other,
        }
    }

    /// Fails unless the lease is the session's.
    pub(super) fn is_held_by(&self, lease: &Lease) -> Result<(), StoreError> {
        if self.row.lease_worker == Some(lease.worker) && self.row.lease_token == lease.token {
            return Ok(());
        }
        Err(StoreError::LeaseLost)
    }

    /// Whether a worker that lives has the session, or any of its jobs has not ended.
    pub(super) async fn is_busy(&mut self) -> Result<bool, StoreError> {
        Ok(self.has_open_jobs().await? || live_worker(&mut self.tx, &self.row).await?.is_some())
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
        active_turn: row.get::<Option<uuid::Uuid>>("active_turn_id")?.map(TurnId),
        cancel_turn: row.get::<Option<uuid::Uuid>>("cancel_turn_id")?.map(TurnId),
        last_step: row.get("last_step")?,
        now_ms: tx.clock.read(row.get("now_ms")?),
    })
}

/// The worker that has a held session and lives. A worker lives until it is declared dead, whatever the clock says; one
/// whose row is gone is dead.
pub(super) async fn live_worker(tx: &mut Tx, row: &Locked) -> Result<Option<WorkerId>, StoreError> {
    let Some(worker) = row.lease_worker else { return Ok(None) };
    Ok(lives(tx, worker).await?.then_some(worker))
}

/// Whether a worker is known and was not declared dead.
pub(super) async fn lives(tx: &mut Tx, worker: WorkerId) -> Result<bool, StoreError> {
    // A statement of its own: within the one that waited for the session's lock it could see the workers of before.
    let sql = "SELECT id FROM workers WHERE id = $1 AND dead_ms IS NULL";
    Ok(tx.first(sql, values![worker.0]).await?.is_some())
}

/// How often a transaction is tried that the database ends in favour of another.
const TRIES: u32 = 5;
/// How long the first of those waits before it is tried again. The other has won, and has the locks until it ends.
const BACK_OFF: Duration = Duration::from_millis(10);

impl Store {
    /// Runs a transaction, and runs it anew where the database has ended it in favour of another (a deadlock, a
    /// serialization failure). `act` is the whole transaction: of an earlier try nothing is left.
    pub(super) async fn transact<T, F>(&self, mut act: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        for tried in 1..TRIES {
            match act().await {
                Err(error) if error.is_conflict() => tokio::time::sleep(BACK_OFF * tried).await,
                done => return done,
            }
        }
        act().await
    }

    pub(super) async fn lock(&self, session: SessionId) -> Result<SessionTx, StoreError> {
        SessionTx::lock(&self.db, session).await
    }

    pub(super) async fn lock_short_wait(&self, session: SessionId) -> Result<SessionTx, StoreError> {
        SessionTx::lock_short_wait(&self.db, session).await
    }

    pub(super) async fn lock_leased(&self, lease: &Lease) -> Result<SessionTx, StoreError> {
        SessionTx::lock_leased(&self.db, lease).await
    }
}
