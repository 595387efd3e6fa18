//! A provider that fails: tried again where that helps, told where it does not, and the session goes on.

use roundhouse_oracle::Oracle;
use serde_json::{Value, json};

use crate::support::{Deployment, Events, Kind, LONG, SseEvent, newest, on, text};

on!(a_failure_that_passes_is_tried_again: Embedded, Distributed);
async fn a_failure_that_passes_is_tried_again(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    for status in [500, 429] {
        let message = format!("fail {status} once, X = {status}");

        let events = client.stream(None, &message).await.all().await;

        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
        let at = names.iter().position(|name| *name == "engine.retry").expect("engine.retry");
        assert_eq!((names[at - 1], names[at + 1]), ("turn.started", "message.delta"), "{names:?}");
        let retry = &events[at].data;
        assert_eq!((&retry["attempt"], &retry["status"]), (&json!(1), &json!(status)));
        assert!(retry["delayMs"].as_u64().unwrap() > 0, "{retry}");
        assert_eq!(events.last().unwrap().data["content"], format!("X = {status}"));
        let asked = deployment.oracle.requests().iter().filter(|request| newest(request) == message).count();
        assert_eq!(asked, 2);
    }
    deployment.end().await;
}

on!(a_failure_that_stays_is_told_and_the_session_goes_on: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_failure_that_stays_is_told_and_the_session_goes_on(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let chat = "/agents/brittle/chat";
    let session = text(&client.post(chat, &json!({"message": "X = 5"})).await.json()["sessionId"]);

    // As JSON.
    let body = json!({"message": "fail 500", "sessionId": session});
    let failed = client.post(chat, &body).await;
    assert_eq!(failed.code(), "502 ENGINE_FAILED");
    let problem = failed.problem();
    let job = deployment.other().get(&format!("/jobs/{}", text(&problem["jobId"]))).await.json();
    assert_eq!((&job["state"], &job["problem"]["code"]), (&json!("failed"), &json!("ENGINE_FAILED")));
    assert_eq!((&job["problem"]["detail"], &job["result"]), (&problem["detail"], &Value::Null));
    assert_eq!(deployment.oracle.requests().len(), 3, "tried twice");
    assert_eq!(deployment.other().session(&session).await["status"], "error");

    // As events; what cannot pass is not tried again.
    let body = json!({"message": "fail 401", "sessionId": session});
    let events = client.events(client.request("POST", chat).json(&body)).await;
    let names = is_failure(events, &session).await;
    assert!(!names.iter().any(|name| name == "engine.retry"), "{names:?}");
    assert_eq!(deployment.oracle.requests().len(), 4);

    let next = client.post(chat, &json!({"message": "add 1 to x", "sessionId": session})).await.json();
    assert_eq!(next["content"], "X = 6");
    assert_eq!(client.session(&session).await["status"], "idle");
    let expected =
        ["user: X = 5", "assistant: X = 5", "user: fail 500", "user: fail 401", "user: add 1 to x"];
    assert_eq!(client.messages(&session).await[..5], expected);
    deployment.end().await;
}

on!(a_provider_that_is_gone_is_told: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_provider_that_is_gone_is_told(kind: Kind) {
    let mut deployment = Deployment::start(kind).await;
    let client = deployment.client().clone();
    let mut broken = client.stream(None, LONG).await;
    let session = text(&broken.until("message.delta").await.data["sessionId"]);

    let gone = std::mem::replace(&mut deployment.oracle, Oracle::start().await.unwrap());
    gone.stop().await;

    // In the middle of its answer: nothing that was said can be taken back, so nothing is tried again.
    let names = is_failure(broken, &session).await;
    assert!(!names.iter().any(|name| name == "engine.retry"), "{names:?}");
    // Before its answer.
    let refused = client.post("/agents/brittle/chat", &json!({"message": "X = 1"})).await;
    assert_eq!(refused.code(), "502 ENGINE_FAILED");
    let failed = client.items("/sessions?status=error").await;
    assert_eq!(failed.len(), 2);
    deployment.end().await;
}

/// The stream ends with one `error`, as the turn and its job did. Returns the names of the events.
async fn is_failure(events: Events, session: &str) -> Vec<String> {
    let events: Vec<SseEvent> = events.all().await;
    let names: Vec<_> = events.iter().map(|event| event.name.clone()).collect();
    assert_eq!(names[names.len() - 2..], ["turn.failed", "error"]);
    assert_eq!(names.iter().filter(|name| *name == "error" || *name == "done").count(), 1, "{names:?}");
    let [.., failed, error] = &events[..] else { panic!("two events: {names:?}") };
    assert_eq!(failed.data["problem"]["code"], "ENGINE_FAILED");
    assert_eq!((&error.data["code"], &error.data["status"]), (&json!("ENGINE_FAILED"), &json!(502)));
    assert_eq!(error.data["detail"], failed.data["problem"]["detail"]);
    assert_eq!(error.data["sessionId"], session);
    names
}
