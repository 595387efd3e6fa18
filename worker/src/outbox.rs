//! A run's events on their way to the bus: in order, merged while a publish is under way, never delayed by a timer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roundhouse_shared::bus::{BusError, Numbering};
use roundhouse_shared::clock::now_ms;
use roundhouse_shared::domain::{EventKind, NewEvent, Scope};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::Worker;
use crate::registry::Run;

/// Events that wait for a bus that is away. Beyond, all of them are lost and listeners are told of a gap.
const MOST: usize = 4_096;
/// Events in one publish.
const BATCH: usize = 128;
/// How long to wait before a bus that is away is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// How long the last events of a run may take.
const CLOSE: Duration = Duration::from_secs(2);

/// Who may publish an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The run that holds the lease, and nobody after it lost it.
    Running,
    /// Anybody: it is written in the store.
    Fact,
}

#[derive(Debug)]
struct Waiting {
    standing: Standing,
    scope: Scope,
    at_ms: i64,
    kind: EventKind,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Something was dropped that listeners will miss.
    broken: bool,
    closing: bool,
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
    pub(crate) fn open(worker: &Arc<Worker>, run: Arc<Run>) -> Self {
        let shared = Arc::new(Shared::default());
        let task = worker.lifecycle.spawn(publish_all(worker.clone(), run, shared.clone()));
        Self { shared, task }
    }

    /// Hands over an event. Never waits.
    pub(crate) fn push(&self, standing: Standing, scope: Scope, kind: EventKind) {
        {
            let mut state = self.shared.state();
            if let Some(last) = state.waiting.back_mut()
                && last.scope == scope
                && merged(&mut last.kind, &kind)
            {
                return;
            }
            if MOST <= state.waiting.len() {
                state.waiting.clear();
                state.broken = true;
            }
            state.waiting.push_back(Waiting { standing, scope, at_ms: now_ms(), kind });
        }
        self.shared.bell.notify_one();
    }

    /// Publishes what is left, within a short deadline.
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

async fn publish_all(worker: Arc<Worker>, run: Arc<Run>, shared: Arc<Shared>) {
    let session = run.lease.session;
    loop {
        let (batch, broken) = {
            let mut state = shared.state();
            let standing = state.waiting.front().map(|first| first.standing);
            let same =
                state.waiting.iter().take(BATCH).take_while(|next| Some(next.standing) == standing).count();
            let batch: Vec<_> = state.waiting.drain(..same).collect();
            if batch.is_empty() && state.closing {
                return;
            }
            (batch, std::mem::take(&mut state.broken))
        };
        let Some(first) = batch.first() else {
            shared.bell.notified().await;
            continue;
        };
        let fence = (first.standing == Standing::Running).then_some(run.lease.token);
        let numbering = if broken { Numbering::Restart } else { Numbering::Continue };
        let events: Vec<_> =
            batch.iter().map(|next| NewEvent::new(session, next.at_ms, next.scope, &next.kind)).collect();
        loop {
            // What a lost run has still to say is not said; what it has written in the store is true.
            if fence.is_some() && !run.is_ours() {
                shared.state().broken |= broken;
                break;
            }
            match worker.bus.publish(session, fence, numbering, &events).await {
                Ok(()) => break,
                Err(BusError::Fenced) => run.lost.cancel(),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }
}
