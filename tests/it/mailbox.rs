//! What waits while the agent works, on every engine: its order, its bounds, and who may take it back.

use serde_json::{Value, json};

use crate::support::{
    COUNTED, Client, Deployment, Engine, Kind, LONG, Options, on_every_engine, text, until,
};
use crate::tools::cancel;

on_every_engine!(an_injection_and_a_message_with_a_turn_of_its_own_are_each_done_once: Embedded, Distributed);
async fn an_injection_and_a_message_with_a_turn_of_its_own_are_each_done_once(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(engine.agent()).await;
    client.says(engine.agent(), &session, "X = 0").await;
    let mut first = client.stream_with(engine.agent(), Some(&session), LONG).await;
    first.until("message.delta").await;

    let enqueued = busy(other, engine, &session, "add 100 to x", "enqueue").await;
    let injected = busy(client, engine, &session, "add 1 to x", "inject").await;
    deployment.oracle.hurry();

    for job in [&enqueued, &injected] {
        let ended = client.ended(job).await;
        assert_eq!(ended["state"], "succeeded", "{ended}");
        assert!(text(&ended["result"]["content"]).contains("X = "), "{ended}");
    }
    assert_eq!(client.says(engine.agent(), &session, "what is x").await, "X = 101");
    let messages = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
    assert!(messages.iter().all(|message| message["origin"] != "autonomous"), "{messages:?}");
    deployment.end().await;
}

/// More than an engine is given at once, and more than one turn takes.
const MANY: usize = 320;

on_every_engine!(however_many_wait_each_is_done_once: Embedded);
async fn however_many_wait_each_is_done_once(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let client = deployment.client();
    let session = client.session_with(engine.agent()).await;
    client.says(engine.agent(), &session, "X = 0").await;
    let mut first = client.stream_with(engine.agent(), Some(&session), LONG).await;
    first.until("message.delta").await;

    let mut jobs = Vec::new();
    for _ in 0..MANY {
        jobs.push(busy(client, engine, &session, "add 1 to x", "inject").await);
    }
    deployment.oracle.hurry();

    for job in &jobs {
        let ended = client.ended(job).await;
        assert_eq!(ended["state"], "succeeded", "{ended}");
    }
    assert_eq!(client.says(engine.agent(), &session, "what is x").await, format!("X = {MANY}"));
    deployment.end().await;
}

on_every_engine!(a_cancel_needs_no_slot: Embedded, Distributed);
async fn a_cancel_needs_no_slot(kind: Kind, engine: Engine) {
    let options = Options { workers: 1, slots: 1, ..engine.options() };
    let deployment = Deployment::with(kind, options).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(engine.asking()).await;
    let asks = client.waiting_with(engine.asking(), &session, "sleep 0 then say x");
    client.asked(&session).await;
    // The slot of the turn that waits for a person is another's now.
    let mut speaks = client.stream_with("oracle", None, LONG).await;
    speaks.until("message.delta").await;

    assert_eq!(cancel(other, &session).await["cancelled"], true);

    assert_eq!(asks.result().await["cancelled"], true);
    deployment.oracle.hurry();
    assert_eq!(speaks.all().await.last().unwrap().data["content"], COUNTED);
    deployment.end().await;
}

on_every_engine!(whoever_takes_an_injection_back_takes_nobody_elses_answer: Embedded, Distributed);
async fn whoever_takes_an_injection_back_takes_nobody_elses_answer(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(engine.agent()).await;
    let mut first = client.stream_with(engine.agent(), Some(&session), LONG).await;
    first.until("message.delta").await;
    let injected = busy(other, engine, &session, "say more", "inject").await;
    deployment.in_reach(engine, &session, "say more").await;

    let taken_back = other.post(&format!("/jobs/{injected}/cancel"), &json!({})).await.json();
    deployment.oracle.hurry();

    let done = first.all().await.pop().unwrap().data;
    assert_eq!((&done["content"], &done["cancelled"]), (&json!(COUNTED), &json!(false)));
    let ended = client.ended(&injected).await;
    assert_eq!(ended["state"] == "cancelled", taken_back["cancelled"] == true, "{taken_back} {ended}");
    let next = client.says(engine.agent(), &session, "say next").await;
    assert_eq!(next, "next");
    deployment.end().await;
}

on_every_engine!(an_injection_that_is_being_answered_is_not_given_up: Embedded);
async fn an_injection_that_is_being_answered_is_not_given_up(kind: Kind, engine: Engine) {
    let mut options = engine.options();
    options.env.push(("ROUNDHOUSE_INJECTION_TIMEOUT", "8s".to_owned()));
    let deployment = Deployment::with(kind, options).await;
    let client = deployment.client();
    let session = client.session_with(engine.agent()).await;
    let mut first = client.stream_with(engine.agent(), Some(&session), LONG).await;
    first.until("message.delta").await;
    let begun = std::time::Instant::now();
    let waiting = client.waiting_with(engine.agent(), &session, LONG);
    let mut second = client.stream_with(engine.agent(), Some(&session), LONG).await;
    second.next().await;
    until("all to be stored", async || (client.session(&session).await["messageCount"] == 3).then_some(()))
        .await;
    deployment.oracle.hurry();
    second.until("message.delta").await;

    // Past the time for which an injection may wait.
    let past = std::time::Duration::from_secs(9);
    tokio::time::sleep(past.saturating_sub(begun.elapsed())).await;
    deployment.oracle.hurry();

    let done = second.all().await.pop().unwrap();
    assert_eq!(done.name, "done", "{}", done.data);
    assert!(text(&done.data["content"]).contains(COUNTED), "{}", done.data);
    assert!(text(&waiting.result().await["content"]).contains(COUNTED));
    deployment.end().await;
}

/// Sends a message to a session at work, and returns its job.
async fn busy(client: &Client, engine: Engine, session: &str, message: &str, on_busy: &str) -> String {
    let body = json!({ "message": message, "sessionId": session, "onBusy": on_busy });
    let path = format!("/agents/{}/chat", engine.agent());
    let request = client.request("POST", &path).header("prefer", "respond-async").json(&body);
    let answer: Value = client.send(request).await.json();
    text(&answer["jobId"])
}
