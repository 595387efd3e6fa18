//! T1: a chat's answer, its shape and its events.

use serde_json::json;

use crate::support::{Deployment, Kind, on};

on!(a_chat_is_answered_from_the_context: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_chat_is_answered_from_the_context(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();

    let first = client.chat(None, "X = 5").await;
    assert_eq!(first.status, 200, "{}", first.body);
    let session = first.json()["sessionId"].as_str().unwrap().to_owned();
    let second = deployment.other().chat(Some(&session), "add 1 to x").await.json();

    assert_eq!(first.json()["content"], "X = 5");
    assert_eq!(second["content"], "X = 6");
    assert_eq!(second["contextSource"], "replay");
    assert_eq!(
        client.messages(&session).await,
        ["user: X = 5", "assistant: X = 5", "user: add 1 to x", "assistant: X = 6"]
    );
    deployment.end().await;
}

on!(the_events_of_a_chat_tell_its_answer: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn the_events_of_a_chat_tell_its_answer(kind: Kind) {
    let deployment = Deployment::start(kind).await;

    let events = deployment.client().stream(None, "count to 40").await.all().await;

    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"job.accepted"), "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "done").count(), 1, "{names:?}");
    assert_eq!(names.last(), Some(&"done"), "{names:?}");
    let text: String = events
        .iter()
        .filter(|event| event.name == "message.delta")
        .map(|event| event.data["text"].as_str().unwrap())
        .collect();
    let done = &events.last().unwrap().data;
    assert_eq!(done["content"], json!(text));
    let job = deployment.other().ended(done["jobId"].as_str().unwrap()).await;
    assert_eq!(&job["result"], done);
    deployment.end().await;
}
