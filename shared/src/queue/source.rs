//! Where a worker's jobs come from: our own apalis [`Backend`] over either kind of queue.
//!
//! The storages that come with apalis own a job's state and double or drop long jobs; here the row in the store decides,
//! and apalis only executes.

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll};

use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::layers::Identity;
use apalis_core::task::Task;
use apalis_core::task::task_id::RandomId;
use apalis_core::worker::context::WorkerContext;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Delivery, Queue, Slots, pops};
use crate::domain::Lane;

/// The deliveries of one queue. Never fails: an error of the backend would end apalis' worker.
pub struct Source {
    deliveries: mpsc::Receiver<Delivery>,
    _fetch: AbortOnDropHandle<()>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Source {
    pub(super) fn start(queue: Queue, lane: Lane, slots: Slots, stop: CancellationToken) -> Self {
        // One place: a delivery is handed over, not kept.
        let (send, deliveries) = mpsc::channel(1);
        let fetch = async move {
            tokio::select! {
                () = fetch(queue, lane, slots, send) => {}
                () = stop.cancelled() => {}
            }
        };
        #[expect(clippy::disallowed_methods, reason = "owned by the handle: it ends with the source")]
        let fetch = tokio::spawn(fetch);
        Self { deliveries, _fetch: AbortOnDropHandle::new(fetch) }
    }
}

/// A slot, then a session, then the two together.
async fn fetch(queue: Queue, lane: Lane, slots: Slots, send: mpsc::Sender<Delivery>) {
    let mut rings = pin!(match &queue.0.redis {
        Some(redis) => redis.rings(lane).left_stream(),
        None => stream::pending().right_stream(),
    });
    loop {
        let next = async {
            loop {
                tokio::select! {
                    biased;
                    session = queue.0.local.pop(lane) => return session,
                    // Where an offer comes first, this wait goes on, and what it brings then waits for the next slot: lost
                    // it would be only later.
                    Some(ring) = rings.next() => {
                        queue.0.outage.note_part(pops(lane), ring.as_ref().map(drop));
                        if let Ok(Some(session)) = ring {
                            return session;
                        }
                    }
                }
            }
        };
        let Some((session, slot)) = slots.with(next).await else { return };
        if send.send(Delivery { session, slot }).await.is_err() {
            return;
        }
    }
}

impl Backend for Source {
    type Task = Task<Delivery>;
    type Error = Infallible;

    fn poll_ready(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.deliveries.poll_recv(cx).map(|delivery| delivery.map(|delivery| Ok(Task::new(delivery))))
    }

    fn poll_close(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for Source {
    type Args = Delivery;
    type Id = RandomId;
    type Kind = Ephemeral;
    type Config = ();
    type Layer = Identity;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> Identity {
        Identity::new()
    }
}
