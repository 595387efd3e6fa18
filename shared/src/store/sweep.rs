//! The sweep: mail whose ring was lost is rung for again.
//!
//! `sessions.enqueued_ms` says when a session was last rung for; 0: there is nothing to ring for, because its mail was taken
//! since. So an index has those only that wait for a run, and the oldest of an agent are found without a look at the others.

use std::collections::HashSet;

use super::db::{Tx, values};
use super::tx::SessionTx;
use super::{Store, StoreError};
use crate::domain::{EngineKind, JobId, JobKind, SessionId, SessionJob};

/// Batches in one sweep of one kind. Only what has no mail any more takes more than one.
const BATCHES: usize = 20;

/// What a worker looks for: sessions without a lease whose next job it can run and that were not rung for as long as this.
#[derive(Debug, Clone, Copy)]
pub struct Sweep<'a> {
    /// The agents that the worker has.
    pub agents: &'a [&'a str],
    /// Its engines.
    pub engines: &'a [EngineKind],
    /// For how long a session with a message was not rung for, in milliseconds.
    pub chat_ms: i64,
    /// The same for a session with a message that came while it ran.
    pub inject_ms: i64,
    /// The same for a session with a fork, a trim or a reset.
    pub maintenance_ms: i64,
    /// Most sessions of each kind, the oldest first.
    pub limit: i64,
}

/// A session that was not rung for in a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The job to ring for.
    pub job: SessionJob,
    /// A worker that cannot run it has taken its ring before.
    pub refused: bool,
}

/// The queries for sessions that are to be rung for. `$1`: rung for no later than this; `$2`: the agent or the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToRing {
    /// All of an agent, except those with a fork, a trim or a reset.
    agent: &'static str,
    /// Those of an agent with a message that came while they ran.
    injected: &'static str,
    /// Those with a fork, a trim or a reset. Every worker can run those but the ones that need the session's engine: where
    /// a worker has refused it, only those that have the engine try.
    cut: &'static str,
}

macro_rules! to_ring {
    (@ $condition:literal, $suffix:literal) => {
        concat!(
            "SELECT id FROM sessions WHERE lease_worker IS NULL AND enqueued_ms > 0 AND enqueued_ms <= $1 AND ",
            $condition,
            " ORDER BY enqueued_ms LIMIT $3",
            $suffix
        )
    };
    ($suffix:literal) => {
        $crate::store::sweep::ToRing::new(
            $crate::store::sweep::to_ring!(
                @ "agent = $2 AND id NOT IN (SELECT session_id FROM jobs \
                   WHERE state = 'pending' AND kind <> 'chat' AND kind IN ('fork', 'trim', 'reset'))",
                $suffix
            ),
            $crate::store::sweep::to_ring!(
                @ "agent = $2 AND id IN (SELECT session_id FROM jobs \
                   WHERE state = 'pending' AND kind <> 'chat' AND kind = 'inject')",
                $suffix
            ),
            $crate::store::sweep::to_ring!(
                @ "(engine = $2 OR NOT refused) AND id IN (SELECT session_id FROM jobs \
                   WHERE state = 'pending' AND kind <> 'chat' AND kind IN ('fork', 'trim', 'reset'))",
                $suffix
            ),
        )
    };
}
pub(super) use to_ring;

impl ToRing {
    pub(super) const fn new(agent: &'static str, injected: &'static str, cut: &'static str) -> Self {
        Self { agent, injected, cut }
    }
}

impl Store {
    /// Sessions that have mail, no lease, and were not rung for in a while. They count as rung for now. Those that others
    /// are at work on are left for the next time.
    pub async fn sweep(&self, wanted: Sweep<'_>) -> Result<Vec<Due>, StoreError> {
        let now_ms = self.now_ms().await?;
        let ToRing { agent, injected, cut } = self.db.dialect().to_ring;
        let before = |age_ms: i64| now_ms.saturating_sub(age_ms);
        let mut due = Vec::new();
        for name in wanted.agents {
            due.extend(self.sweep_kind(agent, before(wanted.chat_ms), name, wanted.limit).await?);
            if wanted.inject_ms < wanted.chat_ms {
                due.extend(self.sweep_kind(injected, before(wanted.inject_ms), name, wanted.limit).await?);
            }
        }
        // Also a worker without any engine can run most of them.
        let engines = wanted.engines.iter().map(|engine| engine.as_str());
        for engine in engines.chain(wanted.engines.is_empty().then_some("")) {
            due.extend(self.sweep_kind(cut, before(wanted.maintenance_ms), engine, wanted.limit).await?);
        }
        // Two of the queries may find the same session within a millisecond.
        let mut found = HashSet::with_capacity(due.len());
        due.retain(|due| found.insert(due.job.session));
        Ok(due)
    }

