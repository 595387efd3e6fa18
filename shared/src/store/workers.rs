//! Workers: who there is, and what each runs.

use super::db::values;
use super::{Store, StoreError};
use crate::domain::{HeldLease, LeaseToken, SessionId, TurnId, Worker, WorkerId};

/// How long the row of a worker that is gone stays to be looked at.
const GONE_KEPT_MS: i64 = 60 * 60 * 1000;

impl Store {
    /// Makes a worker known, alive from now for `lease_ms`, and forgets those that are long gone. The times in
    /// `worker` are not used: the database's clock counts.
    pub async fn register_worker(&self, worker: &Worker, lease_ms: i64) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let now_ms = tx.now_ms().await?;
        tx.run("DELETE FROM workers WHERE expires_ms < $1", values![now_ms - GONE_KEPT_MS]).await?;
        let sql = "INSERT INTO workers (id, host, pid, version, slots, agents, stopping, started_ms, seen_ms, expires_ms) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9) \
                   ON CONFLICT (id) DO UPDATE SET agents = excluded.agents, stopping = excluded.stopping, \
                   seen_ms = excluded.seen_ms, expires_ms = excluded.expires_ms";
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
        tx.run(sql, values).await?;
        tx.commit().await
    }

    /// Says that a worker takes no more work. It counts as alive until its time runs out, so that a deployment that
    /// replaces workers one by one is no outage.
    pub async fn stop_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        tx.run("UPDATE workers SET stopping = $2 WHERE id = $1", values![worker.0, true]).await?;
        tx.commit().await
    }

    /// The workers that are alive, with what each runs.
    pub async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        let now_ms = self.now_ms().await?;
        let sql = "SELECT id, host, pid, version, slots, agents, stopping, started_ms, seen_ms, expires_ms FROM workers \
                   WHERE expires_ms > $1 ORDER BY started_ms, id";
        let mut workers = Vec::new();
        for row in self.db.all(sql, values![now_ms]).await? {
            let id = WorkerId(row.get("id")?);
            workers.push(Worker {
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
            });
        }
        let sql = "SELECT id, lease_worker, lease_token, lease_expires_ms, active_turn_id, cancel_turn_id FROM sessions \
                   WHERE lease_worker IS NOT NULL";
        for row in self.db.all(sql, values![]).await? {
            let holder = WorkerId(row.get("lease_worker")?);
            let Some(worker) = workers.iter_mut().find(|worker| worker.id == holder) else { continue };
            worker.leases.push(HeldLease {
                session: SessionId(row.get("id")?),
                token: LeaseToken(row.get("lease_token")?),
                turn: row.get::<Option<uuid::Uuid>>("active_turn_id")?.map(TurnId),
                cancel_turn: row.get::<Option<uuid::Uuid>>("cancel_turn_id")?.map(TurnId),
                expires_ms: row.get("lease_expires_ms")?,
            });
        }
        Ok(workers)
    }
}
