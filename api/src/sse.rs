//! Server-sent events: how an event is written, and what both kinds of streams say after a gap.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderName;
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use futures::stream::unfold;
use roundhouse_shared::clock::{now_ms, rfc3339};
use roundhouse_shared::domain::{Event, EventName, Interaction, Session, SessionId, Snapshot};
use roundhouse_shared::store::Store;
use serde::Serialize;

/// How often a silent stream says that it is alive.
const COMMENTS: Duration = Duration::from_secs(15);
/// Keeps nginx from collecting events.
const UNBUFFERED: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

/// Why a client has to start afresh: the log does not reach back to where it was.
pub(crate) const LOG_LOST: &str = "log_lost";

/// Why a client has to start afresh: it named an event id that is not one of ours.
pub(crate) const UNKNOWN_EVENT: &str = "unknown_event";

/// Something that gives frames until it ends. Whoever goes away drops it.
pub(crate) trait Source: Send + 'static {
    /// The next frame; `None`: the end.
    fn next(&mut self) -> impl Future<Output = Option<Frame>> + Send;
}

/// The response that streams a source.
pub(crate) fn response(source: impl Source) -> Response {
    let stream = Sse::new(frames(source)).keep_alive(KeepAlive::new().interval(COMMENTS));
    ([UNBUFFERED], stream).into_response()
}

fn frames(source: impl Source) -> impl Stream<Item = Result<Frame, Infallible>> + Send {
    unfold(source, |mut source| async move { source.next().await.map(|frame| (Ok(frame), source)) })
}

/// An event of the bus, with its number.
pub(crate) fn frame(event: &Event) -> Frame {
    Frame::default().id(event.id.to_string()).event(event.name.as_str()).data(&*event.data)
}

/// An event of this stream only: it has no number.
pub(crate) fn own_frame<T: Serialize>(name: EventName, data: &T) -> Frame {
    // Plain data of ours with string keys always serialises.
    let data = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    Frame::default().event(name.as_str()).data(data)
}

/// What a client has to know before it follows a session's stream.
pub(crate) fn snapshot(session: &Session, open: Vec<Interaction>, reason: Option<&'static str>) -> Snapshot {
    Snapshot {
        session_id: session.id,
        at: rfc3339(now_ms()),
        status: session.status,
        last_message_id: session.last_message,
        active_turn_id: session.active_turn,
        interactions: open.into_iter().map(Into::into).collect(),
        reason,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blind {
    session_id: SessionId,
    at: String,
    reason: &'static str,
}

/// The event that says that others may be missing. With the store away it says no more than that.
pub(crate) async fn resync(store: &Store, session: SessionId) -> Frame {
    if let Ok(Some(row)) = store.session(session).await
        && let Ok(open) = store.open_interactions(session).await
    {
        return own_frame(EventName::Resync, &snapshot(&row, open, Some(LOG_LOST)));
    }
    let blind = Blind { session_id: session, at: rfc3339(now_ms()), reason: LOG_LOST };
    own_frame(EventName::Resync, &blind)
}
