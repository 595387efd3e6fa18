//! The handlers that apalis runs: a ring is looked up in the store, and the row decides.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use apalis::prelude::*;
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use futures::FutureExt;
use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::{Lane, SessionId, SessionStatus};
use roundhouse_shared::problem::chain;
use roundhouse_shared::queue::{Delivery, Slot, Slots};
use roundhouse_shared::store::{Begin, Needs, Step, StoreError};

use crate::{Worker, maintenance};

/// Pokes at once: each is one short read.
const POKES: usize = 64;
/// Cuts and forks at once.
const MAINTENANCE: usize = 4;

/// How often a session is tried to be begun while the store is away. Then the ring is lost, and the sweeper rings again.
const TRIES: u32 = 10;
/// How long to wait between two tries.
const RETRY: Duration = Duration::from_millis(200);

/// Takes rings until the process stops, and returns when all that was started has ended.
pub(crate) async fn run(worker: &Arc<Worker>) {
    let lanes =
        [(Lane::Chat, worker.settings.slots), (Lane::Inject, POKES), (Lane::Maintenance, MAINTENANCE)];
    let mut monitor = Monitor::new();
    for (lane, slots) in lanes {
        let (worker, slots) = (worker.clone(), Slots::new(slots));
        // The source never fails, so this is called once for each queue.
        monitor = monitor.register(move |_| {
            let source = worker.queue.source(lane, slots.clone(), worker.lifecycle.soft().clone());
            let tasks = worker.lifecycle.clone();
            WorkerBuilder::new(format!("{}-{lane}", worker.identity.now().id))
                .backend(source)
                .data((worker.clone(), lane))
                .parallelize(move |task| tasks.spawn(task))
                .build(ring)
        });
    }
    let stop = worker.lifecycle.soft().clone();
    let stopped = async move {
        stop.cancelled().await;
        Ok(())
    };
    if let Err(error) = monitor.run_with_signal(stopped).await {
        tracing::error!(%error, "the queues' monitor failed");
        worker.lifecycle.fail();
    }
}

/// A ring: the slot is held until it returns.
async fn ring(delivery: Delivery, to: Data<(Arc<Worker>, Lane)>) -> Result<(), Infallible> {
    let (worker, lane) = &*to;
    let Delivery { session, slot } = delivery;
    let answered = match lane {
        Lane::Inject => AssertUnwindSafe(poke(worker, session)).catch_unwind().await,
        Lane::Chat | Lane::Maintenance => AssertUnwindSafe(take(worker, session, &slot)).catch_unwind().await,
    };
    drop(slot);
    match answered {
        Ok(Ok(())) => {}
        // The store has the job: the sweeper rings again.
        Ok(Err(error)) => {
            tracing::warn!(session.id = %session, error = chain(&error), "a ring was not answered");
        }
        // The heartbeat finds a lease without a run, and gives the session on.
        Err(_) => tracing::error!(session.id = %session, "a run panicked"),
    }
    Ok(())
}

/// Runs the session, unless it runs already.
async fn take(worker: &Arc<Worker>, session: SessionId, slot: &Slot) -> Result<(), StoreError> {
    let has = |needs: Needs<'_>| match needs {
        Needs::Agent(agent) => worker.engines.contains_key(agent),
        Needs::Engine(engine) => worker.engine_kinds().any(|kind| kind == engine),
    };
    let mut me = worker.identity.now();
    // A repeated try finds the lease that the one before it was granted, where only its reply was lost.
    let (store, mut tries) = (worker.store.once(Step::generate()), 0);
    let begun = loop {
        let begun =
            if me.is_good() { store.begin(session, me.id, has).await } else { Err(StoreError::LeaseLost) };
        match begun {
            // Declared dead: this process goes on as another, and so does the ring.
            Err(StoreError::LeaseLost) => {
                let Some(next) = worker.identity.after(&me, worker.settings.lease.0).await else {
                    return Err(StoreError::LeaseLost);
                };
                me = next;
            }
            Err(error) if error.is_outage() && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(RETRY).await;
            }
            begun => break begun,
        }
    };
    match begun {
        Ok(Begin::Started(lease, mail)) => crate::session::run(worker, slot, &me, lease, mail).await,
        Ok(Begin::Maintenance(lease, work)) => maintenance::run(worker, &me, lease, work).await,
        Ok(Begin::Held(_)) => worker.bus.notify(&[Notice::Mail(session)]).await,
        // One for another worker, whose sweeper takes it.
        Ok(Begin::NotHere) => worker.store.refuse(session).await?,
        // Nothing to do; or a session that was deleted.
        Ok(Begin::NoMail) | Err(StoreError::SessionNotFound) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Tells the run of a session of its new mail. Where nobody runs it, it is a run of its own, which needs a slot.
async fn poke(worker: &Worker, session: SessionId) -> Result<(), StoreError> {
    match worker.store.session(session).await? {
        Some(row) if row.status == SessionStatus::Running => {
            worker.bus.notify(&[Notice::Mail(session)]).await;
        }
        // Where that fails, the sweeper rings.
        Some(_) => drop(worker.queue.push(Lane::Chat, session).await),
        None => {}
    }
    Ok(())
}
