//! The reaper: workers that give no sign of life are declared dead, and their sessions are given on, one by one; never by a
//! session's elapsed time. And what dead workers have left running on this host is ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use roundhouse_engines::process::kill_orphans;
use roundhouse_shared::domain::SessionId;
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::StoreError;

use crate::watch::Watch;
use crate::{Worker, events};

/// Sessions that one query finds.
const PAGE: i64 = 200;

/// How many looks for dead workers there are to one for what they have left.
const LOOKS: u32 = 6;

/// Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    let mut looks = 0_u32;
    let mut watch = Watch::default();
    let mut failing = HashSet::new();
    let mut tick = tokio::time::interval(worker.settings.lease.0 / 6);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // A worker that died may have left something, whether it had a lease or not.
        if looks.is_multiple_of(LOOKS) {
            end_orphans().await;
            if let Err(error) = worker.store.forget_workers().await {
                tracing::debug!(error = chain(&error), "could not delete the rows of dead workers");
            }
        }
        looks = looks.wrapping_add(1);
        if let Err(error) = declare(&worker, &mut watch).await {
            tracing::debug!(error = chain(&error), "could not look for dead workers");
        }
        if let Err(error) = reap(&worker, &mut failing).await {
            tracing::debug!(error = chain(&error), "could not look for sessions of dead workers");
        }
    }
}

/// Declares those dead that give no sign of life.
async fn declare(worker: &Worker, watch: &mut Watch) -> Result<(), StoreError> {
    let asked = Instant::now();
    let found = worker.store.sightings().await?;
    for dead in watch.look(&found, asked, Instant::now()) {
        match worker.store.declare_dead(dead.worker, Some(dead.beats)).await {
            // One that was stopped has given its sessions back, and has just not been heard of since.
            Ok(true) if dead.stopping => {
                tracing::debug!(worker.id = %dead.worker, "a stopped worker is gone");
            }
            Ok(true) => {
                tracing::warn!(worker.id = %dead.worker, "declared a worker dead: it was not renewed in time");
            }
            Ok(false) => {}
            Err(error) => {
                let log = |error: &str| {
                    tracing::warn!(worker.id = %dead.worker, error, "could not declare a worker dead");
                };
                go_on(worker, error, log).await?;
            }
        }
    }
    Ok(())
}

/// Takes the sessions of dead workers. What is locked, or cannot be taken, waits for the next round. `failing` are the sessions
/// that could not be taken in the last round: each is told of once.
async fn reap(worker: &Worker, failing: &mut HashSet<SessionId>) -> Result<(), StoreError> {
    let (mut after, mut failed) = (None, HashSet::new());
    let max_attempts = i64::from(worker.settings.max_attempts);
    loop {
        let page = worker.store.reapable(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for session in page {
            match worker.store.reap(session, max_attempts).await {
                Ok(Some(reaped)) => {
                    end_orphans().await;
                    events::reaped(worker, reaped).await;
                }
                Ok(None) => {}
                Err(error) => {
                    failed.insert(session);
                    let is_new = !failing.contains(&session);
                    let log = |error: &str| {
                        if is_new {
                            tracing::error!(session.id = %session, error, "could not take a lost session");
                        }
                    };
                    go_on(worker, error, log).await?;
                }
            }
        }
    }
    *failing = failed;
    Ok(())
}

/// Decides whether a round goes on after an error: one that concerns a single row is logged, and that row skipped; while the
/// database is away there is no use in asking for the rest.
async fn go_on(worker: &Worker, error: StoreError, log: impl FnOnce(&str)) -> Result<(), StoreError> {
    if error.is_outage() && worker.store.ping().await.is_err() {
        return Err(error);
    }
    log(&chain(&error));
    Ok(())
}

/// Ends what dead workers of this host have left: engines that were kept warm, MCP servers that sessions shared, and what
/// their runs had started.
async fn end_orphans() {
    let killed = tokio::task::spawn_blocking(kill_orphans).await.unwrap_or_default();
    if 0 < killed {
        tracing::warn!(killed, "ended processes that a lost worker had left");
    }
}
