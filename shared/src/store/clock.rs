//! The clock that decides what has expired: the database's, which a test can shift.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Shifts the time that a store reads from its database. Clones share the shift. No configuration sets it: it is for tests of
/// steps of the database host's clock.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    /// Steps the clock by so many milliseconds: forward, or backward where that is negative.
    pub fn step(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// What the clock shows when the database's shows `now_ms`.
    pub(super) fn read(&self, now_ms: i64) -> i64 {
        now_ms.saturating_add(self.0.load(Ordering::SeqCst))
    }
}

/// Equal clocks show the same time.
impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        self.read(0) == other.read(0)
    }
}

impl Eq for Clock {}