    async fn sweep_kind(
        &self,
        sql: &'static str,
        before_ms: i64,
        of: &str,
        limit: i64,
    ) -> Result<Vec<Due>, StoreError> {
        let mut due = Vec::new();
        for _ in 0..BATCHES {
            // Most of the time there is nothing: where one transaction writes at a time, that is seen without it.
            if self.db.has_one_writer() && self.db.first(sql, values![before_ms, of, 1_i64]).await?.is_none()
            {
                break;
            }
            let mut tx = self.db.begin().await?;
            let found = tx.all(sql, values![before_ms, of, limit]).await?;
            let ids: Vec<uuid::Uuid> = found.iter().map(|row| row.get("id")).collect::<Result<_, _>>()?;
            if ids.is_empty() {
                break;
            }
            let with_mail = ring_again(&mut tx, &ids, self.db.dialect(), &mut due).await?;
            tx.commit().await?;
            // Where all had mail, the next ones may wait for the next time; where few had, they would wait for nothing.
            if (ids.len() as u64) < limit.unsigned_abs() || ids.len() <= with_mail * 2 {
                break;
            }
        }
        Ok(due)
    }

    /// Notes that a worker has taken the ring of a session and cannot run it: from then on, those that can take it from the
    /// store, and do not ring for everybody again.
    pub async fn refuse(&self, session: SessionId) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let sql = "UPDATE sessions SET refused = $2 WHERE id = $1 AND lease_worker IS NULL AND NOT refused";
        tx.run(sql, values![session.0, true]).await?;
        tx.commit().await
    }
}

/// Notes of held sessions that they are rung for, and finds the jobs to ring for. Returns how many sessions have mail.
///
/// The mail is looked for by statements of their own, after the sessions are held: the one that holds them may see none of
/// what was committed while it began, and what is taken off the list without its mail being seen is never found again.
async fn ring_again(
    tx: &mut Tx,
    ids: &[uuid::Uuid],
    dialect: &super::db::Dialect,
    due: &mut Vec<Due>,
) -> Result<usize, StoreError> {
    let list = super::finish::to_json(&ids.iter().map(ToString::to_string).collect::<Vec<_>>());
    let heads = tx.all(dialect.heads_by_ids, values![list.as_str()]).await?;
    for row in &heads {
        let session = SessionId(row.get("session_id")?);
        let job = JobId(row.get("id")?);
        let kind: String = row.get("kind")?;
        let Some(kind) = JobKind::from_name(&kind) else {
            tracing::error!(session.id = %session, job.id = %job, kind, "a job of an unknown kind is left alone");
            continue;
        };
        due.push(Due { job: SessionJob { job, session, kind }, refused: row.get("refused")? });
    }
    let now_ms = tx.now_ms().await?;
    tx.run(dialect.rung_by_ids, values![list.as_str(), now_ms]).await?;
    Ok(heads.len())
}

/// The pending job of a held session that runs next.
pub(super) async fn head(held: &mut SessionTx) -> Result<Option<SessionJob>, StoreError> {
    let sql = "SELECT id, kind FROM jobs WHERE session_id = $1 AND state = 'pending' \
               ORDER BY turn_id IS NULL, NOT given_back, seq LIMIT 1";
    let Some(row) = held.tx.first(sql, values![held.row.id.0]).await? else { return Ok(None) };
    let job = JobId(row.get("id")?);
    let kind = JobKind::from_name(&row.get::<String>("kind")?)
        .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
    Ok(Some(SessionJob { job, session: held.row.id, kind }))
}
