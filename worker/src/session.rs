//! The actor: a session is run turn by turn until it has no mail.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use roundhouse_shared::domain::Lease;
use roundhouse_shared::problem::chain;
use roundhouse_shared::queue::Slot;
use roundhouse_shared::store::{Mail, Next, Step, Store, StoreError, TurnOutcome};

use crate::incarnation::Incarnation;
use crate::outbox::Outbox;
use crate::registry::Run;
use crate::turn::{Driven, Turn, drive};
use crate::turn_clock::TurnClock;
use crate::{Worker, events};

/// How long to wait before a store that is away is asked again.
const RETRY: Duration = Duration::from_millis(200);

/// Runs a session under a lease that `me` has, until it has no mail, the lease is lost or the process stops.
pub(crate) async fn run(worker: &Arc<Worker>, slot: &Slot, me: &Arc<Incarnation>, lease: Lease, mail: Mail) {
    let entry = worker.registry.enter(lease, me);
    let outbox = Outbox::open(worker, entry.run.clone(), mail.left_over);
    match turns(worker, &entry.run, &outbox, slot, mail).await {
        Ok(()) => {}
        Err(StoreError::LeaseLost) => {
            entry.run.lost.cancel();
            tracing::warn!(session.id = %lease.session, "lost the lease of a session; its run ends here");
        }
        // The entry goes with this run, and the heartbeat gives the session on.
        Err(error) => tracing::error!(session.id = %lease.session, error = chain(&error), "a run broke off"),
    }
    outbox.close().await;
}

async fn turns(
    worker: &Arc<Worker>,
    run: &Run,
    outbox: &Outbox,
    slot: &Slot,
    first: Mail,
) -> Result<(), StoreError> {
    let lease = &run.lease;
    let mut mail = first;
    loop {
        let clock = TurnClock::start(&mail);
        let end = match Box::pin(drive(Turn { worker, run, outbox, slot, mail: &mail, clock: &clock })).await
        {
            Driven::Ended(end) => end,
            Driven::Lost => return Err(StoreError::LeaseLost),
            Driven::Stopped => return hand_back(worker, run, outbox).await,
        };
        let done = match persist_once(worker, run, Some(outbox), |store| {
            let end = end.clone();
            async move { store.finish(lease, end).await }
        })
        .await
        {
            Ok(done) => done,
            Err(error) => {
                worker.warm.end(worker, lease.session).await;
                return Err(error);
            }
        };
        let next = done.next;
        // A cancel that was granted in the last moment: the engine knows nothing of it.
        let cancelled_late =
            matches!(done.outcome, TurnOutcome::Cancelled) && !matches!(end.outcome, TurnOutcome::Cancelled);
        events::finished(worker, lease.session, outbox, done).await;
        let stops = worker.lifecycle.soft().is_cancelled();
        let following = match next {
            Next::Idle => None,
            // A turn that was ended while it waited has left its slot to others.
            Next::Turn if stops || !has_slot(worker, run, slot).await => None,
            // A cancel may have taken the mail since: then the lease is given back as it is.
            Next::Turn => {
                persist_once(worker, run, None, |store| async move { store.drain(lease).await }).await?
            }
        };
        // What the engine has taken already it must not do, unless that is the turn that follows.
        let jobs: HashSet<_> = following.iter().flat_map(|mail| &mail.jobs).map(|next| next.job).collect();
        if cancelled_late || !end.undelivered.iter().all(|job| jobs.contains(job)) {
            worker.warm.end(worker, lease.session).await;
        }
        mail = match (following, next) {
            (Some(mail), _) => mail,
            (None, Next::Turn) => return hand_back(worker, run, outbox).await,
            (None, Next::Idle) => return Ok(()),
        };
    }
}

/// Whether there is a slot for the next turn, and nothing that speaks against it.
async fn has_slot(worker: &Worker, run: &Run, slot: &Slot) -> bool {
    tokio::select! {
        biased;
        () = run.lost.cancelled() => false,
        () = worker.lifecycle.soft().cancelled() => false,
        () = slot.resume() => true,
    }
}

pub(crate) async fn hand_back(worker: &Worker, run: &Run, outbox: &Outbox) -> Result<(), StoreError> {
    let handed_back =
        persist_once(worker, run, Some(outbox), |store| async move { store.hand_back(&run.lease).await })
            .await?;
    events::taken_back(worker, Some(outbox), handed_back).await;
    Ok(())
}

/// Does something in the store that must not be done twice, again and again while the store is away: every try has the same
/// step, and one step is begun after another. What it leaves to be published stands next in the `outbox`.
pub(crate) async fn persist_once<T, F>(
    worker: &Worker,
    run: &Run,
    outbox: Option<&Outbox>,
    mut act: impl FnMut(Store) -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let _one = run.steps.lock().await;
    let step = Step::generate();
    let step = outbox.map_or(step, |outbox| step.with_entry(outbox.next_entry()));
    persist(run, || act(worker.store.once(step))).await
}

/// Does something in the store under a lease that may be done twice, again and again while the store is away and the lease is ours.
pub(crate) async fn persist<T, F>(run: &Run, mut act: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut told = false;
    loop {
        match act().await {
            Err(error) if error.is_outage() => {
                if !std::mem::replace(&mut told, true) {
                    let error = chain(&error);
                    tracing::warn!(session.id = %run.lease.session, error, "the store is away; trying on");
                }
                tokio::select! {
                    () = run.lost.cancelled() => return Err(StoreError::LeaseLost),
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
            other => return other,
        }
    }
}
