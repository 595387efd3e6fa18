//! Between two turns: what an engine that is kept warm does by itself is heard, stored and told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use roundhouse_engines::contract::{EngineEvent, EngineSession};
use roundhouse_shared::domain::{Lease, LeaseToken};
use roundhouse_shared::leftovers;
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::{Step, StoreError, WrittenMessage};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{Worker, translate};

/// How often it is looked whether the engine lives.
const LOOK: Duration = Duration::from_secs(5);
/// How long to wait before a store that is away is asked again.
const RETRY: Duration = Duration::from_millis(200);

/// An engine session that nobody runs a turn in. Dropping this ends it.
pub(crate) struct Listening {
    stop: DropGuard,
    token: Arc<AtomicI64>,
    task: JoinHandle<Heard>,
}

/// An engine session that was listened to.
pub(crate) struct Heard {
    pub(crate) engine: Box<dyn EngineSession>,
    /// What it said last, and what is the next turn's to store.
    pub(crate) untold: Option<EngineEvent>,
}

impl Listening {
    /// Listens to an engine session that was used last under this lease.
    pub(crate) fn begin(worker: &Arc<Worker>, lease: Lease, engine: Box<dyn EngineSession>) -> Self {
        let (stop, token) = (CancellationToken::new(), Arc::new(AtomicI64::new(lease.token.0)));
        let task = worker.lifecycle.spawn(listen(worker.clone(), lease, token.clone(), engine, stop.clone()));
        Self { stop: stop.drop_guard(), token, task }
    }

    /// The session was run under this lease since, and its native session is as it was.
    pub(crate) fn outlives(&self, token: LeaseToken) {
        self.token.store(token.0, Ordering::Release);
    }

    /// Whether the engine has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Gives the engine session back.
    pub(crate) async fn end(self) -> Option<Heard> {
        drop(self.stop);
        self.task.await.ok()
    }
}

async fn listen(
    worker: Arc<Worker>,
    lease: Lease,
    token: Arc<AtomicI64>,
    mut engine: Box<dyn EngineSession>,
    stop: CancellationToken,
) -> Heard {
    while engine.is_warm() {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            event = engine.next() => event,
            () = tokio::time::sleep(LOOK) => continue,
        };
        let EngineEvent::Autonomous(message) = event else { continue };
        let written = translate::written(message.clone(), engine.native_session());
        let lease = Lease { token: LeaseToken(token.load(Ordering::Acquire)), ..lease };
        if !tell(&worker, &lease, &written, &stop).await {
            // The rest waits where it is.
            stop.cancelled().await;
            return Heard { engine, untold: Some(EngineEvent::Autonomous(message)) };
        }
    }
    Heard { engine, untold: None }
}

/// Stores a message that nobody asked for. Whether it could be: with work waiting or under way it is for that to tell.
async fn tell(worker: &Worker, lease: &Lease, written: &WrittenMessage, stop: &CancellationToken) -> bool {
    let store = worker.store.once(Step::generate());
    let stored = loop {
        match store.autonomous_between(lease, written).await {
            Err(error) if error.is_outage() => tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(RETRY) => {}
            },
            other => break other,
        }
    };
    let stored = match stored {
        Ok((_, stored)) => stored,
        Err(StoreError::LeaseLost) => return false,
        Err(error) => {
            tracing::error!(session.id = %lease.session, error = chain(&error), "a message could not be stored");
            return false;
        }
    };
    leftovers::publish(&worker.store, &worker.bus, stored.as_ref()).await;
    true
}
