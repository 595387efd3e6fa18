//! Reads the body of one answer, under the clocks that apply to it.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::Failure;
use super::sse::{Events, Kind};

/// How long we wait, once the answer is complete, for usage and `[DONE]` from a server that keeps its stream open.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long we wait for the end of a body behind `[DONE]`. Only a body read to its end gives its connection back,
/// and a new one costs more than this.
const LINGER: Duration = Duration::from_millis(20);

/// The longest body of one answer: no model writes as much, and what it writes is kept until its end.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// One answer's body.
pub(super) struct Reading {
    response: Response,
    idle_timeout: Duration,
    events: Events,
    ended: bool,
    /// When the answer last got further.
    progress: Instant,
    /// Whether anything has come since.
    was_heard: bool,
    /// How much of the body has come.
    bytes: usize,
}

/// What [`Reading::next`] has come to; the data is in [`Reading::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// An event.
    Event,
    /// An event, or a line, that says it is an error.
    ErrorEvent,
    /// A line that belongs to no event.
    Line,
    /// What was left at the end, without the blank line that ends an event. It may be cut off.
    Rest,
    /// The whole body is one JSON document.
    Json,
    /// Nothing more comes.
    End,
}

impl Reading {
    pub(super) fn new(response: Response, idle_timeout: Duration) -> Self {
        let progress = Instant::now();
        let events = Events::default();
        Self { response, idle_timeout, events, ended: false, progress, was_heard: false, bytes: 0 }
    }

    /// Starts the clock anew: what has come was a part of the answer. Comments, pings and empty chunks are not, so a
    /// server that sends nothing else is given up.
    pub(super) fn progressed(&mut self) {
        self.progress = Instant::now();
        self.was_heard = false;
    }

    /// The next item. With `is_complete` the answer has all that matters, and nothing that happens to the
    /// connection is an error any more.
    pub(super) async fn next(&mut self, is_complete: bool) -> Result<Item, Failure> {
        loop {
            if self.events.advance() {
                return Ok(self.item(Item::Event));
            }
            if self.ended {
                return Ok(if self.events.advance_to_end() { self.item(Item::Rest) } else { Item::End });
            }
            match self.piece(is_complete).await? {
                Some(piece) => {
                    self.bytes = self.bytes.saturating_add(piece.len());
                    if self.bytes > MAX_BODY_BYTES {
                        return Err(Failure::last(format!(
                            "the answer is longer than {MAX_BODY_BYTES} bytes"
                        )));
                    }
                    self.events.push(&piece)?;
                }
                None => self.ended = true,
            }
        }
    }

    fn item(&self, event: Item) -> Item {
        match self.events.kind() {
            Kind::Event if event == Item::Rest && self.events.is_document() => Item::Json,
            Kind::Event => event,
            Kind::Error => Item::ErrorEvent,
            Kind::Line => Item::Line,
        }
    }

    pub(super) fn data(&self) -> &[u8] {
        self.events.data()
    }

    /// Reads what is left of the body, if it comes at once.
    pub(super) async fn finish(mut self) {
        if self.ended {
            return;
        }
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        let _ = timeout(LINGER, rest).await;
    }

    async fn piece(&mut self, is_complete: bool) -> Result<Option<Bytes>, Failure> {
        let limit = if is_complete { self.idle_timeout.min(TRAILER_TIMEOUT) } else { self.idle_timeout };
        match timeout_at(self.progress + limit, self.response.chunk()).await {
            Ok(Ok(piece)) => {
                self.was_heard |= piece.is_some();
                Ok(piece)
            }
            _ if is_complete => Ok(None),
            Ok(Err(error)) => Err(Failure::connection("the connection was lost in the answer", error)),
            Err(_) => Err(Failure::no_progress(limit, self.was_heard)),
        }
    }
}
