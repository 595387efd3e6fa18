//! Who waits how long: clients that go away, and waits that end before the answer is there.

use roundhouse_oracle::RecordedRequest;
use serde_json::json;

use crate::support::{COUNTED, Deployment, Kind, LONG, MOMENT, Options, SOON, newest, on, text};

on!(an_answer_that_nobody_waits_for_is_kept: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn an_answer_that_nobody_waits_for_is_kept(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());

    leave(&deployment, "slow 3600 say json", false).await;
    let (_, stream) = client.at_work().await;
    drop(stream);
    tokio::time::sleep(MOMENT).await;
    deployment.oracle.hurry();

    let mut kept = Vec::new();
    for job in other.items("/jobs").await {
        let job = other.ended(&text(&job["id"])).await;
        assert_eq!(job["state"], "succeeded");
        kept.push(text(&job["result"]["content"]));
    }
    assert_eq!(kept, [COUNTED, "json"]);
    assert!(deployment.oracle.requests().iter().all(|request| !request.client_gone));
    deployment.end().await;
}

on!(a_job_is_cancelled_with_its_client_where_that_was_asked: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_job_is_cancelled_with_its_client_where_that_was_asked(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();

    leave(&deployment, "slow 3600 say json", true).await;
    let body = json!({"message": LONG, "cancelOnDisconnect": true});
    let mut stream = client.ask_events(body).await;
    stream.until("message.delta").await;
    drop(stream);

    for job in deployment.other().items("/jobs").await {
        let job = deployment.other().ended(&text(&job["id"])).await;
        assert_eq!(job["state"], "cancelled");
        assert_eq!(job["result"]["content"], "(target session cancelled)");
    }
    for asked in ["slow 3600 say json", LONG] {
        let gone = |request: &RecordedRequest| request.client_gone && newest(request) == asked;
        deployment.oracle.wait_for(gone, SOON).await.expect("the provider's connection to be closed");
    }
    // Whoever stays gets its answer.
    let stays = client.ask(json!({"message": "say hi", "cancelOnDisconnect": true})).await;
    assert_eq!(stays.json()["content"], "hi");
    deployment.end().await;
}

/// Sends a chat and goes away in the middle of its turn.
async fn leave(deployment: &Deployment, message: &str, cancel: bool) {
    let running = deployment.oracle.wait_for(|request| newest(request) == message, SOON);
    let body = json!({"message": message, "cancelOnDisconnect": cancel});
    tokio::select! {
        answer = deployment.client().ask(body) => panic!("it was answered: {}", answer.body),
        request = running => assert!(request.unwrap().in_flight()),
    }
}

on!(a_wait_that_ends_early_says_where_the_answer_will_be: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_wait_that_ends_early_says_where_the_answer_will_be(kind: Kind) {
    let env = ["ROUNDHOUSE_INJECTION_TIMEOUT", "ROUNDHOUSE_JSON_WAIT_TIMEOUT"];
    let env = env.map(|name| (name, "1s".to_owned())).to_vec();
    let deployment = Deployment::with(kind, Options { env, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());

    let direct = client.chat(None, LONG).await;
    assert_eq!(direct.status, 202, "{}", direct.body);
    let direct = direct.json();
    assert_eq!(direct["correlationId"], direct["jobId"]);
    let session = text(&direct["sessionId"]);
    let (injected, events) = tokio::join!(other.chat(Some(&session), "say json"), async {
        client.stream(Some(&session), "say events").await.all().await
    });

    assert_eq!(injected.code(), "504 INJECTION_TIMEOUT");
    let injected = injected.problem();
    assert_eq!(injected["sessionId"], session);
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["job.accepted", "chat.user_message", "error"]);
    let streamed = &events[2].data;
    assert_eq!(streamed["code"], "INJECTION_TIMEOUT");
    assert_eq!(streamed["status"], 504);

    deployment.oracle.hurry();
    let mut said = vec![text(&other.ended(&text(&direct["jobId"])).await["result"]["content"])];
    for problem in [&injected, streamed] {
        assert_eq!(problem["correlationId"], problem["jobId"]);
        let job = other.ended(&text(&problem["correlationId"])).await;
        assert_eq!(job["state"], "succeeded");
        said.push(text(&job["result"]["content"]));
    }
    said[1..].sort();
    assert_eq!(said[0], COUNTED);
    assert_eq!(said[1], said[2], "one turn for both");
    let messages = client.messages(&session).await;
    let answers: Vec<_> = messages.iter().filter(|message| message.starts_with("assistant")).collect();
    assert_eq!(answers.len(), 2, "each message is answered once: {messages:?}");
    deployment.end().await;
}
