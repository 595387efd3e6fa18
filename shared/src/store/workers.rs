//! Workers: their registration, their renewals, and their end.
//!
//! A row is one incarnation of a worker process. It has the expiry of all its leases; a session that it runs names it. Once
//! it is declared dead, it stays so: the process can only register again under another id.

use super::db::{Row, values};
use super::{Store, StoreError};
use crate::domain::{AgentStatus, HeldLease, LeaseToken, LeftOutTool, SessionId, TurnId, Worker, WorkerId};

/// How long the row of a worker that was declared dead is kept.
const DEAD_KEPT_MS: i64 = 60 * 60 * 1000;

/// A renewal.
#[derive(Debug, Clone, Copy)]
pub struct Beat {
    /// The worker.
    pub worker: WorkerId,
    /// For how long its leases are good from now, in milliseconds.
    pub lease_ms: i64,
}

/// What a reaper sees of a worker that was not declared dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The worker.
    pub worker: WorkerId,
    /// How often it was renewed. As long as this does not change, it has given no sign of life.
    pub beats: i64,
    /// The length of its lease, in milliseconds.
    pub lease_ms: i64,
    /// Whether its time is over by the database's clock.
    pub expired: bool,
    /// Whether it has said that it stops.
    pub stopping: bool,
}

impl Store {
    /// Makes a worker known, alive from now for `lease_ms`. The times in `worker` are not used: the database's clock counts.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] where this id was declared dead.
    pub async fn register_worker(&self, worker: &Worker, lease_ms: i64) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let now_ms = tx.now_ms().await?;
        let sql = "INSERT INTO workers (id, host, pid, version, slots, agents, stopping, started_ms, seen_ms, expires_ms) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9) \
                   ON CONFLICT (id) DO UPDATE SET agents = excluded.agents, stopping = excluded.stopping, \
                   seen_ms = excluded.seen_ms, expires_ms = excluded.expires_ms, beats = workers.beats + 1 \
                   WHERE workers.dead_ms IS NULL";
        let values = values![
            worker.id.0,
            worker.host.as_str(),
            worker.pid,
            worker.version.as_str(),
            worker.slots,
            super::finish::to_json(&worker.agents),
            worker.stopping,
            now_ms,
            now_ms + lease_ms,
        ];
        if tx.run(sql, values).await? == 0 {
            return Err(StoreError::LeaseLost);
        }
        tx.commit().await
    }

    /// Deletes the rows of workers that died long ago. Only of the dead: a step of the clock must not delete one that lives.
    /// A session that still names one is reaped first.
    pub async fn forget_workers(&self) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let now_ms = tx.now_ms().await?;
        let sql = "DELETE FROM workers WHERE dead_ms < $1 \
                   AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.lease_worker = workers.id)";
        tx.run(sql, values![now_ms - DEAD_KEPT_MS]).await?;
        tx.commit().await
    }

    /// Renews a worker, and with it all its leases. Touches the worker's row and no other, so that no session can delay it.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] where the worker was declared dead or its row is gone: all its leases are lost.
    pub async fn renew(&self, beat: Beat) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let now_ms = tx.now_ms().await?;
        let sql = "UPDATE workers SET seen_ms = $2, expires_ms = $3, beats = beats + 1 \
                   WHERE id = $1 AND dead_ms IS NULL";
        if tx.run(sql, values![beat.worker.0, now_ms, now_ms + beat.lease_ms]).await? == 0 {
            return Err(StoreError::LeaseLost);
        }
        tx.commit().await
    }

    /// The leases of a worker, with the cancels that were asked for. Locks nothing.
    pub async fn held(&self, worker: WorkerId) -> Result<Vec<HeldLease>, StoreError> {
        let sql = "SELECT s.id, s.lease_token, s.active_turn_id, s.cancel_turn_id, w.expires_ms FROM sessions s \
                   JOIN workers w ON w.id = s.lease_worker WHERE s.lease_worker = $1 ORDER BY s.id";
        let rows = self.db.all(sql, values![worker.0]).await?;
        rows.iter().map(|row| held_lease(row, row.get("expires_ms")?)).collect()
    }

    /// The workers that were not declared dead. Locks nothing.
    pub async fn sightings(&self) -> Result<Vec<Sighting>, StoreError> {
        let now_ms = self.now_ms().await?;
        let sql =
            "SELECT id, beats, stopping, seen_ms, expires_ms FROM workers WHERE dead_ms IS NULL ORDER BY id";
        let rows = self.db.all(sql, values![]).await?;
        rows.iter()
            .map(|row| {
                let (seen_ms, expires_ms): (i64, i64) = (row.get("seen_ms")?, row.get("expires_ms")?);
                Ok(Sighting {
                    worker: WorkerId(row.get("id")?),
                    beats: row.get("beats")?,
                    lease_ms: expires_ms - seen_ms,
                    expired: expires_ms <= now_ms,
                    stopping: row.get("stopping")?,
                })
            })
            .collect()
    }

    /// Declares a worker dead: it can never be renewed again, and its sessions can be reaped. With `beats`, only if it was
    /// not renewed since that was read. `false`: it was renewed, somebody else has declared it dead, or its row is locked;
    /// who wants to know looks again.
    pub async fn declare_dead(&self, worker: WorkerId, beats: Option<i64>) -> Result<bool, StoreError> {
        let mut tx = self.db.begin_short_wait().await?;
        let row = match tx.lock_worker(worker.0).await {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(false),
            Err(error) if error.is_locked() => return Ok(false),
            Err(error) => return Err(error),
        };
        let now: i64 = row.get("beats")?;
        if beats.is_some_and(|beats| beats != now) {
            return Ok(false);
        }
        let now_ms = tx.now_ms().await?;
        tx.run("UPDATE workers SET dead_ms = $2 WHERE id = $1", values![worker.0, now_ms]).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Says which tools of one of a worker's agents its model is not offered. A worker writes only its own row, and one of
    /// these at a time.
    pub async fn set_left_out(
        &self,
        worker: WorkerId,
        agent: &str,
        tools: &[LeftOutTool],
    ) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let sql = "SELECT agents FROM workers WHERE id = $1";
        let Some(row) = tx.first(sql, values![worker.0]).await? else { return Ok(()) };
        let mut agents: Vec<AgentStatus> = serde_json::from_str(&row.get::<String>("agents")?)
            .map_err(|_| StoreError::inconsistent("workers", "agents", worker))?;
        for status in agents.iter_mut().filter(|status| status.agent.name == agent) {
            status.left_out_tools = tools.to_vec();
        }
        let agents = super::finish::to_json(&agents);
        tx.run("UPDATE workers SET agents = $2 WHERE id = $1", values![worker.0, agents]).await?;
        tx.commit().await
    }

    /// Says that a worker takes no more work. It counts as alive until its time runs out, so that a deployment that
    /// replaces workers one by one is no outage.
    pub async fn stop_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        tx.run("UPDATE workers SET stopping = $2 WHERE id = $1", values![worker.0, true]).await?;
        tx.commit().await
    }

    /// The workers that are alive, with what each runs. A row that cannot be read is logged and left out.
    pub async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        let now_ms = self.now_ms().await?;
        let sql = "SELECT id, host, pid, version, slots, agents, stopping, started_ms, seen_ms, expires_ms FROM workers \
                   WHERE dead_ms IS NULL AND expires_ms > $1 ORDER BY started_ms, id";
        let mut workers = Vec::new();
        for row in self.db.all(sql, values![now_ms]).await? {
            match worker(&row) {
                Err(error @ StoreError::Inconsistent { .. }) => tracing::warn!(%error, "left out a worker"),
                worker => workers.push(worker?),
            }
        }
        let sql = "SELECT id, lease_worker, lease_token, active_turn_id, cancel_turn_id FROM sessions \
                   WHERE lease_worker IS NOT NULL ORDER BY id";
        for row in self.db.all(sql, values![]).await? {
            let holder = WorkerId(row.get("lease_worker")?);
            let Some(worker) = workers.iter_mut().find(|worker| worker.id == holder) else { continue };
            worker.leases.push(held_lease(&row, worker.expires_ms)?);
        }
        Ok(workers)
    }
}

fn worker(row: &Row) -> Result<Worker, StoreError> {
    let id = WorkerId(row.get("id")?);
    Ok(Worker {
        id,
        host: row.get("host")?,
        pid: row.get("pid")?,
        version: row.get("version")?,
        slots: row.get("slots")?,
        agents: serde_json::from_str(&row.get::<String>("agents")?)
            .map_err(|_| StoreError::inconsistent("workers", "agents", id))?,
        stopping: row.get("stopping")?,
        started_ms: row.get("started_ms")?,
        seen_ms: row.get("seen_ms")?,
        expires_ms: row.get("expires_ms")?,
        leases: Vec::new(),
    })
}

fn held_lease(row: &Row, expires_ms: i64) -> Result<HeldLease, StoreError> {
    Ok(HeldLease {
        session: SessionId(row.get("id")?),
        token: LeaseToken(row.get("lease_token")?),
        turn: row.get::<Option<uuid::Uuid>>("active_turn_id")?.map(TurnId),
        cancel_turn: row.get::<Option<uuid::Uuid>>("cancel_turn_id")?.map(TurnId),
        expires_ms,
    })
}
