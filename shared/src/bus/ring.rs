//! A bounded piece of a session's stream, in memory.

use std::collections::VecDeque;

use crate::domain::{Event, EventId};

/// The newest events of one epoch, contiguous.
#[derive(Debug)]
pub(super) struct Ring {
    epoch: Option<u64>,
    /// The number of the newest event.
    last: u64,
    events: VecDeque<Event>,
    bytes: usize,
    most_events: usize,
    most_bytes: usize,
}

/// What a ring knows of what follows a position.
#[derive(Debug)]
pub(super) enum After {
    /// All of it; possibly nothing.
    Events(Vec<Event>),
    /// It does not reach back to there.
    Unknown,
}

impl Ring {
    pub(super) const fn new(most_events: usize, most_bytes: usize) -> Self {
        Self { epoch: None, last: 0, events: VecDeque::new(), bytes: 0, most_events, most_bytes }
    }

    /// The place after the newest event, if there ever was one.
    pub(super) fn tail(&self) -> Option<EventId> {
        self.epoch.map(|epoch| EventId { epoch, n: self.last })
    }

    /// Begins a numbering of which nothing is known but its last number.
    pub(super) fn restart(&mut self, EventId { epoch, n: last }: EventId) {
        *self = Self { epoch: Some(epoch), last, ..Self::new(self.most_events, self.most_bytes) };
    }

    /// Forgets everything: what comes next may not follow on what was here.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.most_events, self.most_bytes);
    }

    /// Appends an event. One that does not follow on the last begins the ring anew; one that is here already is
    /// ignored.
    pub(super) fn push(&mut self, event: Event) {
        let EventId { epoch, n } = event.id;
        if self.epoch != Some(epoch) || self.last + 1 < n {
            self.restart(EventId { epoch, n: n - 1 });
        } else if n <= self.last {
            return;
        }
        self.last = n;
        self.bytes += event.data.len();
        self.events.push_back(event);
        while self.most_events < self.events.len() || self.most_bytes < self.bytes && 1 < self.events.len() {
            if let Some(dropped) = self.events.pop_front() {
                self.bytes -= dropped.data.len();
            }
        }
    }

    /// What follows a position.
    pub(super) fn after(&self, position: EventId) -> After {
        let first = self.last + 1 - self.events.len() as u64;
        if self.epoch != Some(position.epoch) || self.last < position.n || position.n + 1 < first {
            return After::Unknown;
        }
        let skip = usize::try_from(position.n + 1 - first).unwrap_or(usize::MAX);
        After::Events(self.events.iter().skip(skip).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::EventName;

    fn event(epoch: u64, n: u64) -> Event {
        Event {
            id: EventId { epoch, n },
            name: EventName::MessageDelta,
            job: None,
            turn: None,
            data: "{}".into(),
        }
    }

    fn numbers(ring: &Ring, epoch: u64, n: u64) -> Option<Vec<u64>> {
        match ring.after(EventId { epoch, n }) {
            After::Events(events) => Some(events.iter().map(|event| event.id.n).collect()),
            After::Unknown => None,
        }
    }

    #[test]
    fn a_ring_says_only_what_it_knows_wholly() {
        let mut ring = Ring::new(3, 1000);
        assert_eq!(numbers(&ring, 7, 0), None);
        for n in 1..=5 {
            ring.push(event(7, n));
        }
        ring.push(event(7, 4));
        assert_eq!(numbers(&ring, 7, 2), Some(vec![3, 4, 5]));
        assert_eq!(numbers(&ring, 7, 5), Some(vec![]));
        assert_eq!(numbers(&ring, 7, 1), None);
        assert_eq!(numbers(&ring, 7, 6), None);
        assert_eq!(numbers(&ring, 7, u64::MAX), None);
        assert_eq!(numbers(&ring, 8, 3), None);
        ring.push(event(7, 9));
        assert_eq!(numbers(&ring, 7, 5), None);
        assert_eq!(numbers(&ring, 7, 8), Some(vec![9]));
        ring.push(event(8, 1));
        assert_eq!(numbers(&ring, 7, 9), None);
        assert_eq!(numbers(&ring, 8, 0), Some(vec![1]));
    }

    #[test]
    fn bytes_are_bounded_but_the_newest_event_stays() {
        let mut ring = Ring::new(100, 5);
        for n in 1..=9 {
            ring.push(event(1, n));
        }
        assert_eq!(numbers(&ring, 1, 7), Some(vec![8, 9]));
        assert_eq!(numbers(&ring, 1, 6), None);
    }
}
