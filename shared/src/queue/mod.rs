//! The queues: bells that say "this session has mail". What they lose, the store still has.
//!
//! A queue holds the ids of sessions, each at most once: ringing for a session that waits already changes nothing. A worker
//! reads a [`Source`]: it takes a slot first and only then a session, so it never holds what it cannot start.

mod local;
mod redis;
mod slots;
mod source;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use slots::{Slot, Slots};
pub use source::Source;

use crate::domain::{Lane, SessionId};
use crate::outage::{Outage, Part};
use crate::redis::Settings;

/// A session that a worker has taken, with the slot it runs in.
#[derive(Debug)]
pub struct Delivery {
    /// What rang.
    pub session: SessionId,
    /// The slot; free again when this is dropped.
    pub slot: Slot,
}

/// A queue could not be reached, refuses, or is full. The store has the job: the sweeper will ring again.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Redis failed, refuses or does not answer.
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
    outage: Outage,
}

/// Writes to the queues. Where Redis refuses those, pops may still work.
const PUSHES: Part = Part(1);

/// Pops from a queue.
const fn pops(lane: Lane) -> Part {
    match lane {
        Lane::Chat => Part(2),
        Lane::Inject => Part(4),
        Lane::Maintenance => Part(8),
    }
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
        Ok(Self(Arc::new(Inner { local: local::Local::default(), redis, outage: Outage::new("queue") })))
    }

    /// Rings for a session, unless it waits in the queue already.
    pub async fn push(&self, lane: Lane, session: SessionId) -> Result<(), QueueError> {
        self.push_all(lane, &[session]).await
    }

    /// Rings for sessions in this order, except those that wait in the queue already.
    pub async fn push_all(&self, lane: Lane, sessions: &[SessionId]) -> Result<(), QueueError> {
        match &self.0.redis {
            Some(redis) => self.wrote(redis.push(lane, sessions).await),
            None => sessions.iter().try_for_each(|session| self.offer(lane, *session)),
        }
    }

    /// Rings for a session in this process only, unless it waits here already.
    pub fn offer(&self, lane: Lane, session: SessionId) -> Result<(), QueueError> {
        self.0.local.push(lane, session)
    }

    /// How many sessions wait in a queue.
    pub async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        match &self.0.redis {
            Some(redis) => redis.depth(lane).await,
            None => Ok(self.0.local.depth(lane)),
        }
    }

    /// Whether the queues can be reached and take rings.
    pub async fn ping(&self) -> Result<(), QueueError> {
        match &self.0.redis {
            Some(redis) => self.wrote(redis.probe().await),
            None => Ok(()),
        }
    }

    /// Notes how a write went: an outage is logged when it begins and when it ends, not with each ring.
    fn wrote(&self, result: Result<(), QueueError>) -> Result<(), QueueError> {
        self.0.outage.note_part(PUSHES, result.as_ref().copied());
        result
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
