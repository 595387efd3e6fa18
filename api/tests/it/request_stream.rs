//! `POST /agents/{agent}/chat`, answered as events.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{EventName, SessionId};
use roundhouse_shared::units::Span;
use serde_json::{Value, json};

use crate::support::{Api, Events, Frame, Options, heard, id, names, request, with_json};

async fn accepted(events: &mut Events) -> Frame {
    events.expect("job.accepted").await
}

#[tokio::test]
async fn a_stream_starts_with_the_job_and_ends_with_the_result() {
    let api = Api::start().await;
    let mut events = api.chat_events(&json!({"message": "hello"})).await;
    let first = accepted(&mut events).await;
    assert!(first.id.is_some());
    assert_eq!(first.data["kind"], "chat");
    let turn = api.begin_when_rung(id(&first.data["sessionId"])).await;
    turn.delta("h").await;
    turn.delta("i").await;
    turn.answer("hi").await;
    let rest = events.rest().await;
    assert_eq!(
        names(&rest),
        [
            "chat.user_message",
            "job.started",
            "turn.started",
            "message.delta",
            "message.delta",
            "turn.completed",
            "done"
        ]
    );
    let result = &rest.last().unwrap().data;
    assert_eq!((&result["content"], &result["jobId"]), (&json!("hi"), &first.data["jobId"]));
}

#[tokio::test]
async fn deltas_come_as_they_are_published() {
    let api = Api::start().await;
    let mut events = api.chat_events(&json!({"message": "hello"})).await;
    let first = accepted(&mut events).await;
    let turn = api.begin_when_rung(id(&first.data["sessionId"])).await;
    for name in ["chat.user_message", "job.started", "turn.started"] {
        events.expect(name).await;
    }
    for text in ["a", "line\nbreak\r", "ü"] {
        turn.delta(text).await;
        assert_eq!(events.expect("message.delta").await.data["text"], text);
    }
}

#[tokio::test]
async fn a_stream_has_only_what_belongs_to_its_job() {
    let api = Api::start().await;
    let session = api.session().await;
    let mut one = api.chat_events(&json!({"message": "one", "sessionId": session})).await;
    accepted(&mut one).await;
    let turn = api.begin_when_rung(session).await;
    let mut two = api.chat_events(&json!({"message": "two", "sessionId": session})).await;
    assert_eq!(accepted(&mut two).await.data["kind"], "inject");
    turn.delta("first").await;
    let turn = turn.answer("first").await.expect("there is more mail");
    turn.delta("second").await;
    turn.answer("second").await;
    let texts = |frames: &[Frame]| -> Vec<Value> {
        frames
            .iter()
            .filter(|frame| frame.event == "message.delta")
            .map(|frame| frame.data["text"].clone())
            .collect()
    };
    let (one, two) = (one.rest().await, two.rest().await);
    assert_eq!((texts(&one), &one.last().unwrap().data["content"]), (vec![json!("first")], &json!("first")));
    assert_eq!(
        (texts(&two), &two.last().unwrap().data["content"]),
        (vec![json!("second")], &json!("second"))
    );
    assert_eq!(two.last().unwrap().data["injected"], true);
    assert!(!names(&one).contains(&"chat.response") && !names(&two).contains(&"chat.response"));
}

#[tokio::test]
async fn a_failure_ends_the_stream_with_its_problem() {
    let api = Api::start().await;
    let mut events = api.chat_events(&json!({"message": "hello"})).await;
    let first = accepted(&mut events).await;
    api.begin_when_rung(id(&first.data["sessionId"])).await.fail(Code::EngineFailed, "no credit").await;
    let rest = events.rest().await;
    assert_eq!(names(&rest)[rest.len() - 2..], ["turn.failed", "error"]);
    let problem = &rest.last().unwrap().data;
    assert_eq!((&problem["code"], &problem["status"]), (&json!("ENGINE_FAILED"), &json!(502)));
    assert_eq!(problem["jobId"], first.data["jobId"]);
    assert!(problem["requestId"].is_string());
}

