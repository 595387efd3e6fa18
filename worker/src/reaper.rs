//! The reaper: sessions of workers that died are given on. By a dead lease only, never by elapsed time.

use std::sync::Arc;

use roundhouse_shared::problem::chain;
use roundhouse_shared::store::StoreError;

use crate::{Worker, events};

/// Sessions looked at in one round.
const ROUND: i64 = 200;

/// Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    let mut tick = tokio::time::interval(worker.settings.lease.0 / 6);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = round(&worker).await {
            tracing::debug!(error = chain(&error), "could not look for dead leases");
        }
    }
}

async fn round(worker: &Arc<Worker>) -> Result<(), StoreError> {
    for session in worker.store.expired(ROUND).await? {
        match worker.store.reap(session, i64::from(worker.settings.max_attempts)).await {
            Ok(Some(reaped)) => events::reaped(worker, reaped).await,
            Ok(None) | Err(StoreError::SessionNotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
