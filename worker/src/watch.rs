//! Which workers give no sign of life: decided by their counters and this host's monotonic clock, not by comparing the times of
//! two clocks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use roundhouse_shared::domain::WorkerId;
use roundhouse_shared::store::Sighting;

/// What a reaper remembers of the workers that it has seen.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: HashMap<WorkerId, Seen>,
}

/// A worker's counter, and since when it has not changed.
#[derive(Debug, Clone, Copy)]
struct Seen {
    beats: i64,
    since: Instant,
}

impl Watch {
    /// Takes in what a look has found that was asked for at `asked` and has come back at `got`. Returns the workers that
    /// are to be declared dead:
    ///
    /// - whose time is over by the database's clock, and which were not renewed while two renewals of a living worker should
    ///   have come. After a step of that clock, or when the host wakes up, everybody's time seems over; who
    ///   lives shows it within a third of the lease.
    /// - who was not renewed for a whole lease, whatever that clock says: it may have been set back.
    pub(crate) fn look(&mut self, found: &[Sighting], asked: Instant, got: Instant) -> Vec<Sighting> {
        let seen = |now: &Sighting| match self.seen.get(&now.worker) {
            Some(seen) if seen.beats == now.beats => *seen,
            _ => Seen { beats: now.beats, since: got },
        };
        let seen: HashMap<_, _> = found.iter().map(|now| (now.worker, seen(now))).collect();
        let is_dead = |now: &&Sighting| {
            // From the end of the first look to the begin of this one: certainly not longer than it was.
            let unchanged = asked.saturating_duration_since(seen[&now.worker].since);
            let lease = Duration::from_millis(now.lease_ms.try_into().unwrap_or(0));
            lease <= unchanged || (now.expired && lease * 2 / 3 <= unchanged)
        };
        let dead = found.iter().filter(is_dead).copied().collect();
        self.seen = seen;
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    struct Case {
        watch: Watch,
        start: Instant,
        worker: WorkerId,
    }

    impl Case {
        fn new() -> Self {
            Self { watch: Watch::default(), start: Instant::now(), worker: WorkerId::generate() }
        }

        /// Whether the worker is declared dead at this second.
        fn dead(&mut self, second: u64, beats: i64, expired: bool) -> bool {
            let at = self.start + Duration::from_secs(second);
            let lease_ms = i64::try_from(LEASE.as_millis()).unwrap();
            let found = Sighting { worker: self.worker, beats, lease_ms, expired, stopping: false };
            !self.watch.look(&[found], at, at).is_empty()
        }
    }

    #[test]
    fn a_worker_whose_beats_have_stopped_is_dead_as_soon_as_its_time_is_over() {
        let mut case = Case::new();
        assert!(!case.dead(0, 7, false));
        assert!(!case.dead(5, 8, false));
        assert!(!case.dead(30, 8, false));
        assert!(case.dead(34, 8, true));
    }

    #[test]
    fn a_clock_that_is_set_forward_ends_no_worker_that_beats() {
        let mut case = Case::new();
        assert!(!case.dead(0, 1, false));
        // The step.
        for second in 1..200 {
            let beats = 1 + i64::try_from(second / 10).unwrap();
            assert!(!case.dead(second, beats, true), "at {second}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_dead_worker() {
        let mut case = Case::new();
        assert!(!case.dead(0, 1, false));
        assert!(!case.dead(29, 1, false));
        assert!(case.dead(30, 1, false));
    }

    #[test]
    fn a_new_reaper_looks_for_a_while_before_it_believes_the_clock() {
        let mut case = Case::new();
        assert!(!case.dead(0, 1, true));
        assert!(!case.dead(19, 1, true));
        assert!(case.dead(20, 1, true));
    }

    #[test]
    fn the_time_of_a_look_itself_is_no_time_without_a_sign() {
        let mut case = Case::new();
        let lease_ms = i64::try_from(LEASE.as_millis()).unwrap();
        let found = Sighting { worker: case.worker, beats: 1, lease_ms, expired: true, stopping: false };
        let later = case.start + LEASE * 2;
        assert!(case.watch.look(&[found], case.start, later).is_empty());
        assert!(case.watch.look(&[found], later, later + LEASE * 2).is_empty());
    }
}
