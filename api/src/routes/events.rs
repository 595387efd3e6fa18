//! A session's events, as they happen.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use roundhouse_shared::domain::{EventId, SessionId};
use roundhouse_shared::problem::Problem;
use serde::Deserialize;

use crate::app::Shared;
use crate::extract::{Path, Query};
use crate::openapi::SessionListProblems;
use crate::problem::ApiProblem;
use crate::session_stream::SessionStream;
use crate::sse;

/// Where to go on.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// The id of the last event received, for clients that cannot send the header.
    last_event_id: Option<String>,
}

/// Streams what happens in a session.
///
/// With the id of the last event received, everything since then, or one `resync` where that is no longer known.
/// Without, one `session.snapshot` and then everything from now on.
#[utoipa::path(get, path = "/sessions/{id}/events", tag = "sessions",
    params(
        ("id" = SessionId, Path, description = "The session"),
        EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event received"),
    ),
    responses(
        (status = 200, description = "Events", content((String = "text/event-stream"))),
        SessionListProblems,
    ))]
pub(crate) async fn session_events(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let after = match headers.get("last-event-id") {
        Some(value) => parse("Last-Event-ID", &String::from_utf8_lossy(value.as_bytes()))?,
        None => parse("lastEventId", query.last_event_id.as_deref().unwrap_or_default())?,
    };
    Ok(sse::response(SessionStream::open(app, id, after).await?))
}

/// The event that is meant; none where nothing is said.
fn parse(name: &str, text: &str) -> Result<Option<EventId>, Problem> {
    match text.trim() {
        "" => Ok(None),
        text => {
            let id = text.parse().map_err(|_| Problem::field(name, "is not an event's id").unreadable())?;
            Ok(Some(id))
        }
    }
}