#[tokio::test]
async fn a_cancel_ends_the_stream_with_a_cancelled_result() {
    let api = Api::start().await;
    let mut events = api.chat_events(&json!({"message": "hello"})).await;
    let first = accepted(&mut events).await;
    let session = first.data["sessionId"].as_str().unwrap().to_owned();
    let cancelled = api.call("POST", &format!("/sessions/{session}/cancel"), &json!({})).await.json();
    assert_eq!(cancelled, json!({"cancelled": true, "turnId": null}));
    let rest = events.rest().await;
    assert_eq!(names(&rest), ["chat.user_message", "job.cancelled", "done"]);
    let result = &rest.last().unwrap().data;
    assert_eq!(
        (&result["cancelled"], &result["content"]),
        (&json!(true), &json!("(target session cancelled)"))
    );
}

#[tokio::test]
async fn a_repeated_request_streams_what_is_still_to_come() {
    let api = Api::start().await;
    let again = || {
        let request = request("POST", "/agents/helper/chat").header("idempotency-key", "k");
        with_json(request.header("accept", "text/event-stream"), &json!({"message": "once"}))
    };
    let mut first = api.stream(again()).await;
    let job = accepted(&mut first).await.data["jobId"].clone();
    let session: SessionId = id(&first.expect("chat.user_message").await.data["sessionId"]);
    let turn = api.begin_when_rung(session).await;
    let mut second = api.stream(again()).await;
    let told = accepted(&mut second).await;
    assert_eq!((&told.id, &told.data["jobId"]), (&None, &job));
    turn.delta("d").await;
    turn.answer("one").await;
    let rest = second.rest().await;
    assert_eq!(names(&rest), ["message.delta", "turn.completed", "done"]);
    let third = api.stream(again()).await.rest().await;
    assert_eq!(names(&third), ["job.accepted", "done"]);
    assert_eq!(third[1].data["jobId"], job);
}

#[tokio::test]
async fn an_injection_without_an_answer_in_time_ends_with_an_error() {
    let api = Api::with(Options { injection_timeout: Span::from_millis(50), ..Options::default() }).await;
    let session = api.session().await;
    api.post(&json!({"message": "first", "sessionId": session})).await;
    let _turn = api.begin_when_rung(session).await;
    let rest = api.chat_events(&json!({"message": "second", "sessionId": session})).await.rest().await;
    assert_eq!(names(&rest), ["job.accepted", "chat.user_message", "error"]);
    assert_eq!(rest[2].data["code"], "INJECTION_TIMEOUT");
    assert_eq!(rest[2].data["correlationId"], rest[0].data["jobId"]);
}

#[tokio::test]
async fn a_client_that_wants_so_cancels_by_closing_its_stream() {
    let api = Api::start().await;
    let body = json!({"message": "m", "cancelOnDisconnect": true});
    let mut events = api.chat_events(&body).await;
    let first = accepted(&mut events).await;
    let session = id(&first.data["sessionId"]);
    let follow = api.listen(session).await;
    drop(events);
    heard(follow, EventName::JobCancelled).await;
    let job = api.get(&format!("/jobs/{}", first.data["jobId"].as_str().unwrap())).await.json();
    assert_eq!(job["state"], "cancelled");
}

#[tokio::test]
async fn a_soft_stop_lets_requests_end_and_a_hard_one_does_not() {
    let api = Api::start().await;
    let mut one = api.chat_events(&json!({"message": "one"})).await;
    let mut two = api.chat_events(&json!({"message": "two", "cancelOnDisconnect": true})).await;
    let session = id(&accepted(&mut one).await.data["sessionId"]);
    let job = accepted(&mut two).await.data["jobId"].as_str().unwrap().to_owned();
    api.lifecycle.stop();
    api.begin_when_rung(session).await.answer("one").await;
    assert_eq!(names(&one.rest().await).last(), Some(&"done"));
    api.lifecycle.hard().cancel();
    let rest = two.rest().await;
    assert!(!names(&rest).contains(&"done") && !names(&rest).contains(&"error"));
    // The process went away, not the client.
    assert_eq!(api.get(&format!("/jobs/{job}")).await.json()["state"], "pending");
}
