//! One listener of one session's stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::ring::After;
use super::topics::Topic;
use super::{Bus, BusError, Inner};
use crate::domain::{Event, EventId, SessionId};

/// How long a listener waits for its subscription before it goes on without certainty.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(1);
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
    position: Position,
    ready: VecDeque<Event>,
}

#[derive(Debug, Clone, Copy)]
enum Position {
    /// After this event.
    After(EventId),
    /// Before anything: the stream has no event yet.
    Start,
    /// Not known, because the bus did not answer. Once it does, this is a gap.
    Lost,
}

/// What a log has after a position.
#[derive(Debug)]
pub(super) enum Read {
    /// The events that follow, oldest first; possibly none.
    Events(Vec<Event>),
    /// It does not reach back to there; this is its end now.
    Gap(Option<EventId>),
}

impl Follow {
    pub(super) async fn start(bus: Bus, session: SessionId, after: Option<EventId>) -> Self {
        let topic = bus.topics().join(session);
        let bell = topic.bell.subscribe();
        let mut follow = Self { bus, session, topic, bell, position: Position::Lost, ready: VecDeque::new() };
        // First the subscription, then the place to start at: nothing lies between the two.
        let mut live = follow.topic.live.subscribe();
        let subscribed = tokio::time::timeout(SUBSCRIBE_WAIT, live.wait_for(|live| *live)).await;
        follow.position = match after {
            Some(id) => Position::After(id),
            None if subscribed.is_err() => Position::Lost,
            None => match follow.bus.tail(session).await {
                Ok(Some(tail)) => Position::After(tail),
                Ok(None) => Position::Start,
                Err(_) => Position::Lost,
            },
        };
        follow
    }

    /// The next event. Safe to drop and call again.
    pub async fn next(&mut self) -> Followed {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.position = Position::After(event.id);
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
                Ok(Read::Gap(tail)) => {
                    self.position = tail.map_or(Position::Start, Position::After);
                    return Followed::Gap;
                }
                Err(_) => {
                    let _ = tokio::time::timeout(RETRY, self.bell.changed()).await;
                }
            }
        }
    }

    async fn read(&self) -> Result<Read, BusError> {
        match self.position {
            Position::After(id) => {
                if let After::Events(events) = self.topic.state().ring.after(id) {
                    return Ok(Read::Events(events));
                }
                self.bus.read_after(self.session, id).await
            }
            Position::Start => match self.bus.tail(self.session).await? {
                None => Ok(Read::Events(Vec::new())),
                Some(tail) => self.bus.read_after(self.session, EventId { n: 0, ..tail }).await,
            },
            Position::Lost => Ok(Read::Gap(self.bus.tail(self.session).await?)),
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.bus.topics().leave(self.session, &self.topic);
    }
}

impl Bus {
    /// The newest event's place.
    async fn tail(&self, session: SessionId) -> Result<Option<EventId>, BusError> {
        match &*self.0 {
            Inner::Local(local) => Ok(local.topics.of(session).state().ring.tail()),
            Inner::Redis(redis) => redis.tail(session).await,
        }
    }

    /// What the log has after a place.
    async fn read_after(&self, session: SessionId, after: EventId) -> Result<Read, BusError> {
        match &*self.0 {
            Inner::Local(local) => {
                let topic = local.topics.of(session);
                let state = topic.state();
                Ok(match state.ring.after(after) {
                    After::Events(events) => Read::Events(events),
                    After::Unknown => Read::Gap(state.ring.tail()),
                })
            }
            Inner::Redis(redis) => redis.read_after(session, after).await,
        }
    }
}
