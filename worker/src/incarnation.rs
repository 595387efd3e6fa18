//! What this process is known as: an id in the store, and how long the leases under it are certainly good.
//!
//! A worker that was declared dead, or that may have been, cannot come back under its id: what ran under it ends, and the
//! process registers again under another one and goes on serving.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use roundhouse_shared::domain::WorkerId;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// One registration of this process as a worker.
#[derive(Debug)]
pub(crate) struct Incarnation {
    pub(crate) id: WorkerId,
    over: CancellationToken,
    /// Until when nobody else can have declared it dead. By the monotonic clock, which no step of the wall clock moves. It
    /// stands still while the host is suspended: a worker on a suspended host learns from its first renewal that it was
    /// declared dead, and until then the token of each lease keeps its writes from being stored; a process that has its
    /// database on the same host goes on as if nothing had happened.
    good_until: Mutex<Instant>,
}

impl Incarnation {
    pub(crate) fn new(id: WorkerId, good_until: Instant) -> Self {
        Self { id, over: CancellationToken::new(), good_until: Mutex::new(good_until) }
    }

    /// Whether its leases are certainly good. If not, it is over for good: a process that was frozen finds out here, before
    /// anybody has told it.
    pub(crate) fn is_good(&self) -> bool {
        if self.over.is_cancelled() {
            return false;
        }
        let good = Instant::now() < *self.good_until.lock().unwrap_or_else(PoisonError::into_inner);
        if !good {
            self.over.cancel();
        }
        good
    }

    /// Notes that it was renewed.
    pub(crate) fn renewed(&self, good_until: Instant) {
        *self.good_until.lock().unwrap_or_else(PoisonError::into_inner) = good_until;
    }

    /// Ends it, and with it all runs under it.
    pub(crate) fn end(&self) {
        self.over.cancel();
    }

    /// A token that ends with it.
    pub(crate) fn token(&self) -> CancellationToken {
        self.over.child_token()
    }
}

/// The incarnation that is now.
#[derive(Debug)]
pub(crate) struct Identity {
    now: watch::Sender<Arc<Incarnation>>,
    /// Rings when somebody was told that it is dead: the heartbeat need not wait for its time.
    doubted: Notify,
}

impl Identity {
    pub(crate) fn new(first: Incarnation) -> Self {
        Self { now: watch::Sender::new(Arc::new(first)), doubted: Notify::new() }
    }

    pub(crate) fn now(&self) -> Arc<Incarnation> {
        self.now.borrow().clone()
    }

    /// Goes on as another.
    pub(crate) fn replace(&self, next: Incarnation) {
        self.now.borrow().end();
        self.now.send_replace(Arc::new(next));
    }

    /// Ends an incarnation that the store does not know, and waits for the one that follows, for so long.
    pub(crate) async fn after(&self, old: &Incarnation, patience: Duration) -> Option<Arc<Incarnation>> {
        old.end();
        self.doubted.notify_one();
        let mut now = self.now.subscribe();
        let next = now.wait_for(|now| now.id != old.id);
        tokio::time::timeout(patience, next).await.ok()?.ok().map(|next| next.clone())
    }

    /// Waits until somebody doubts that the incarnation lives.
    pub(crate) async fn doubted(&self) {
        self.doubted.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn an_overdue_incarnation_is_over_for_good() {
        let overdue = Incarnation::new(WorkerId::generate(), Instant::now());
        let token = overdue.token();
        assert!(!overdue.is_good() && token.is_cancelled());
        overdue.renewed(Instant::now() + HOUR);
        assert!(!overdue.is_good());
    }

    #[tokio::test]
    async fn what_was_declared_dead_is_followed_by_another() {
        let identity = Identity::new(Incarnation::new(WorkerId::generate(), Instant::now() + HOUR));
        let old = identity.now();
        assert!(identity.after(&old, Duration::ZERO).await.is_none());
        assert!(!old.is_good());
        let next = WorkerId::generate();
        let heart = async {
            identity.doubted().await;
            identity.replace(Incarnation::new(next, Instant::now() + HOUR));
        };
        let (found, ()) = tokio::join!(identity.after(&old, HOUR), heart);
        assert_eq!(found.map(|now| (now.id, now.is_good())), Some((next, true)));
    }
}
