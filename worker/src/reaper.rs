//! The reaper: sessions of workers that died are given on, by a dead lease only, never by elapsed time; and what they have
//! left running on this host is ended.

use std::sync::Arc;

use roundhouse_engines::process::kill_orphans;
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::StoreError;

use crate::{Worker, events};

/// Sessions looked at in one round.
const ROUND: i64 = 200;

/// How many looks for dead leases there are to one for what dead workers have left.
const LOOKS: u32 = 6;

/// Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    let mut looks = 0_u32;
    let mut tick = tokio::time::interval(worker.settings.lease.0 / 6);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // A worker that died may have left something, whether it had a lease or not.
        if looks.is_multiple_of(LOOKS) {
            end_orphans().await;
        }
        looks = looks.wrapping_add(1);
        if let Err(error) = round(&worker).await {
            tracing::debug!(error = chain(&error), "could not look for dead leases");
        }
    }
}

async fn round(worker: &Arc<Worker>) -> Result<(), StoreError> {
    for session in worker.store.expired(ROUND).await? {
        match worker.store.reap(session, i64::from(worker.settings.max_attempts)).await {
            Ok(Some(reaped)) => {
                end_orphans().await;
                events::reaped(worker, reaped).await;
            }
            Ok(None) | Err(StoreError::SessionNotFound) => {}
            Err(error) => return Err(error),
        }
    }
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
