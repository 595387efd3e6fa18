//! `GET /sessions/{id}/events`.

use axum::body::Body;
use roundhouse_shared::bus::Numbering;
use roundhouse_shared::domain::SessionId;
use serde_json::json;

use crate::support::{Api, Events, names, request, within};

async fn follow(api: &Api, session: SessionId, after: Option<&str>) -> Events {
    let mut request = request("GET", &format!("/sessions/{session}/events"));
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    api.stream(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_stream_starts_with_a_snapshot_and_has_everything_after() {
    let api = Api::start().await;
    let session = api.session().await;
    let mut events = follow(&api, session, None).await;
    let snapshot = events.expect("session.snapshot").await;
    assert_eq!((&snapshot.id, &snapshot.data["status"]), (&None, &json!("idle")));
    assert_eq!(snapshot.data["sessionId"], session.to_string());
    api.post(&json!({"message": "m", "sessionId": session})).await;
    api.begin_when_rung(session).await.answer("a").await;
    for name in [
        "job.accepted",
        "chat.user_message",
        "job.started",
        "turn.started",
        "turn.completed",
        "chat.response",
    ] {
        assert!(events.expect(name).await.id.is_some());
    }
}

#[tokio::test]
async fn a_client_that_comes_back_misses_nothing() {
    let api = Api::start().await;
    let session = api.session().await;
    let mut events = follow(&api, session, None).await;
    events.expect("session.snapshot").await;
    api.post(&json!({"message": "m", "sessionId": session})).await;
    let last = events.expect("job.accepted").await.id.unwrap();
    drop(events);
    api.begin_when_rung(session).await.answer("a").await;
    let mut events = follow(&api, session, Some(&last)).await;
    for name in ["chat.user_message", "job.started", "turn.started", "turn.completed", "chat.response"] {
        events.expect(name).await;
    }
    let path = format!("/sessions/{session}/events?lastEventId={last}");
    let mut by_query = api.stream(request("GET", &path).body(Body::empty()).unwrap()).await;
    by_query.expect("chat.user_message").await;
}

#[tokio::test]
async fn a_gap_is_told_once_with_what_is_now() {
    let api = Api::start().await;
    let session = api.session().await;
    let mut events = follow(&api, session, Some("abc-5")).await;
    let resync = events.expect("resync").await;
    assert_eq!((&resync.data["reason"], &resync.data["status"]), (&json!("log_lost"), &json!("idle")));
    api.post(&json!({"message": "m", "sessionId": session})).await;
    events.expect("job.accepted").await;
    events.expect("chat.user_message").await;
    // Something was lost, and a new epoch says so.
    api.bus.publish(session, None, Numbering::Restart, &[]).await.unwrap();
    let resync = events.expect("resync").await;
    assert_eq!(resync.data["status"], "queued");
    assert!(resync.data["lastMessageId"].is_i64());
}

#[tokio::test]
async fn changes_are_told_and_a_soft_stop_ends_the_stream() {
    let api = Api::start().await;
    let session = api.session().await;
    let mut events = follow(&api, session, None).await;
    events.expect("session.snapshot").await;
    api.call("PATCH", &format!("/sessions/{session}"), &json!({"title": "T"})).await;
    events.expect("session.updated").await;
    api.lifecycle.stop();
    assert!(names(&within(events.rest()).await).is_empty());
}
