//! The same request again, at once and later, is the same chat.

use futures::future::join_all;
use roundhouse_oracle::RecordedRequest;
use serde_json::{Value, json};

use crate::support::{Answer, COUNTED, Client, Deployment, Events, Kind, LONG, SOON, on, text};

on!(one_key_from_ten_clients_is_one_chat: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn one_key_from_ten_clients_is_one_chat(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = text(&client.chat(None, "X = 1").await.json()["sessionId"]);
    let body = json!({"message": "add 1 to x", "sessionId": session});

    let result = the_same(&ten(&deployment, "once", &body).await);

    assert_eq!(result["content"], "X = 2");
    let expected = ["user: X = 1", "assistant: X = 1", "user: add 1 to x", "assistant: X = 2"];
    assert_eq!(client.messages(&session).await, expected);
    assert_eq!(client.items(&format!("/jobs?sessionId={session}")).await.len(), 2);
    assert_eq!(deployment.oracle.requests().len(), 2);

    // Later, in every form: nothing new comes of it.
    let again = send(deployment.other(), "once", &body).await;
    assert_eq!(again.json(), result);
    let events = stream(deployment.other(), "once", &body).await.all().await;
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["job.accepted", "done"]);
    assert_eq!(events[1].data, result);
    let request = deployment.other().request("POST", "/agents/oracle/chat").header("prefer", "respond-async");
    let later = client.send(request.header("idempotency-key", "once").json(&body)).await;
    assert_eq!((later.status, &later.json()["jobId"]), (202, &result["jobId"]));
    assert_eq!(client.messages(&session).await, expected);
    assert_eq!(deployment.oracle.requests().len(), 2);
    deployment.end().await;
}

on!(one_key_from_ten_clients_creates_one_session: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn one_key_from_ten_clients_creates_one_session(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();

    let result = the_same(&ten(&deployment, "new", &json!({"message": "X = 7"})).await);

    let sessions = client.items("/sessions").await;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert_eq!(sessions[0]["id"], result["sessionId"]);
    assert_eq!(client.items("/jobs").await.len(), 1);
    assert_eq!(client.messages(&text(&result["sessionId"])).await, ["user: X = 7", "assistant: X = 7"]);
    assert_eq!(deployment.oracle.requests().len(), 1);
    deployment.end().await;
}

on!(one_key_on_ten_streams_has_one_answer: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn one_key_on_ten_streams_has_one_answer(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let body = json!({"message": LONG});

    let streams = (0..10).map(|n| stream(client_of(&deployment, n), "streams", &body));
    let read = async |mut events: Events| {
        let first = events.next().await.expect("a first event");
        assert_eq!(first.name, "job.accepted");
        events
    };
    let opened = join_all(join_all(streams).await.into_iter().map(read)).await;
    deployment.oracle.wait_for(RecordedRequest::in_flight, SOON).await.unwrap();
    deployment.oracle.hurry();

    let mut ends = Vec::new();
    for events in join_all(opened.into_iter().map(Events::all)).await {
        let (last, before) = events.split_last().expect("events");
        assert_eq!(last.name, "done");
        assert!(before.iter().all(|event| event.name != "job.accepted" && event.name != "done"));
        ends.push(last.data.clone());
    }
    assert_eq!(ends[0]["content"], COUNTED);
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    assert_eq!(deployment.oracle.requests().len(), 1);
    deployment.end().await;
}

on!(a_key_is_for_one_request: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_key_is_for_one_request(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let first = send(client, "key", &json!({"message": "X = 1"})).await.json();
    let session = text(&first["sessionId"]);

    // Defaults that are left out make no other request.
    let same = json!({"metadata": null, "message": "X = 1"});
    assert_eq!(send(other, "key", &same).await.json(), first);
    for body in [
        json!({"message": "X = 2"}),
        json!({"message": "X = 1", "sessionId": session}),
        json!({"message": "X = 1", "title": "another"}),
    ] {
        assert_eq!(send(other, "key", &body).await.code(), "409 IDEMPOTENCY_CONFLICT", "{body}");
    }
    let request = other.request("POST", "/agents/priced/chat").header("idempotency-key", "key");
    let elsewhere = other.send(request.json(&json!({"message": "X = 1"}))).await;
    assert_eq!(elsewhere.code(), "409 IDEMPOTENCY_CONFLICT");

    // Two requests with one key at the same instant: one of them is it.
    let bodies = [json!({"message": "Y = 1"}), json!({"message": "Y = 2"})];
    let (a, b) = tokio::join!(send(client, "race", &bodies[0]), send(other, "race", &bodies[1]));
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);

    assert_eq!(client.items("/sessions").await.len(), 2);
    assert_eq!(client.items("/jobs").await.len(), 2);
    assert_eq!(client.messages(&session).await, ["user: X = 1", "assistant: X = 1"]);
    deployment.end().await;
}

fn client_of(deployment: &Deployment, n: usize) -> &Client {
    &deployment.clients[n % deployment.clients.len()]
}

async fn ten(deployment: &Deployment, key: &str, body: &Value) -> Vec<Answer> {
    join_all((0..10).map(|n| send(client_of(deployment, n), key, body))).await
}

async fn send(client: &Client, key: &str, body: &Value) -> Answer {
    client.send(client.request("POST", "/agents/oracle/chat").header("idempotency-key", key).json(body)).await
}

async fn stream(client: &Client, key: &str, body: &Value) -> Events {
    client
        .events(client.request("POST", "/agents/oracle/chat").header("idempotency-key", key).json(body))
        .await
}

/// The one result that all have got.
fn the_same(answers: &[Answer]) -> Value {
    for answer in answers {
        assert_eq!((answer.status, &answer.body), (200, &answers[0].body));
    }
    answers[0].json()
}
