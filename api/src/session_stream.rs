//! The stream of a whole session: a snapshot or a replay, then everything that happens, until the process stops.

use axum::response::sse::Event as Frame;
use roundhouse_shared::bus::{Follow, Followed};
use roundhouse_shared::domain::{EventId, EventName, SessionId};
use roundhouse_shared::store::StoreError;

use crate::app::Shared;
use crate::problem::ApiProblem;
use crate::sse;

/// One listener's stream.
pub(crate) struct SessionStream {
    app: Shared,
    session: SessionId,
    follow: Follow,
    first: Option<Frame>,
}

impl SessionStream {
    /// From after the given event, or from now on after a snapshot.
    pub(crate) async fn open(
        app: Shared,
        session: SessionId,
        after: Option<EventId>,
    ) -> Result<Self, ApiProblem> {
        // First the place, then the row: what happens in between is told twice rather than never.
        let follow = app.bus.follow(session, after).await;
        let row = app.store.session(session).await?.ok_or(StoreError::SessionNotFound)?;
        let mut first = None;
        if after.is_none() {
            let open = app.store.open_interactions(session).await?;
            first = Some(sse::own_frame(EventName::SessionSnapshot, &sse::snapshot(&row, open, None)));
        }
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
