//! The stream of a whole session: a snapshot or a replay, then everything that happens, until the process stops.

use axum::response::sse::Event as Frame;
use roundhouse_shared::bus::{Follow, Followed};
use roundhouse_shared::domain::{EventId, EventName, SessionId};
use roundhouse_shared::store::StoreError;

use crate::app::Shared;
use crate::problem::ApiProblem;
use crate::sse;

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// From now on, after a `session.snapshot`.
    Now,
    /// After this event.
    After(EventId),
    /// The client named an event id that is not one of ours: from now on, after a `resync`.
    Unknown,
}

impl Start {
    /// Reads the id of the last event that a client received; blank is none. An `EventSource` sends its id again with each
    /// reconnect and cannot recover from an error status, so an unreadable id is no error.
    pub(crate) fn parse(text: &str) -> Self {
        match text.trim() {
            "" => Self::Now,
            text => text.parse().map_or(Self::Unknown, Self::After),
        }
    }
}

/// One listener's stream.
pub(crate) struct SessionStream {
    app: Shared,
    session: SessionId,
    follow: Follow,
    first: Option<Frame>,
}

impl SessionStream {
    /// Opens a stream at `start`.
    pub(crate) async fn open(app: Shared, session: SessionId, start: Start) -> Result<Self, ApiProblem> {
        let after = match start {
            Start::After(last) => Some(last),
            Start::Now | Start::Unknown => None,
        };
        // The position before the row: an event in between is sent twice rather than never.
        let follow = app.bus.follow(session, after).await;
        let row = app.store.session(session).await?.ok_or(StoreError::SessionNotFound)?;
        let (name, reason) = match start {
            Start::After(_) => return Ok(Self { app, session, follow, first: None }),
            Start::Now => (EventName::SessionSnapshot, None),
            Start::Unknown => (EventName::Resync, Some(sse::UNKNOWN_EVENT)),
        };
        let open = app.store.open_interactions(session).await?;
        let first = Some(sse::own_frame(name, &sse::snapshot(&row, open, reason)));
        Ok(Self { app, session, follow, first })
    }
}

impl sse::Source for SessionStream {
    async fn next(&mut self) -> Option<Frame> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        tokio::select! {
            biased;
            () = self.app.lifecycle.soft().cancelled() => None,
            followed = self.follow.next() => Some(match followed {
                Followed::Event(event) => sse::frame(&event),
                Followed::Gap => sse::resync(&self.app.store, self.session).await,
            }),
        }
    }
}
