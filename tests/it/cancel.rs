//! Cancel: what runs ends, what waits never starts, and whoever asks gets one answer.

use serde_json::{Value, json};

use crate::support::{COUNTED, Client, Deployment, Kind, Options, SOON, on, text, until};

const CANCELLED: &str = "(target session cancelled)";

on!(a_cancel_in_mid_text_keeps_what_was_said: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_cancel_in_mid_text_keeps_what_was_said(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = text(&client.chat(None, "X = 5").await.json()["sessionId"]);
    let mut events = client.stream(Some(&session), "slow 60 count to 2000").await;
    let turn = events.until("message.delta").await.data["turnId"].clone();
    events.until("message.delta").await;

    let cancelled = cancel_session(other, &session).await;

    assert_eq!(cancelled, json!({"cancelled": true, "turnId": turn}));
    let rest = events.all().await;
    let done = rest.last().unwrap();
    assert_eq!((done.name.as_str(), &done.data["content"]), ("done", &json!(CANCELLED)));
    assert_eq!((&done.data["cancelled"], &done.data["turnId"]), (&json!(true), &turn));
    let closed = |request: &roundhouse_oracle::RecordedRequest| request.client_gone;
    deployment.oracle.wait_for(closed, SOON).await.expect("the provider's connection to be closed");

    let kept = other.items(&format!("/sessions/{session}/messages")).await.pop().unwrap();
    assert_eq!((&kept["role"], &kept["cancelled"]), (&json!("assistant"), &json!(true)));
    assert_eq!((&kept["turnId"], &kept["id"]), (&turn, &done.data["messageId"]));
    let completed = &rest.iter().find(|event| event.name == "message.completed").unwrap().data;
    assert_eq!(completed["message"], kept);
    let said = text(&kept["content"]);
    assert!(said.starts_with("1 2") && !said.ends_with("2000"), "{said}");
    assert_eq!(client.session(&session).await["status"], "idle");

    assert_eq!(other.chat(Some(&session), "what is x").await.json()["content"], "X = 5");
    let last = deployment.oracle.requests().pop().unwrap().json();
    let remembered = last["messages"].as_array().unwrap().iter().any(|message| message["content"] == *said);
    assert!(remembered, "what is displayed is what the agent remembers: {last}");
    deployment.end().await;
}

on!(an_idle_session_is_left_alone: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn an_idle_session_is_left_alone(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let first = client.chat(None, "X = 5").await.json();
    let (session, job) = (text(&first["sessionId"]), text(&first["jobId"]));

    let nothing = json!({"cancelled": false, "turnId": null});
    assert_eq!(cancel_session(other, &session).await, nothing);
    assert_eq!(cancel_job(other, &job).await, nothing);

    let next = client.chat(Some(&session), "add 1 to x").await.json();
    assert_eq!((&next["content"], &next["cancelled"]), (&json!("X = 6"), &json!(false)));
    assert_eq!(client.ended(&job).await["result"], first);
    deployment.end().await;
}

on!(what_no_worker_has_taken_never_reaches_the_model: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn what_no_worker_has_taken_never_reaches_the_model(kind: Kind) {
    let options = Options { workers: 1, slots: 1, ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (_, first) = client.at_work().await;
    let mut waiting = client.stream(None, "say by the session").await;
    let accepted = waiting.until("chat.user_message").await.data;
    let session = text(&accepted["sessionId"]);
    let alone = client.chat_async(None, "say by the job").await;
    assert_eq!(client.session(&session).await["status"], "queued");

    assert_eq!(cancel_session(other, &session).await, json!({"cancelled": true, "turnId": null}));
    assert_eq!(cancel_job(other, &text(&alone["jobId"])).await, json!({"cancelled": true, "turnId": null}));

    // While the only slot is still taken.
    let events = waiting.all().await;
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["job.cancelled", "done"]);
    let result = &events[1].data;
    assert_eq!((&result["content"], &result["cancelled"]), (&json!(CANCELLED), &json!(true)));
    assert_eq!((&result["iterations"], &result["turnId"]), (&json!(0), &Value::Null));
    let job = client.ended(&text(&alone["jobId"])).await;
    assert_eq!((&job["state"], &job["attempt"]), (&json!("cancelled"), &json!(0)));
    deployment.oracle.hurry();
    assert_eq!(first.all().await.last().unwrap().data["content"], COUNTED);

    assert_eq!(client.chat(Some(&session), "say next").await.json()["content"], "next");
    let messages = client.items(&format!("/sessions/{session}/messages")).await;
    let marked: Vec<_> = messages.iter().map(|message| message["cancelled"] == true).collect();
    assert_eq!(marked, [true, false, false]);
    let seen =
        deployment.oracle.requests().iter().map(|request| request.json().to_string()).collect::<String>();
    assert!(!seen.contains("by the"), "{seen}");
    deployment.end().await;
}

on!(a_running_job_is_cancelled_once: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_running_job_is_cancelled_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, events) = client.at_work().await;
    let job = text(&client.items(&format!("/jobs?sessionId={session}")).await[0]["id"]);
    let injected = client.chat_async(Some(&session), "say still here").await;

    // A job's cancel is for its turn alone: what waits behind it stays.
    let (a, b) = tokio::join!(cancel_job(client, &job), cancel_job(other, &job));

    let done = events.all().await.pop().unwrap();
    assert_eq!((done.name.as_str(), &done.data["cancelled"]), ("done", &json!(true)));
    // The second may come when the turn has already ended by the first.
    assert!([&a, &b].iter().any(|cancel| cancel["turnId"] == done.data["turnId"]), "{a} {b}");
    assert_eq!(cancel_job(other, &job).await["cancelled"], false);
    assert_eq!(client.ended(&job).await["result"], done.data);
    assert_eq!(client.ended(&text(&injected["jobId"])).await["result"]["content"], "still here");
    let answers = client.items(&format!("/sessions/{session}/messages")).await;
    assert_eq!(answers.iter().filter(|message| message["cancelled"] == true).count(), 1);
    deployment.end().await;
}

/// Rounds of a cancel against the end of the turn.
const ROUNDS: usize = 60;

on!(a_cancel_and_the_end_of_a_turn_have_one_outcome: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_cancel_and_the_end_of_a_turn_have_one_outcome(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let session = text(&deployment.client().chat(None, "X = 0").await.json()["sessionId"]);
    let mut taken = 0;
    for round in 1..=ROUNDS {
        let done = race(&deployment, &session, round).await;
        if !done["turnId"].is_null() {
            taken = round;
        }
    }
    // What a turn has taken is remembered, answered or not; the rest never reached the model.
    let next = deployment.client().chat(Some(&session), "what is x").await.json();
    assert!(text(&next["content"]).ends_with(&format!("X = {taken}")), "{next}");
    deployment.end().await;
}

/// One chat, awaited as JSON and as events, and its cancel at one of the moments of its life. Returns the result.
async fn race(deployment: &Deployment, session: &str, round: usize) -> Value {
    let (client, other) = (deployment.client(), deployment.other());
    let body = json!({"message": format!("X = {round}"), "sessionId": session});
    let request = |client: &Client| {
        let request = client.request("POST", "/agents/oracle/chat");
        request.header("idempotency-key", format!("round {round}").replace(' ', "-")).json(&body)
    };
    let mut events = client.events(request(client)).await;
    for _ in 0..=round % 6 {
        let event = events.next().await.expect("an event");
        assert_ne!(event.name, "done", "round {round}");
    }
    let (cancel, json) = tokio::join!(cancel_session(other, session), other.send(request(other)));
    let rest = events.all().await;

    let ends: Vec<_> = rest.iter().filter(|event| ["done", "error"].contains(&event.name.as_str())).collect();
    assert_eq!(ends.len(), 1, "round {round}: {rest:?}");
    let done = &ends[0].data;
    assert_eq!(json.json(), *done, "round {round}");
    let job = other.ended(&text(&done["jobId"])).await;
    assert_eq!(job["result"], *done, "round {round}");
    assert_eq!(done["cancelled"], cancel["cancelled"], "round {round}: who was told so is right");
    assert_eq!(job["state"], if done["cancelled"] == true { "cancelled" } else { "succeeded" });
    until("the session to be idle", async || {
        (client.session(session).await["status"] == "idle").then_some(())
    })
    .await;
    done.clone()
}

async fn cancel_session(client: &Client, session: &str) -> Value {
    let answer = client.send(client.request("POST", &format!("/sessions/{session}/cancel"))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

async fn cancel_job(client: &Client, job: &str) -> Value {
    let answer = client.send(client.request("POST", &format!("/jobs/{job}/cancel"))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}
