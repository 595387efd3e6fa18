//! What this worker runs: the meeting point of the runs and those who watch over them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roundhouse_shared::domain::{HeldLease, Lease, LeaseToken, SessionId, TurnId};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

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
    /// Until when the lease is certainly ours, by this host's clock.
    good_until: Mutex<Instant>,
}

impl Run {
    fn new(lease: Lease, good_until: Instant) -> Self {
        Self {
            lease,
            lost: CancellationToken::new(),
            mail: Notify::new(),
            cancel: watch::Sender::new(None),
            good_until: Mutex::new(good_until),
        }
    }

    /// Whether the lease is still ours. A process that was frozen finds out here, before anybody has told it.
    pub(crate) fn is_ours(&self) -> bool {
        if self.lost.is_cancelled() {
            return false;
        }
        let good = Instant::now() < *lock(&self.good_until);
        if !good {
            self.lost.cancel();
        }
        good
    }
}

/// All runs of this worker, by session.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    runs: Mutex<HashMap<SessionId, Arc<Run>>>,
    /// Leases that the last heartbeat found in the store without a run here.
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
    /// Enters a run whose lease was asked for at `asked` and is good for `lease` from some later moment on.
    pub(crate) fn enter(self: &Arc<Self>, lease: Lease, asked: Instant, good_for: Duration) -> Registered {
        let run = Arc::new(Run::new(lease, asked + good_for));
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

    /// The runs there are now: who is not among them when a renewal comes back was not part of it.
    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        lock(&self.runs).values().cloned().collect()
    }

    /// Takes in what a renewal found. `before` are the runs that there were when it was asked for, at `asked`.
    /// Returns leases that have had no run for two renewals: their run broke off.
    pub(crate) fn renewed(
        &self,
        before: &[Arc<Run>],
        found: &[HeldLease],
        asked: Instant,
        good_for: Duration,
    ) -> Vec<HeldLease> {
        let found_of: HashMap<_, _> = found.iter().map(|held| (held.session, held)).collect();
        for run in before {
            match found_of.get(&run.lease.session) {
                Some(held) if held.token == run.lease.token => {
                    *lock(&run.good_until) = asked + good_for;
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
            } else {
                strays.insert(held.session, held.token);
            }
        }
        broken
    }

    /// Ends the runs whose lease may have run out without anybody telling.
    pub(crate) fn end_overdue(&self) {
        for run in self.all() {
            run.is_ours();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundhouse_shared::domain::WorkerId;

    fn lease(token: i64) -> Lease {
        Lease { session: SessionId::generate(), worker: WorkerId::generate(), token: LeaseToken(token) }
    }

    fn held(lease: Lease, token: i64) -> HeldLease {
        HeldLease {
            session: lease.session,
            token: LeaseToken(token),
            turn: None,
            cancel_turn: None,
            expires_ms: 0,
        }
    }

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_run_that_a_renewal_does_not_find_is_lost() {
        let registry = Arc::new(Registry::default());
        let now = Instant::now();
        let (kept, taken, gone) = (lease(1), lease(1), lease(1));
        let runs = [kept, taken, gone].map(|lease| registry.enter(lease, now, HOUR));
        registry.renewed(&registry.all(), &[held(kept, 1), held(taken, 2)], now, HOUR);
        assert_eq!(runs.each_ref().map(|entry| entry.run.is_ours()), [true, false, false]);
    }

    #[test]
    fn a_run_that_began_during_a_renewal_is_left_alone() {
        let registry = Arc::new(Registry::default());
        let before = registry.all();
        let late = registry.enter(lease(1), Instant::now(), HOUR);
        registry.renewed(&before, &[], Instant::now(), HOUR);
        assert!(late.run.is_ours());
    }

    #[test]
    fn an_overdue_run_is_lost_for_good() {
        let registry = Arc::new(Registry::default());
        let overdue = lease(1);
        let entry = registry.enter(overdue, Instant::now(), Duration::ZERO);
        registry.end_overdue();
        registry.renewed(&registry.all(), &[held(overdue, 1)], Instant::now(), HOUR);
        assert!(!entry.run.is_ours());
    }

    #[test]
    fn a_cancel_that_is_heard_before_its_run_is_not_lost() {
        let registry = Arc::new(Registry::default());
        let (lease, turn) = (lease(1), TurnId::generate());
        registry.cancel(lease.session, turn);
        let entry = registry.enter(lease, Instant::now(), HOUR);
        assert_eq!(*entry.run.cancel.borrow(), Some(turn));
    }

    #[test]
    fn a_lease_without_a_run_is_broken_at_the_second_sight() {
        let registry = Arc::new(Registry::default());
        let (stray, now) = (lease(3), Instant::now());
        assert!(registry.renewed(&[], &[held(stray, 3)], now, HOUR).is_empty());
        assert_eq!(registry.renewed(&[], &[held(stray, 3)], now, HOUR).len(), 1);
        drop(registry.enter(stray, now, HOUR));
        assert!(registry.renewed(&[], &[held(stray, 4)], now, HOUR).is_empty());
    }
}
