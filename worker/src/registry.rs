//! What this worker runs: the meeting point of the runs and those who watch over them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roundhouse_shared::domain::{HeldLease, Lease, LeaseToken, SessionId, TurnId, WorkerId};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::incarnation::Incarnation;

/// A run as those see it who watch over it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) lease: Lease,
    /// Ends when the lease is lost: the run must stop, write nothing and publish nothing.
    pub(crate) lost: CancellationToken,
    /// Rings when mail has come for the session.
    pub(crate) mail: Notify,
    /// The turn that somebody asked to cancel.
    pub(crate) cancel: watch::Sender<Option<TurnId>>,
    /// Held while a step of the run is done in the store: one is begun after another.
    pub(crate) steps: tokio::sync::Mutex<()>,
    incarnation: Arc<Incarnation>,
}

impl Run {
    fn new(lease: Lease, incarnation: &Arc<Incarnation>) -> Self {
        Self {
            lease,
            lost: incarnation.token(),
            mail: Notify::new(),
            cancel: watch::Sender::new(None),
            steps: tokio::sync::Mutex::default(),
            incarnation: incarnation.clone(),
        }
    }

    /// Whether the lease is still ours. A process that was frozen finds out here, before anybody has told it.
    pub(crate) fn is_ours(&self) -> bool {
        self.incarnation.is_good() && !self.lost.is_cancelled()
    }
}

/// All runs of this worker, by session.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    runs: Mutex<HashMap<SessionId, Arc<Run>>>,
    /// Leases that the last look found in the store without a run here.
    strays: Mutex<HashMap<SessionId, LeaseToken>>,
    /// The newest cancels that were rung for, the newest last: one may be heard before its run is entered here.
    cancels: Mutex<VecDeque<(SessionId, TurnId)>>,
}

/// How many cancels are remembered. Each is needed only for the moment between a lease and its run.
const CANCELS: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these can panic halfway through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run's place in the registry; leaving it is dropping this.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) run: Arc<Run>,
    registry: Arc<Registry>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut runs = lock(&self.registry.runs);
        let session = self.run.lease.session;
        if runs.get(&session).is_some_and(|run| run.lease.token == self.run.lease.token) {
            runs.remove(&session);
        }
    }
}

impl Registry {
    /// Enters a run with its lease, under the incarnation that has it.
    pub(crate) fn enter(self: &Arc<Self>, lease: Lease, incarnation: &Arc<Incarnation>) -> Registered {
        let run = Arc::new(Run::new(lease, incarnation));
        lock(&self.runs).insert(lease.session, run.clone());
        let heard = lock(&self.cancels).iter().rev().find(|(session, _)| *session == lease.session).copied();
        if let Some((_, turn)) = heard {
            run.cancel.send_replace(Some(turn));
        }
        Registered { run, registry: self.clone() }
    }

    /// Tells the run of a session, now or when it is entered, that a turn is to be cancelled.
    pub(crate) fn cancel(&self, session: SessionId, turn: TurnId) {
        {
            let mut cancels = lock(&self.cancels);
            if CANCELS <= cancels.len() {
                cancels.pop_front();
            }
            cancels.push_back((session, turn));
        }
        if let Some(run) = self.find(session) {
            run.cancel.send_replace(Some(turn));
        }
    }

    /// Tells the run of a session that mail has come.
    pub(crate) fn mail(&self, session: SessionId) {
        if let Some(run) = self.find(session) {
            run.mail.notify_one();
        }
    }

    /// The run of a session.
    fn find(&self, session: SessionId) -> Option<Arc<Run>> {
        lock(&self.runs).get(&session).cloned()
    }

    /// The runs of an incarnation that there are now: a run that begins later is not missed in what the store was asked for
    /// before.
    pub(crate) fn of(&self, worker: WorkerId) -> Vec<Arc<Run>> {
        lock(&self.runs).values().filter(|run| run.lease.worker == worker).cloned().collect()
    }

