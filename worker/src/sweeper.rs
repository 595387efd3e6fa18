//! The sweeper: mail whose ring was lost is rung for again, and work that nobody waits for any more is ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roundhouse_shared::domain::Lane;
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::StoreError;

use crate::{Worker, events};

/// Sessions rung for in one round.
const ROUND: i64 = 500;
/// Children ended in one round.
const ORPHANS: i64 = 50;
/// How long a ring may wait in a queue that has others before it counts as lost.
const BACKLOG: Duration = Duration::from_mins(1);
/// How long the queue may be away before a worker runs what it finds by itself.
const AWAY: Duration = Duration::from_secs(3);

/// Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    let mut tick = tokio::time::interval(worker.settings.sweep.0);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut away_since: Option<Instant> = None;
    loop {
        tick.tick().await;
        if let Err(error) = round(&worker, &mut away_since).await {
            tracing::debug!(error = chain(&error), "could not look for forgotten mail");
        }
        if let Err(error) = end_orphans(&worker).await {
            tracing::debug!(error = chain(&error), "could not look for children that nobody waits for");
        }
    }
}

async fn round(worker: &Arc<Worker>, away_since: &mut Option<Instant>) -> Result<(), StoreError> {
    let sweep = worker.settings.sweep.0;
    // Where rings wait, a session without a run most likely waits for a slot: ringing again would only make more.
    let age = match worker.queue.depth(Lane::Chat).await {
        Ok(0) => {
            *away_since = None;
            sweep
        }
        Ok(_) => {
            *away_since = None;
            sweep.max(BACKLOG)
        }
        Err(_) => {
            let since = *away_since.get_or_insert_with(Instant::now);
            if since.elapsed() < AWAY.min(sweep * 2) {
                return Ok(());
            }
            sweep
        }
    };
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    for job in worker.store.sweep(age_ms, ROUND).await? {
        if away_since.is_none() {
            events::ring(worker, job).await;
        } else if let Err(error) = worker.queue.offer(Lane::Chat, job) {
            tracing::debug!(error = chain(&error), "could not take a forgotten job");
        }
    }
    Ok(())
}

/// A turn that waits for a child may end in many ways; that of the child follows from it, however it did.
async fn end_orphans(worker: &Worker) -> Result<(), StoreError> {
    for job in worker.store.orphans(ORPHANS).await? {
        match worker.store.cancel_job(job).await {
            Ok((session, cancelled)) => events::cancelled(worker, session, cancelled).await,
            Err(StoreError::JobNotFound | StoreError::SessionNotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
