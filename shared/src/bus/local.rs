//! The bus within one process: the topics are the log.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::batch::{Batch, Published, Verdict};
use super::follow::Read;
use super::ring::{After, Ring};
use super::topics::{Keep, Topics};
use super::{BusError, LOG_EVENTS, LOG_KEPT, NOTICES, Notice, Numbering};
use crate::domain::{Event, EventId, LeaseToken, NewEvent, SessionId};

/// Most bytes of one session's log.
const LOG_BYTES: usize = 2 << 20;
/// Most sessions whose log is kept while nobody follows them.
const LOGS: usize = 20_000;

#[derive(Debug)]
pub(super) struct Local {
    pub(super) topics: Arc<Topics>,
    pub(super) notices: broadcast::Sender<Notice>,
}

impl Local {
    pub(super) fn new() -> Self {
        let topics = Arc::new(Topics::new(Keep::Log(LOG_KEPT, LOGS), LOG_EVENTS, LOG_BYTES));
        Self { topics, notices: broadcast::Sender::new(NOTICES) }
    }

    pub(super) fn publish(
        &self,
        session: SessionId,
        fence: Option<LeaseToken>,
        numbering: Numbering,
        events: &[NewEvent],
    ) -> Result<(), BusError> {
        let topic = self.topics.of(session);
        {
            let mut state = topic.state();
            if fence.is_some_and(|token| !state.memory.admits(token)) {
                return Err(BusError::Fenced);
            }
            append(&mut state.ring, numbering, events);
        }
        topic.ring_bell();
        Ok(())
    }

    pub(super) fn publish_batch(
        &self,
        session: SessionId,
        batch: &Batch,
        events: &[NewEvent],
    ) -> Result<Published, BusError> {
        let topic = self.topics.of(session);
        {
            let mut state = topic.state();
            let numbering = match state.memory.judge(batch) {
                Verdict::Fenced => return Err(BusError::Fenced),
                Verdict::Not(why) => return Ok(why),
                Verdict::Append { gap: true } => Numbering::Restart,
                Verdict::Append { gap: false } => Numbering::Continue,
            };
            append(&mut state.ring, numbering, events);
        }
        topic.ring_bell();
        Ok(Published::Now)
    }

    pub(super) fn tail(&self, session: SessionId) -> EventId {
        tail(&mut self.topics.of(session).state().ring)
    }

    pub(super) fn read_after(&self, session: SessionId, after: EventId) -> Read {
        let topic = self.topics.of(session);
        let mut state = topic.state();
        if let After::Events(events) = state.ring.after(after) {
            return Read::Events(events);
        }
        let tail = tail(&mut state.ring);
        let start = EventId { n: 0, ..tail };
        match state.ring.after(start) {
            After::Events(_) if tail.epoch != after.epoch => Read::Gap(start),
            _ => Read::Gap(tail),
        }
    }

    pub(super) fn notify(&self, notices: &[Notice]) {
        for notice in notices {
            // Nobody listening is fine.
            let _ = self.notices.send(*notice);
        }
    }
}

fn append(ring: &mut Ring, numbering: Numbering, events: &[NewEvent]) {
    let tail = match numbering {
        Numbering::Continue => tail(ring),
        Numbering::Restart => begin(ring),
    };
    for (n, event) in (tail.n + 1..).zip(events) {
        ring.push(Event {
            id: EventId { epoch: tail.epoch, n },
            name: event.name,
            job: event.job,
            turn: event.turn,
            data: event.data.as_str().into(),
        });
    }
}

/// The place after the newest event. A stream that has no numbering gets one.
fn tail(ring: &mut Ring) -> EventId {
    ring.tail().unwrap_or_else(|| begin(ring))
}

fn begin(ring: &mut Ring) -> EventId {
    let start = EventId { epoch: new_epoch(), n: 0 };
    ring.restart(start);
    start
}

/// A numbering that no other session or process has had.
pub(super) fn new_epoch() -> u64 {
    let (high, low) = uuid::Uuid::now_v7().as_u64_pair();
    // Milliseconds and random bits; within 53 bits, so that Lua and JavaScript keep it exactly.
    (high ^ low.rotate_left(17)) & ((1 << 53) - 1)
}
