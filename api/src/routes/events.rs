//! A session's events, as they happen.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use roundhouse_shared::domain::SessionId;
use serde::Deserialize;

use crate::app::Shared;
use crate::extract::{Path, Query};
use crate::openapi::SessionListProblems;
use crate::problem::ApiProblem;
use crate::session_stream::{SessionStream, Start};
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
/// With the id of the last event received: every event since then. Where that id is not known (another epoch, no longer
/// in the log, not an event id): one `resync`, then every event from now on. Without an id: one `session.snapshot`, then
/// every event from now on.
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
    let last = match headers.get("last-event-id") {
        Some(value) => Start::parse(&String::from_utf8_lossy(value.as_bytes())),
        None => Start::parse(query.last_event_id.as_deref().unwrap_or_default()),
    };
    Ok(sse::response(SessionStream::open(app, id, last).await?))
}
