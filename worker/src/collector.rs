//! The collector: native sessions on this host that nothing refers to any more are deleted. Best effort: what cannot be
//! deleted is tried again, given up in the end, and never a client's business.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use roundhouse_shared::domain::{LeaseToken, SessionId};
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::{Doomed, StoreError};
use tokio::time::timeout;

use crate::Worker;
use crate::maintenance::{engine_of, native};
use crate::opening::end_owned;

/// Native sessions taken on in one round.
const ROUND: i64 = 10;
/// How long the deletion of one may take.
const DELETE_WAIT: Duration = Duration::from_secs(10);
/// When a deletion is tried again, in milliseconds. Longer than a round takes: nobody sets about one that is in work.
const RETRY_MS: i64 = 3 * 60_000;

/// Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    let mut tick = tokio::time::interval(worker.settings.sweep.0);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = round(&worker).await {
            tracing::debug!(error = chain(&error), "could not look for native sessions to delete");
        }
    }
}

async fn round(worker: &Worker) -> Result<(), StoreError> {
    // Those of other engines wait for a worker that has theirs.
    let engines: HashSet<_> = worker.engine_kinds().filter(|engine| engine.keeps_conversations()).collect();
    for engine in engines {
        for doomed in worker.store.take_doomed(&worker.host, engine, ROUND, RETRY_MS).await? {
            let Doomed { native, attempt, last, .. } = &doomed;
            let deleted = match delete(worker, &doomed).await {
                Ok(()) => match worker.store.forget_doomed(&native.native).await {
                    Err(error) if error.is_outage() => return Err(error),
                    forgotten => forgotten.map_err(|error| chain(&error)),
                },
                Err(why) => Err(why),
            };
            // The others are deleted all the same.
            if let Err(why) = deleted {
                let (session, native) = (native.session, &native.native);
                tracing::warn!(session.id = %session, native, why, attempt, last, "a native session was not deleted");
            }
        }
    }
    Ok(())
}

async fn delete(worker: &Worker, doomed: &Doomed) -> Result<(), String> {
    let Doomed { native: known, agent, engine, .. } = doomed;
    let Some(engine) = engine_of(worker, agent, *engine) else {
        return Err(format!("this worker cannot run {engine}"));
    };
    let_go(worker, known.session, &known.native).await;
    // Of a session that is no more, nothing runs on; where it is still there, the cut has ended what had this open.
    let session = worker.store.session(known.session).await.map_err(|error| chain(&error))?;
    if session.is_none() {
        end_owned(known.session, LeaseToken(i64::MAX)).await;
    }
    match timeout(DELETE_WAIT, engine.delete(native(worker, known))).await {
        Ok(deleted) => deleted.map_err(|error| error.to_string()),
        Err(_) => Err(format!("not deleted within {DELETE_WAIT:?}")),
    }
}

/// Ends whatever of this worker still has a native session open, before its files are cut, replaced or deleted.
pub(crate) async fn let_go(worker: &Worker, session: SessionId, native: &str) {
    worker.warm.end_native(worker, session, native).await;
}
