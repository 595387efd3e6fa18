//! Agents that give work to other agents: waited for without a slot, or told of later, once.

use std::collections::HashSet;

use roundhouse_oracle::RecordedRequest;
use serde_json::{Value, json};

use crate::support::{Client, Deployment, Kind, Options, SOON, on, text, until};
use crate::tools::cancel;

on!(a_child_has_a_place_to_work_though_its_parent_needs_none: Embedded, Distributed);
async fn a_child_has_a_place_to_work_though_its_parent_needs_none(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let message = "spawn tooled: sleep 0 then say here";
    let result = deployment.client().chat_with("manager", None, message).await.json();
    assert_eq!(text(&result["content"]).trim(), "here");
    deployment.end().await;
}

on!(a_child_answers_within_its_parents_turn: Embedded, Distributed);
async fn a_child_answers_within_its_parents_turn(kind: Kind) {
    // Three levels below the first, and one slot for all of them.
    let deployment = Deployment::with(kind, Options { workers: 1, slots: 1, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());

    let message = "spawn tooled: spawn tooled: spawn tooled: sleep 0 then say deep";
    let result = client.chat_with("tooled", None, message).await.json();

    assert_eq!((text(&result["content"]).trim(), &result["iterations"]), ("deep", &json!(2)));
    let sessions = other.items("/sessions?limit=100").await;
    assert_eq!(sessions.len(), 4);
    let child_of = |parent: &Value| {
        let mut children = sessions.iter().filter(|session| session["parentSessionId"] == *parent);
        let child = children.next()?["id"].clone();
        assert!(children.next().is_none());
        Some(child)
    };
    let mut at = result["sessionId"].clone();
    assert_eq!(child_of(&Value::Null), Some(at.clone()));
    for depth in 0..3 {
        at = child_of(&at).unwrap_or_else(|| panic!("a child at depth {depth}"));
        let messages = other.items(&format!("/sessions/{}/messages", text(&at))).await;
        assert_eq!(
            (&messages[0]["origin"], text(&messages.last().unwrap()["content"]).trim()),
            (&json!("agent:tooled"), "deep")
        );
    }
    assert_eq!(child_of(&at), None);
    deployment.end().await;
}

on!(a_child_that_its_parent_waited_for_ends_with_it: Embedded, Distributed);
async fn a_child_that_its_parent_waited_for_ends_with_it(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("tooled").await;
    let caller = client.waiting_with("tooled", &session, "spawn tooled: spawn oracle: slow 600 count to 12");
    let descendants = async || {
        let sessions = other.items("/sessions?limit=100").await;
        (sessions.len() == 3 && sessions.iter().all(|session| session["status"] == "running")).then_some(())
    };
    until("three sessions to run", descendants).await;

    cancel(other, &session).await;

    assert_eq!(caller.result().await["cancelled"], true);
    until("all of them to be idle", async || {
        let sessions = other.items("/sessions?limit=100").await;
        sessions.iter().all(|session| session["status"] == "idle").then_some(())
    })
    .await;
    let jobs = other.items("/jobs").await;
    assert!(jobs.iter().all(|job| job["state"] == "cancelled"), "{jobs:?}");
    deployment.end().await;
}

on!(what_cannot_be_spawned_is_told: Embedded, Distributed);
async fn what_cannot_be_spawned_is_told(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();

    let unknown = client.chat_with("tooled", None, "spawn nobody: say a").await.json();
    let failed = client.chat_with("tooled", None, "spawn oracle: fail 400").await.json();

    assert!(text(&unknown["content"]).contains("there is no agent \"nobody\""), "{unknown}");
    assert!(text(&failed["content"]).starts_with("the agent failed: "), "{failed}");
    deployment.end().await;
}

on!(a_child_that_is_not_waited_for_wakes_its_parent_once: Embedded, Distributed);
async fn a_child_that_is_not_waited_for_wakes_its_parent_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("tooled").await;
    let mut events = other.follow(&session, None).await;

    // The child speaks until it is told to hurry, so that its parent is idle before.
    let message = "spawn-async oracle: slow 600 count to 3";
    let result = client.chat_with("tooled", Some(&session), message).await.json();

    assert!(text(&result["content"]).starts_with("started in session "), "{result}");
    events.until("turn.completed").await;
    assert_eq!(client.session(&session).await["status"], "idle");
    deployment.oracle.wait_for(RecordedRequest::in_flight, SOON).await.unwrap();
    let started = async {
        loop {
            let started = events.until("job.started").await.data;
            if started["kind"] == "wake" {
                return started;
            }
        }
    };
    let hurry = async {
        loop {
            deployment.oracle.hurry();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let started = tokio::select! { started = started => started, () = hurry => unreachable!() };
    let turn = events.until("turn.completed").await.data;
    assert_eq!(turn["turnId"], started["turnId"]);
    let job = client.ended(&text(&started["jobId"])).await;
    assert_eq!((&job["state"], &job["kind"]), (&json!("succeeded"), &json!("wake")));

    let messages = client.items(&format!("/sessions/{session}/messages")).await;
    let woken: Vec<_> = messages.iter().filter(|message| message["origin"] == "agent:oracle").collect();
    assert_eq!(woken.len(), 1);
    assert_eq!((&woken[0]["role"], &woken[0]["jobId"]), (&json!("user"), &started["jobId"]));
    assert!(text(&woken[0]["content"]).ends_with("\n1 2 3"), "{}", woken[0]);
    assert_eq!(client.roles(&session).await, ["user", "assistant", "tool", "assistant", "user", "assistant"]);
    assert_eq!(wakes(client, &session).await.len(), 1);
    deployment.end().await;
}

on!(many_children_that_end_at_any_moment_are_each_told_of_once: Embedded, Distributed);
async fn many_children_that_end_at_any_moment_are_each_told_of_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    // They end while their parent still works, or behind it.
    for round in 0..10 {
        let names: Vec<String> = (0..10).map(|child| format!("child {round} {child} here")).collect();
        let lines: Vec<_> = names.iter().map(|name| format!("spawn-async oracle: say {name}")).collect();

        let result = client.chat_with("tooled", None, &lines.join("\n")).await.json();

        let session = text(&result["sessionId"]);
        until("all children to be told of", async || {
            let jobs = wakes(other, &session).await;
            (jobs.len() == 10 && jobs.iter().all(|job| job["state"] == "succeeded")).then_some(())
        })
        .await;
        let messages = other.items(&format!("/sessions/{session}/messages?limit=200")).await;
        let told: Vec<_> = messages.iter().filter(|message| message["origin"] == "agent:oracle").collect();
        let said: HashSet<_> =
            told.iter().map(|message| text(&message["content"]).lines().last().unwrap().to_owned()).collect();
        assert_eq!((told.len(), said), (10, names.iter().cloned().collect()));
        // In the model's context too, each once.
        let requests = deployment.requests_of(&lines.join("\n"));
        let newest = requests.last().unwrap().json()["messages"].to_string();
        for name in &names {
            assert_eq!(newest.matches(&format!("\\n{name}")).count(), 1, "{name} in {newest}");
        }
        let children = other.items("/sessions?limit=200").await;
        let children = children.iter().filter(|child| child["parentSessionId"] == *session);
        assert_eq!(children.count(), 10);
    }
    deployment.end().await;
}

/// The wake jobs of a session.
async fn wakes(client: &Client, session: &str) -> Vec<Value> {
    client.items(&format!("/jobs?sessionId={session}&kind=wake&limit=100")).await
}
