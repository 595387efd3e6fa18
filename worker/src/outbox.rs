//! A run's events on their way to the bus: in order, numbered, merged while a publish is under way, never delayed by a timer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roundhouse_shared::bus::{Batch, BusError, Published};
use roundhouse_shared::clock::now_ms;
use roundhouse_shared::domain::{EventKind, NewEvent, Scope, Stored};
use roundhouse_shared::leftovers;
use roundhouse_shared::problem::chain;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Worker;
use crate::registry::Run;

/// Events that wait for a bus that is away. Beyond, those of them are lost that the store does not keep, and listeners are
/// told of a gap.
const MOST: usize = 4_096;
/// Ends of turns that wait for a bus that is away. Beyond, they are published from the store once the run is over.
const MOST_STORED: usize = 256;
/// Events in one publish.
const BATCH: usize = 128;
/// How long to wait before a bus that is away is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// How long the last events of a run may take.
const CLOSE: Duration = Duration::from_secs(2);
/// How long the run before this one may take to publish what it left. Then what is missing of it counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Who may publish an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The run that holds the lease, and nobody after it lost it.
    Running,
    /// Anybody: it is written in the store.
    Fact,
}

#[derive(Debug)]
struct Told {
    standing: Standing,
    scope: Scope,
    at_ms: i64,
    kind: EventKind,
}

#[derive(Debug)]
enum What {
    /// An event of the run.
    Told(Told),
    /// What a transaction of the run has left.
    Stored(Stored),
}

/// An entry of the run, with its number.
#[derive(Debug)]
struct Waiting {
    entry: i64,
    what: What,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// The number of the last entry. What is dropped leaves a hole, which the bus notices.
    last: i64,
    closing: bool,
}

