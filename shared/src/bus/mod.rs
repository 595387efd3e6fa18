//! The bus: carries a session's events to whoever listens, replays what a listener missed, and rings processes.
//!
//! Events are numbered where they are appended, without holes within an *epoch*. Where a hole cannot be avoided (the log
//! was lost, an event could not be published, or Redis is another server than the one that gave the numbers, be it the same
//! one restarted) a new epoch begins, and every listener of the old one is told so ([`Followed::Gap`]). Nothing is decided here: the truth is in the store, and notices are only hints.

mod batch;
mod follow;
mod local;
mod redis;
mod ring;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

pub use batch::{Batch, Published};
pub use follow::{Follow, Followed};

use crate::domain::{EventId, InteractionId, JobId, LeaseToken, NewEvent, SessionId, TurnId};
use crate::redis::Settings;

/// How far a session's log reaches back.
const LOG_EVENTS: usize = 2_000;
/// How long a log outlives its last event.
const LOG_KEPT: Duration = Duration::from_hours(1);
/// Notices that a slow receiver may be behind before it has to look at everything.
const NOTICES: usize = 4_096;

/// A ring for processes, with no truth of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notice {
    /// A job has its answer.
    Ended(SessionId, JobId),
    /// A session that runs has new mail.
    Mail(SessionId),
    /// Somebody asked to cancel a turn.
    Cancel(SessionId, TurnId),
    /// A question has its answer.
    Resolved(SessionId, InteractionId),
}

/// Why an event was not published.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The publisher's lease is not the newest one: it has to stop.
    #[error("a newer lease publishes for this session")]
    Fenced,
    /// The bus cannot be reached.
    #[error("the bus is not available")]
    Unavailable(#[source] Option<::redis::RedisError>),
    /// The address is wrong.
    #[error(transparent)]
    BadUrl(#[from] crate::redis::BadUrl),
}

/// How an append treats the numbers before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// It goes on from the last one.
    Continue,
    /// Something before it was lost: a new epoch begins.
    Restart,
}

/// The bus. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bus(Arc<Inner>);

#[derive(Debug)]
enum Inner {
    Local(local::Local),
    Redis(Box<redis::Redis>),
}

impl Bus {
    /// The bus that the settings name: Redis where there is an address, this process otherwise. Needs a runtime: the
    /// subscription's task runs in it for as long as the bus is held.
    ///
    /// # Errors
    /// [`BusError::BadUrl`]. A Redis that does not answer is no error: the bus connects when it does.
    pub fn connect(settings: &Settings) -> Result<Self, BusError> {
        let inner = if settings.url.is_empty() {
            Inner::Local(local::Local::new())
        } else {
            Inner::Redis(Box::new(redis::Redis::connect(settings)?))
        };
        Ok(Self(Arc::new(inner)))
    }

    /// A bus within this process.
    pub fn local() -> Self {
        Self(Arc::new(Inner::Local(local::Local::new())))
    }

    /// Appends events to a session's log and publishes them, in one step. With a `fence`, only where no newer lease has
    /// published for the session.
    pub async fn publish(
        &self,
        session: SessionId,
        fence: Option<LeaseToken>,
        numbering: Numbering,
        events: &[NewEvent],
    ) -> Result<(), BusError> {
        match &*self.0 {
            Inner::Local(local) => local.publish(session, fence, numbering, events),
            Inner::Redis(redis) => redis.publish(session, fence, numbering, events).await,
        }
    }

    /// The same for what may be published more than once, because nobody knows what became of it: it is appended once. Where
    /// events of the same run are missing before it, a new epoch begins.
    pub async fn publish_batch(
        &self,
        session: SessionId,
        batch: &Batch,
        events: &[NewEvent],
    ) -> Result<Published, BusError> {
        match &*self.0 {
            Inner::Local(local) => local.publish_batch(session, batch, events),
            Inner::Redis(redis) => redis.publish_batch(session, batch, events).await,
        }
    }

    /// Follows a session's stream: after the given event, or from now on. Returns once nothing published from now on
    /// can be missed, or after a short deadline where the bus is away; what is missed then shows as a gap.
    pub async fn follow(&self, session: SessionId, after: Option<EventId>) -> Follow {
        Follow::start(self.clone(), session, after).await
    }

    /// Rings every process. Best effort.
    pub async fn notify(&self, notices: &[Notice]) {
        match &*self.0 {
            Inner::Local(local) => local.notify(notices),
            Inner::Redis(redis) => redis.notify(notices).await,
        }
    }

    /// What rings from now on. A receiver that lags has to look at everything it cares for.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        match &*self.0 {
            Inner::Local(local) => local.notices.subscribe(),
            Inner::Redis(redis) => redis.notices.subscribe(),
        }
    }

    /// Whether events can be published and are received.
    pub async fn ping(&self) -> Result<(), BusError> {
        match &*self.0 {
            Inner::Local(_) => Ok(()),
            Inner::Redis(redis) => redis.ping().await,
        }
    }

    fn topics(&self) -> &Arc<topics::Topics> {
        match &*self.0 {
            Inner::Local(local) => &local.topics,
            Inner::Redis(redis) => &redis.topics,
        }
    }
}