    /// Takes in which leases the store knows. `before` are the runs that there were when it was asked. Returns leases that
    /// have had no run at two looks: their run broke off.
    pub(crate) fn found(&self, before: &[Arc<Run>], found: &[HeldLease]) -> Vec<HeldLease> {
        let found_of: HashMap<_, _> = found.iter().map(|held| (held.session, held)).collect();
        for run in before {
            match found_of.get(&run.lease.session) {
                Some(held) if held.token == run.lease.token => {
                    if held.cancel_turn.is_some() {
                        run.cancel.send_replace(held.cancel_turn);
                    }
                }
                _ => run.lost.cancel(),
            }
        }
        let mut strays = lock(&self.strays);
        let known = std::mem::take(&mut *strays);
        let mut broken = Vec::new();
        for held in found {
            if self.find(held.session).is_some_and(|run| run.lease.token == held.token) {
                continue;
            }
            if known.get(&held.session) == Some(&held.token) {
                broken.push(*held);
            }
            strays.insert(held.session, held.token);
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn held(lease: Lease, token: i64) -> HeldLease {
        HeldLease {
            session: lease.session,
            token: LeaseToken(token),
            turn: None,
            cancel_turn: None,
            expires_ms: 0,
        }
    }

    fn good() -> Arc<Incarnation> {
        Arc::new(Incarnation::new(WorkerId::generate(), Instant::now() + Duration::from_hours(1)))
    }

    /// The lease of a session that this incarnation has.
    fn lease(me: &Incarnation, token: i64) -> Lease {
        Lease { session: SessionId::generate(), worker: me.id, token: LeaseToken(token) }
    }

    #[test]
    fn a_run_that_a_look_does_not_find_is_lost() {
        let (registry, me) = (Arc::new(Registry::default()), good());
        let (kept, taken, gone) = (lease(&me, 1), lease(&me, 1), lease(&me, 1));
        let runs = [kept, taken, gone].map(|lease| registry.enter(lease, &me));
        registry.found(&registry.of(me.id), &[held(kept, 1), held(taken, 2)]);
        assert_eq!(runs.each_ref().map(|entry| entry.run.is_ours()), [true, false, false]);
        assert!(me.is_good());
    }

    #[test]
    fn a_run_that_began_during_a_look_is_left_alone() {
        let (registry, me) = (Arc::new(Registry::default()), good());
        let before = registry.of(me.id);
        let late = registry.enter(lease(&me, 1), &me);
        registry.found(&before, &[]);
        assert!(late.run.is_ours());
    }

    #[test]
    fn the_runs_of_an_incarnation_end_with_it_and_no_other_does() {
        let (registry, old, new) = (Arc::new(Registry::default()), good(), good());
        let [lost, kept] = [&old, &new].map(|me| registry.enter(lease(me, 1), me));
        old.end();
        let late = registry.enter(lease(&old, 1), &old);
        assert_eq!([&lost, &kept, &late].map(|entry| entry.run.is_ours()), [false, true, false]);
        assert!(lost.run.lost.is_cancelled() && late.run.lost.is_cancelled());
        assert_eq!(registry.of(new.id).len(), 1);
    }

    #[test]
    fn a_cancel_that_is_heard_before_its_run_is_not_lost() {
        let (registry, me) = (Arc::new(Registry::default()), good());
        let (lease, turn) = (lease(&me, 1), TurnId::generate());
        registry.cancel(lease.session, turn);
        let entry = registry.enter(lease, &me);
        assert_eq!(*entry.run.cancel.borrow(), Some(turn));
    }

    #[test]
    fn a_lease_without_a_run_is_broken_from_the_second_look_on() {
        let (registry, me) = (Arc::new(Registry::default()), good());
        let stray = lease(&me, 3);
        assert!(registry.found(&[], &[held(stray, 3)]).is_empty());
        assert_eq!(registry.found(&[], &[held(stray, 3)]).len(), 1);
        // It could not be given on.
        assert_eq!(registry.found(&[], &[held(stray, 3)]).len(), 1);
        drop(registry.enter(stray, &me));
        assert!(registry.found(&[], &[held(stray, 4)]).is_empty());
    }
}
