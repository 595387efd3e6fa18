//! The queues: bells that say "this session has mail". What they lose, the store still has.
//!
//! A queue carries ids only ([`SessionJob`]). A worker reads a [`Source`]: it takes a slot first and only then a job, so it
//! never holds what it cannot start.

mod local;
mod redis;
mod slots;
mod source;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use slots::{Slot, Slots};
pub use source::Source;

use crate::domain::{Lane, SessionJob};
use crate::redis::Settings;

/// A job that a worker has taken, with the slot it runs in.
#[derive(Debug)]
pub struct Delivery {
    /// What rang.
    pub job: SessionJob,
    /// The slot; free again when this is dropped.
    pub slot: Slot,
}

/// A queue could not be reached, or is full. The store has the job: the sweeper will ring again.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Redis failed or does not answer.
    #[error("the queue is not available")]
    Unavailable(#[source] Option<::redis::RedisError>),
    /// This process's queue holds as much as it may.
    #[error("the queue is full")]
    Full,
    /// The address is wrong.
    #[error(transparent)]
    BadUrl(#[from] crate::redis::BadUrl),
}

/// The queues. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// What this process offers itself: all there is in the embedded deployment, a way around an outage in the other.
    local: local::Local,
    redis: Option<redis::Redis>,
}

impl Queue {
    /// The queues that the settings name: in Redis where there is an address, in this process otherwise.
    ///
    /// # Errors
    /// [`QueueError::BadUrl`]. A Redis that does not answer is no error.
    pub fn connect(settings: &Settings) -> Result<Self, QueueError> {
        let redis = match settings.url.as_str() {
            "" => None,
            _ => Some(redis::Redis::connect(settings)?),
        };
        Ok(Self(Arc::new(Inner { local: local::Local::new(), redis })))
    }

    /// Rings for a job.
    pub async fn push(&self, lane: Lane, job: SessionJob) -> Result<(), QueueError> {
        match &self.0.redis {
            Some(redis) => redis.push(lane, job).await,
            None => self.offer(lane, job),
        }
    }

    /// Rings for a job in this process only.
    pub fn offer(&self, lane: Lane, job: SessionJob) -> Result<(), QueueError> {
        self.0.local.push(lane, job)
    }

    /// How many rings wait in a queue.
    pub async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        match &self.0.redis {
            Some(redis) => redis.depth(lane).await,
            None => Ok(self.0.local.depth(lane)),
        }
    }

    /// Whether the queues can be reached.
    pub async fn ping(&self) -> Result<(), QueueError> {
        self.depth(Lane::Chat).await.map(drop)
    }

    /// Whether the queues are shared with other processes.
    pub fn is_shared(&self) -> bool {
        self.0.redis.is_some()
    }

    /// The deliveries of one queue for this process, as many at once as there are slots, until `stop`. To be called once
    /// for each queue.
    pub fn source(&self, lane: Lane, slots: Slots, stop: CancellationToken) -> Source {
        Source::start(self.clone(), lane, slots, stop)
    }
}
