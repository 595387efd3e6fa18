//! The clock of a turn: for how long it has worked. It stands still while the turn waits for a person, a child or a slot,
//! and goes on where an earlier attempt has left it.

use std::sync::Arc;
use std::time::Duration;

use roundhouse_shared::problem::chain;
use roundhouse_shared::store::{Mail, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Worker;
use crate::registry::Run;
use crate::session::persist;

/// How often the time is stored that a turn has worked: what has come since is not counted after a crash. A tenth of the
/// limit, within these bounds.
const KEEP: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// A turn's clock. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TurnClock(watch::Sender<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    /// The time up to the last change.
    worked: Duration,
    /// When it began to run; `None` while it stands still.
    since: Option<Instant>,
}

impl State {
    fn worked(self) -> Duration {
        self.worked + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl TurnClock {
    /// A clock that runs, and goes on where the turn's last attempt was.
    pub(crate) fn start(mail: &Mail) -> Self {
        let worked = Duration::from_millis(u64::try_from(mail.worked_ms).unwrap_or_default());
        Self(watch::Sender::new(State { worked, since: Some(Instant::now()) }))
    }

    /// The turn waits.
    pub(crate) fn stop(&self) {
        self.0.send_modify(|state| *state = State { worked: state.worked(), since: None });
    }

    /// The turn works again.
    pub(crate) fn go_on(&self) {
        self.0.send_modify(|state| {
            state.since.get_or_insert_with(Instant::now);
        });
    }

    /// For how long the turn has worked.
    pub(crate) fn worked(&self) -> Duration {
        self.0.borrow().worked()
    }

    fn worked_ms(&self) -> i64 {
        i64::try_from(self.worked().as_millis()).unwrap_or(i64::MAX)
    }

    /// Waits until the turn has worked for so long.
    pub(crate) async fn reaches(&self, limit: Duration) {
        let mut changes = self.0.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            let left = limit.saturating_sub(state.worked());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = sleep(left), if state.since.is_some() => {}
                // The sender is `self`: it lives.
                _ = changes.changed() => {}
            }
        }
    }

    /// Stores the time again and again, until the guard is dropped. A task of its own: nothing that the turn waits for may
    /// stand between the statements of a transaction.
    pub(crate) fn keep(&self, worker: &Arc<Worker>, run: &Run, mail: &Mail, limit: Duration) -> DropGuard {
        let stop = CancellationToken::new();
        let (clock, store, lease, turn) = (self.clone(), worker.store.clone(), run.lease, mail.turn);
        let (stopped, every) = (stop.clone(), (limit / 10).clamp(KEEP.0, KEEP.1));
        worker.lifecycle.spawn(async move {
            let mut kept = None;
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = sleep(every) => {}
                }
                let worked_ms = clock.worked_ms();
                if kept == Some(worked_ms) {
                    continue;
                }
                tokio::select! {
                    () = stopped.cancelled() => return,
                    done = store.keep_worked(&lease, turn, worked_ms) => match done {
                        Ok(()) => kept = Some(worked_ms),
                        // The next one makes up for it.
                        Err(error) => tracing::debug!(error = chain(&error), "the time of a turn was not stored"),
                    },
                }
            }
        });
        stop.drop_guard()
    }

    /// Stores the time of a turn that is handed back.
    pub(crate) async fn keep_now(&self, worker: &Worker, run: &Run, mail: &Mail) -> Result<(), StoreError> {
        persist(run, || worker.store.keep_worked(&run.lease, mail.turn, self.worked_ms())).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    fn clock(worked: Duration) -> TurnClock {
        TurnClock(watch::Sender::new(State { worked, since: Some(Instant::now()) }))
    }

    #[tokio::test(start_paused = true)]
    async fn it_stands_still_while_the_turn_waits_and_goes_on_where_it_was() {
        let clock = clock(Duration::from_secs(3));
        let begun = Instant::now();
        let mut reached = JoinSet::new();
        reached.spawn({
            let clock = clock.clone();
            async move { clock.reaches(Duration::from_secs(10)).await }
        });
        sleep(Duration::from_secs(2)).await;
        clock.stop();
        sleep(Duration::from_hours(1)).await;
        assert!(reached.try_join_next().is_none());
        assert_eq!(clock.worked(), Duration::from_secs(5));
        clock.go_on();
        clock.go_on();
        reached.join_next().await.unwrap().unwrap();
        assert_eq!(begun.elapsed().as_secs(), 3600 + 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_whose_time_is_up_already_does_not_wait() {
        let begun = Instant::now();
        clock(Duration::from_secs(10)).reaches(Duration::from_secs(10)).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