impl State {
    /// Drops what the store does not keep.
    fn make_room(&mut self) {
        if MOST <= self.waiting.len() {
            self.waiting.retain(|waiting| matches!(waiting.what, What::Stored(_)));
            let excess = self.waiting.len().saturating_sub(MOST_STORED);
            self.waiting.drain(..excess);
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    bell: Notify,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a run's events and publishes them, one batch after another.
#[derive(Debug)]
pub(crate) struct Outbox {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Outbox {
    /// `left_over` is the newest of what others had stored to be published when the run began: it comes first.
    pub(crate) fn open(worker: &Arc<Worker>, run: Arc<Run>, left_over: Option<i64>) -> Self {
        let shared = Arc::new(Shared::default());
        let task = publish_all(worker.clone(), run, shared.clone(), left_over);
        Self { shared, task: worker.lifecycle.spawn(task) }
    }

    /// Hands over an event. Never waits.
    pub(crate) fn push(&self, standing: Standing, scope: Scope, kind: EventKind) {
        {
            let mut state = self.shared.state();
            if let Some(Waiting { what: What::Told(last), .. }) = state.waiting.back_mut()
                && last.scope == scope
                && merged(&mut last.kind, &kind)
            {
                return;
            }
            state.make_room();
            state.last += 1;
            let (entry, at_ms) = (state.last, now_ms());
            let what = What::Told(Told { standing, scope, at_ms, kind });
            state.waiting.push_back(Waiting { entry, what });
        }
        self.shared.bell.notify_one();
    }

    /// The number that the next entry will have.
    pub(crate) fn next_entry(&self) -> i64 {
        self.shared.state().last + 1
    }

    /// Hands over what a transaction of the run has left. Never waits.
    pub(crate) fn push_stored(&self, stored: Option<Stored>) {
        let Some(stored) = stored else { return };
        {
            let mut state = self.shared.state();
            state.make_room();
            let entry = stored.place.map_or(state.last + 1, |place| place.entry);
            state.last = state.last.max(entry);
            state.waiting.push_back(Waiting { entry, what: What::Stored(stored) });
        }
        self.shared.bell.notify_one();
    }

    /// Publishes what is left, within a short deadline. Beyond, what the store keeps is published from there.
    pub(crate) async fn close(mut self) {
        self.shared.state().closing = true;
        self.shared.bell.notify_one();
        if tokio::time::timeout(CLOSE, &mut self.task).await.is_err() {
            tracing::debug!("the bus is away; the last events of a run were not published");
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Joins a piece of text to the piece before it.
fn merged(last: &mut EventKind, next: &EventKind) -> bool {
    match (last, next) {
        (EventKind::MessageDelta { text }, EventKind::MessageDelta { text: more })
        | (EventKind::ThinkingDelta { text }, EventKind::ThinkingDelta { text: more }) => {
            text.push_str(more);
            true
        }
        _ => false,
    }
}

/// What is published in one step.
enum Next {
    Told { batch: Vec<Told>, first: i64, standing: Standing },
    Stored(Stored),
}

/// Takes what is to be published next: what the store keeps alone, else events of one standing whose numbers have no hole.
fn take_next(state: &mut State) -> Option<Next> {
    let Waiting { entry: first, what } = state.waiting.pop_front()?;
    let told = match what {
        What::Stored(stored) => return Some(Next::Stored(stored)),
        What::Told(told) => told,
    };
    let standing = told.standing;
    let mut batch = vec![told];
    let mut next = first + 1;
    while batch.len() < BATCH {
        let goes_on = state.waiting.front().is_some_and(|waiting| {
            waiting.entry == next && matches!(&waiting.what, What::Told(told) if told.standing == standing)
        });
        match if goes_on { state.waiting.pop_front() } else { None } {
            Some(Waiting { what: What::Told(told), .. }) => batch.push(told),
            _ => break,
        }
        next += 1;
    }
    Some(Next::Told { batch, first, standing })
}

async fn publish_all(worker: Arc<Worker>, run: Arc<Run>, shared: Arc<Shared>, left_over: Option<i64>) {
    if left_over.is_some_and(|id| !worker.published.has(id)) {
        publish_left_over(&worker, &run).await;
    }
    loop {
        let next = {
            let mut state = shared.state();
            let next = take_next(&mut state);
            if next.is_none() && state.closing {
                return;
            }
            next
        };
        match next {
            None => shared.bell.notified().await,
            Some(Next::Stored(stored)) => {
                while leftovers::put(&worker.bus, &stored, false).await.is_err() {
                    tokio::time::sleep(RETRY).await;
                }
                worker.published.add(stored.id);
            }
            Some(Next::Told { batch, first, standing }) => {
                publish_told(&worker, &run, &batch, first, standing).await;
            }
        }
    }
}

async fn publish_told(worker: &Worker, run: &Run, told: &[Told], first: i64, standing: Standing) {
    let session = run.lease.session;
    let events: Vec<_> =
        told.iter().map(|next| NewEvent::new(session, next.at_ms, next.scope, &next.kind)).collect();
    let last = i64::try_from(events.len()).map_or(first, |events| first + events - 1);
    let fenced = standing == Standing::Running;
    let batch = Batch::Run { token: run.lease.token, first, last, fenced };
    loop {
        // What a lost run has still to say is not said; what it has written in the store is true.
        if fenced && !run.is_ours() {
            return;
        }
        match worker.bus.publish_batch(session, &batch, &events).await {
            Ok(_) => return,
            Err(BusError::Fenced) => run.lost.cancel(),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Publishes what others have left of the session, before this run says anything. The run before may be about to do so
/// itself, after its other events: it is given a moment.
async fn publish_left_over(worker: &Worker, run: &Run) {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = match worker.store.left_over_of(run.lease.session, run.lease.token).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(error = chain(&error), "could not look for what was left of a session");
                return;
            }
        };
        let mut waits = false;
        for stored in found {
            if worker.published.has(stored.id) {
                continue;
            }
            match leftovers::put(&worker.bus, &stored, Instant::now() < until).await {
                Ok(Published::Now | Published::Before) => worker.published.add(stored.id),
                Ok(Published::Early) => {
                    waits = true;
                    tokio::time::sleep(LOOK).await;
                }
                Err(_) => {
                    waits = true;
                    tokio::time::sleep(RETRY).await;
                }
            }
            if waits {
                break;
            }
        }
        if !waits {
            return;
        }
    }
}
