//! One listener of one session's stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::ring::After;
use super::topics::Topic;
use super::{Bus, BusError, Inner};
use crate::domain::{Event, EventId, SessionId};

/// How long a listener waits before it asks an unreachable log again.
const RETRY: Duration = Duration::from_secs(1);

/// What a listener gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// The next event.
    Event(Event),
    /// Events before the next one may be missing: whoever needs to know has to read the store. What follows is whole
    /// again.
    Gap,
}

/// A place in a session's stream, and what comes after it. Whatever is dropped in between is found again by its
/// number: a slow listener costs nobody anything.
#[derive(Debug)]
pub struct Follow {
    bus: Bus,
    session: SessionId,
    topic: Arc<Topic>,
    bell: watch::Receiver<u64>,
    /// After which event; not known while the bus has not answered. Once it has, that is a gap.
    position: Option<EventId>,
    ready: VecDeque<Event>,
}

/// What a log has after a position.
#[derive(Debug)]
pub(super) enum Read {
    /// The events that follow, oldest first; possibly none.
    Events(Vec<Event>),
    /// It does not reach back to there, and can be followed from this place on: its end now, or the start of another
    /// numbering, since that begins where something was lost.
    Gap(EventId),
}

impl Follow {
    pub(super) async fn start(bus: Bus, session: SessionId, after: Option<EventId>) -> Self {
        let topic = bus.topics().join(session);
        let bell = topic.bell.subscribe();
        let mut follow = Self { bus, session, topic, bell, position: after, ready: VecDeque::new() };
        if after.is_none() {
            // What comes after this place is in the log. The subscription only rings, the first time when it begins.
            follow.position = follow.bus.tail(session).await.ok();
        }
        follow
    }

    /// The next event. Safe to drop and call again.
    pub async fn next(&mut self) -> Followed {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.position = Some(event.id);
                return Followed::Event(event);
            }
            // First mark what has rung as seen, then look: a ring in between is seen the next time.
            self.bell.borrow_and_update();
            match self.read().await {
                Ok(Read::Events(events)) if !events.is_empty() => self.ready.extend(events),
                Ok(Read::Events(_)) => {
                    // The sender lives as long as the topic, which we hold.
                    let _ = self.bell.changed().await;
                }
                Ok(Read::Gap(place)) => {
                    self.position = Some(place);
                    return Followed::Gap;
                }
                Err(_) => {
                    let _ = tokio::time::timeout(RETRY, self.bell.changed()).await;
                }
            }
        }
    }

    async fn read(&self) -> Result<Read, BusError> {
        let Some(position) = self.position else {
            return self.bus.tail(self.session).await.map(Read::Gap);
        };
        if let After::Events(events) = self.topic.state().ring.after(position) {
            return Ok(Read::Events(events));
        }
        self.bus.read_after(self.session, position).await
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.bus.topics().leave(self.session, &self.topic);
    }
}

impl Bus {
    /// The place after the newest event.
    async fn tail(&self, session: SessionId) -> Result<EventId, BusError> {
        match &*self.0 {
            Inner::Local(local) => Ok(local.tail(session)),
            Inner::Redis(redis) => redis.tail(session).await,
        }
    }

    /// What the log has after a place.
    async fn read_after(&self, session: SessionId, after: EventId) -> Result<Read, BusError> {
        match &*self.0 {
            Inner::Local(local) => Ok(local.read_after(session, after)),
            Inner::Redis(redis) => redis.read_after(session, after).await,
        }
    }
}
