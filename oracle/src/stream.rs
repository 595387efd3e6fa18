//! The body of a streamed answer: one piece for an ordinary reply, paced pieces for a slow one.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{log::InFlight, usage::Usage, wire::Events};

/// All events in one piece, so that an instant answer costs one write.
pub(crate) fn at_once(events: Events, mut in_flight: InFlight, usage: Usage) -> Body {
    let mut all = events.head;
    all.extend(events.deltas);
    all.push_str(&events.tail);
    in_flight.end(200, Some(usage));
    Body::from(all)
}

/// The first delta comes at once, the end after `spread`, the others evenly between. Stopping cuts the answer off.
pub(crate) fn spread(
    events: Events,
    spread: Duration,
    in_flight: InFlight,
    usage: Usage,
    pace: Pace,
) -> Body {
    let count = u32::try_from(events.deltas.len()).unwrap_or(u32::MAX).max(1);
    let gap = spread / count;
    let mut pieces = VecDeque::with_capacity(events.deltas.len() + 1);
    let mut first = events.head;
    for (at, delta) in events.deltas.into_iter().enumerate() {
        if at == 0 {
            first.push_str(&delta);
        } else {
            pieces.push_back(delta);
        }
    }
    pieces.push_front(first);
    pieces.push_back(events.tail);
    let paced = Paced { pieces, gap, wait: Duration::ZERO, in_flight, usage, pace };
    Body::from_stream(stream::unfold(paced, Paced::next))
}

struct Paced {
    pieces: VecDeque<String>,
    gap: Duration,
    wait: Duration,
    /// Dropped with the body when the client hangs up.
    in_flight: InFlight,
    usage: Usage,
    pace: Pace,
}

impl Paced {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Paced)> {
        let piece = self.pieces.pop_front()?;
        if !self.pace.pause(self.wait).await {
            return None;
        }
        self.wait = self.gap;
        if self.pieces.is_empty() {
            self.in_flight.end(200, Some(self.usage));
        }
        Some((Ok(Bytes::from(piece)), self))
    }
}

/// The pauses of one answer.
#[derive(Debug)]
pub(crate) struct Pace {
    stop: CancellationToken,
    hurry: watch::Receiver<()>,
    hurried: bool,
}

impl Pace {
    pub(crate) fn new(stop: CancellationToken, hurry: watch::Receiver<()>) -> Pace {
        Pace { stop, hurry, hurried: false }
    }

    /// Waits, unless the answer was hurried; `false` if the oracle was stopped meanwhile.
    pub(crate) async fn pause(&mut self, time: Duration) -> bool {
        if time.is_zero() || self.hurried {
            return true;
        }
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(time) => true,
            _ = self.hurry.changed() => {
                self.hurried = true;
                true
            }
        }
    }
}
