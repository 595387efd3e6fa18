//! Reads the body of one answer, under the clocks that apply to it.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::time::timeout;

use super::failure::Failure;
use super::sse::Events;

/// How long we wait, once the answer is complete, for usage and `[DONE]` from a server that keeps its stream open.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long we wait for the end of a body behind `[DONE]`. Only a body read to its end gives its connection back,
/// and a new one costs more than this.
const LINGER: Duration = Duration::from_millis(20);

/// One answer's body.
pub(super) struct Reading {
    response: Response,
    idle_timeout: Duration,
    events: Events,
    ended: bool,
}

/// What [`Reading::next`] has come to; the data is in [`Reading::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// An event.
    Event,
    /// An event that says it is an error.
    ErrorEvent,
    /// What was left at the end, without the blank line that ends an event. It may be cut off.
    Rest,
    /// The whole body is one JSON document.
    Json,
    /// Nothing more comes.
    End,
}

impl Reading {
    pub(super) fn new(response: Response, idle_timeout: Duration) -> Self {
        Self { response, idle_timeout, events: Events::default(), ended: false }
    }

    /// The next item. With `is_complete` the answer has all that matters, and nothing that happens to the
    /// connection is an error any more.
    pub(super) async fn next(&mut self, is_complete: bool) -> Result<Item, Failure> {
        loop {
            if self.events.advance() {
                return Ok(if self.events.is_error() { Item::ErrorEvent } else { Item::Event });
            }
            if self.ended {
                return Ok(Item::End);
            }
            if let Some(piece) = self.piece(is_complete).await? {
                self.events.push(&piece)?;
                continue;
            }
            self.ended = true;
            if self.events.advance_to_end() {
                return Ok(if self.events.is_json() { Item::Json } else { Item::Rest });
            }
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
        match timeout(limit, self.response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece),
            _ if is_complete => Ok(None),
            Ok(Err(error)) => Err(Failure::connection("the connection was lost in the answer", error)),
            Err(_) => Err(Failure::no_progress(limit)),
        }
    }
}
