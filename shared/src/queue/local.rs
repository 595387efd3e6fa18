//! Queues within one process.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, mpsc};

use super::QueueError;
use crate::domain::{Lane, SessionJob};

/// Rings that one queue holds. What does not fit is found by the sweeper.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(super) struct Local {
    chat: Channel,
    inject: Channel,
    maintenance: Channel,
}

#[derive(Debug)]
struct Channel {
    send: mpsc::Sender<SessionJob>,
    receive: Mutex<mpsc::Receiver<SessionJob>>,
    depth: AtomicU64,
}

impl Channel {
    fn new() -> Self {
        let (send, receive) = mpsc::channel(MOST);
        Self { send, receive: Mutex::new(receive), depth: AtomicU64::new(0) }
    }
}

impl Local {
    pub(super) fn new() -> Self {
        Self { chat: Channel::new(), inject: Channel::new(), maintenance: Channel::new() }
    }

    const fn of(&self, lane: Lane) -> &Channel {
        match lane {
            Lane::Chat => &self.chat,
            Lane::Inject => &self.inject,
            Lane::Maintenance => &self.maintenance,
        }
    }

    pub(super) fn push(&self, lane: Lane, job: SessionJob) -> Result<(), QueueError> {
        let channel = self.of(lane);
        channel.depth.fetch_add(1, Ordering::Relaxed);
        channel.send.try_send(job).map_err(|_| {
            channel.depth.fetch_sub(1, Ordering::Relaxed);
            QueueError::Full
        })
    }

    /// The next ring. Safe to drop: nothing is taken then.
    pub(super) async fn pop(&self, lane: Lane) -> SessionJob {
        let channel = self.of(lane);
        // One source reads each queue, so nobody waits for this lock.
        let job = channel.receive.lock().await.recv().await;
        channel.depth.fetch_sub(1, Ordering::Relaxed);
        match job {
            Some(job) => job,
            // The sender lives beside the receiver.
            None => std::future::pending().await,
        }
    }

    pub(super) fn depth(&self, lane: Lane) -> u64 {
        self.of(lane).depth.load(Ordering::Relaxed)
    }
}
