//! The sweeper: mail whose ring was lost is rung for again, and work that nobody waits for any more is ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roundhouse_shared::domain::{EngineKind, JobId, Lane, SessionId};
use roundhouse_shared::problem::chain;
use roundhouse_shared::queue::QueueError;
use roundhouse_shared::store::{Due, StoreError, Sweep};

use crate::{Worker, events};

/// Sessions of one agent rung for in one round.
const ROUND: i64 = 500;
/// Children ended in one round.
const ORPHANS: usize = 50;
/// How long the end of one child may take: one locked session does not stop the round.
const ORPHAN_WAIT: Duration = Duration::from_secs(5);
/// How long a ring may wait in a queue that has others before it is looked after. It is then most likely still there, and
/// ringing again changes nothing; but a look costs the database something.
const BACKLOG: Duration = Duration::from_secs(15);
/// How long the queue may be away before a worker runs what it finds by itself.
const AWAY: Duration = Duration::from_secs(3);

/// What the sweeper remembers from one round to the next.
struct Sweeper {
    worker: Arc<Worker>,
    /// The engines that the worker has.
    engines: Vec<EngineKind>,
    /// Since when the queue takes no rings.
    away_since: Option<Instant>,
    /// The child at which the last round has stopped.
    orphan: Option<JobId>,
}

/// Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    let mut tick = tokio::time::interval(worker.settings.sweep.0);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut engines: Vec<_> = worker.engine_kinds().collect();
    engines.sort_unstable_by_key(|engine| engine.as_str());
    engines.dedup();
    let mut sweeper = Sweeper { worker, engines, away_since: None, orphan: None };
    loop {
        tick.tick().await;
        if let Err(error) = sweeper.round().await {
            tracing::debug!(error = chain(&error), "could not look for forgotten mail");
        }
        if let Err(error) = sweeper.end_orphans().await {
            tracing::debug!(error = chain(&error), "could not look for children that nobody waits for");
        }
    }
}

impl Sweeper {
    async fn round(&mut self) -> Result<(), StoreError> {
        let sweep = self.worker.settings.sweep.0;
        // The bus is only asked so that its outage and its end are logged where nothing is published.
        let (pinged, _) = tokio::join!(self.worker.queue.ping(), self.worker.bus.ping());
        self.note(pinged.as_ref().err());
        let is_away = match self.away_since {
            Some(since) if since.elapsed() < AWAY.min(sweep * 2) => return Ok(()),
            Some(_) => true,
            None => false,
        };
        let agents: Vec<&str> = self.worker.engines.keys().map(String::as_str).collect();
        let wanted = Sweep {
            agents: &agents,
            engines: &self.engines,
            chat_ms: self.age_ms(Lane::Chat, is_away).await,
            inject_ms: self.age_ms(Lane::Inject, is_away).await,
            maintenance_ms: self.age_ms(Lane::Maintenance, is_away).await,
            limit: ROUND,
        };
        let due = self.worker.store.sweep(wanted).await?;
        let (mut chat, mut maintenance) = (Vec::new(), Vec::new());
        for Due { job, refused } in due {
            let lane = events::free_lane(job.kind);
            if is_away || refused {
                // Refused: rung for everybody, it would only be refused again; this worker can run it.
                if let Err(error) = self.worker.queue.offer(lane, job.session) {
                    tracing::debug!(error = chain(&error), "could not take a forgotten job");
                }
            } else if lane == Lane::Maintenance {
                maintenance.push(job.session);
            } else {
                chat.push(job.session);
            }
        }
        self.ring(Lane::Chat, &chat).await;
        self.ring(Lane::Maintenance, &maintenance).await;
        Ok(())
    }

    /// For how long a session with mail for this queue must not have been rung for.
    async fn age_ms(&self, lane: Lane, is_away: bool) -> i64 {
        let sweep = self.worker.settings.sweep.0;
        let waits = !is_away && self.worker.queue.depth(lane).await.is_ok_and(|depth| 0 < depth);
        let age = if waits { sweep.max(BACKLOG) } else { sweep };
        i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
    }

    async fn ring(&mut self, lane: Lane, sessions: &[SessionId]) {
        if !sessions.is_empty() {
            let rung = self.worker.queue.push_all(lane, sessions).await;
            self.note(rung.as_ref().err());
        }
    }

    /// Notes whether the queue takes rings. One that is only full is there.
    fn note(&mut self, error: Option<&QueueError>) {
        match error {
            Some(QueueError::Full) | None => self.away_since = None,
            Some(_) => {
                self.away_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// A turn that waits for a child may end in many ways; that of the child follows from it, however it did.
    async fn end_orphans(&mut self) -> Result<(), StoreError> {
        let most = i64::try_from(ORPHANS).unwrap_or(i64::MAX);
        let orphans = self.worker.store.orphans(self.orphan.take(), most).await?;
        // A full round goes on with the next ones, whatever became of these.
        if orphans.len() == ORPHANS {
            self.orphan = orphans.last().copied();
        }
        for job in orphans {
            let ended = tokio::time::timeout(ORPHAN_WAIT, self.worker.store.cancel_job(job)).await;
            match ended {
                Ok(Ok((session, cancelled))) => events::cancelled(&self.worker, session, cancelled).await,
                Ok(Err(StoreError::JobNotFound | StoreError::SessionNotFound)) => {}
                Ok(Err(error)) if error.is_outage() => return Err(error),
                Ok(Err(error)) => {
                    tracing::error!(job.id = %job, error = chain(&error), "a child that nobody waits for was not ended");
                }
                Err(_) => tracing::debug!(job.id = %job, "a child that nobody waits for is locked"),
            }
        }
        Ok(())
    }
}
