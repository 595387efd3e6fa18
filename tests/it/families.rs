//! Many children: each answer is told once, and no number of parents that wait keeps a child from its slot.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures::future::join_all;
use roundhouse_oracle::RecordedRequest;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{Client, Deployment, Kind, Options, Waiting, on, text, until};

on!(thirty_children_one_after_another_are_each_told_of_once: Embedded, Distributed);
async fn thirty_children_one_after_another_are_each_told_of_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("tooled").await;
    for round in 1..=30 {
        let message = format!("spawn-async oracle: say child {round} here");

        let result = client.chat_with("tooled", Some(&session), &message).await;

        assert_eq!(result.status, 200, "{}", result.body);
        told_of(other, &session, round).await;
    }
    let expected: HashSet<_> = (1..=30).map(|round| format!("child {round} here")).collect();
    assert_eq!(said(other, &session).await, expected);
    // In the model's context too, each once.
    let newest = last_context(&deployment, &format!("spawn-async oracle: say child {} here", 30));
    for words in &expected {
        assert_eq!(newest.matches(&format!("\\n{words}")).count(), 1, "{words} in {newest}");
    }
    assert_eq!(other.children_of(&session).await.len(), 30);
    deployment.end().await;
}

on!(ten_children_that_end_at_the_same_moment_are_each_told_of_once: Embedded, Distributed);
async fn ten_children_that_end_at_the_same_moment_are_each_told_of_once(kind: Kind) {
    let deployment = Deployment::with(kind, Options { slots: 12, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());
    let names: HashSet<String> = (0..10).map(|child| format!("child {child} here")).collect();
    let mut lines: Vec<_> =
        names.iter().map(|name| format!("spawn-async oracle: slow 600 say {name}")).collect();
    lines.sort();
    let result = client.chat_with("tooled", None, &lines.join("\n")).await.json();
    let session = text(&result["sessionId"]);
    until("ten children at work", async || {
        let requests = deployment.oracle.requests();
        let at_work = requests.iter().filter(|request| request.in_flight()).count();
        (at_work == 10).then_some(())
    })
    .await;

    deployment.oracle.hurry();

    told_of(other, &session, 10).await;
    assert_eq!(said(other, &session).await, names);
    let newest = last_context(&deployment, &lines.join("\n"));
    for name in &names {
        assert_eq!(newest.matches(&format!("\\n{name}")).count(), 1, "{name} in {newest}");
    }
    deployment.end().await;
}

on!(more_parents_wait_than_there_are_slots: Embedded, Distributed);
async fn more_parents_wait_than_there_are_slots(kind: Kind) {
    // Six trees, each four levels deep below its root, on three slots.
    let deployment = Deployment::with(kind, Options { workers: 1, slots: 3, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());
    let mut callers = Vec::new();
    for tree in 0..6 {
        let session = client.session_with("manager").await;
        let message = format!("{}spawn oracle: slow 600 say leaf {tree}", "spawn manager: ".repeat(3));
        callers.push(client.waiting_with("manager", &session, &message));
    }
    // With a leaf in each slot there are twelve parents that wait, or more.
    until("leaves in all slots", async || {
        let leaves = deployment.oracle.requests().iter().filter(|request| request.in_flight()).count();
        (leaves == 3).then_some(())
    })
    .await;
    let waiting = other.items("/sessions?limit=100").await;
    assert!(12 <= waiting.iter().filter(|session| session["status"] == "running").count() - 3, "{waiting:?}");

    let mut answers = pin!(join_all(callers.into_iter().map(Waiting::result)));
    let answers = loop {
        deployment.oracle.hurry();
        if let Ok(answers) = timeout(Duration::from_millis(100), &mut answers).await {
            break answers;
        }
    };

    for (tree, answer) in answers.iter().enumerate() {
        assert_eq!(text(&answer["content"]).trim(), format!("leaf {tree}"));
        assert_eq!(answer["iterations"], 2);
    }
    let sessions = other.items("/sessions?limit=100").await;
    assert_eq!(sessions.len(), 30);
    let jobs = other.items("/jobs?limit=100").await;
    assert!(
        jobs.iter().all(|job| (&job["state"], &job["attempt"]) == (&json!("succeeded"), &json!(1))),
        "{jobs:?}"
    );
    deployment.end().await;
}

on!(children_that_end_while_their_worker_is_renewed_lock_nobody_out: Distributed);
async fn children_that_end_while_their_worker_is_renewed_lock_nobody_out(kind: Kind) {
    // A lease that is renewed all the time. A busy machine may take longer than that: then a turn has another attempt.
    let env = vec![("ROUNDHOUSE_MAX_ATTEMPTS", "100".to_owned())];
    let options = Options { workers: 2, slots: 8, lease: "1500ms", env, ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    let client = deployment.client();
    let family = async |family: usize| {
        let session = client.session_with("tooled").await;
        for round in 1..=5 {
            let lines: Vec<_> =
                (0..4).map(|child| format!("spawn-async oracle: say {family} {round} {child}")).collect();
            let result = client.chat_with("tooled", Some(&session), &lines.join("\n")).await;
            assert_eq!(result.status, 200, "{}", result.body);
        }
        told_of(client, &session, 20).await;
        assert_eq!(said(client, &session).await.len(), 20);
    };
    join_all((0..6).map(family)).await;
    let logs = deployment.logs();
    let deadlocks: Vec<_> = logs.lines().filter(|line| line.contains("deadlock")).collect();
    assert!(deadlocks.is_empty(), "{deadlocks:?}");
    deployment.end().await;
}

/// Waits until a session was told of so many children, and has answered to all of it.
async fn told_of(client: &Client, session: &str, children: usize) {
    until("all children to be told of", async || {
        let jobs = client.items(&format!("/jobs?sessionId={session}&kind=wake&limit=100")).await;
        assert!(jobs.len() <= children, "{jobs:?}");
        (jobs.len() == children && jobs.iter().all(|job| job["state"] == "succeeded")).then_some(())
    })
    .await;
}

/// What a session was told by children; each has told once.
async fn said(client: &Client, session: &str) -> HashSet<String> {
    let messages = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
    let last_line = |message: &Value| text(&message["content"]).lines().last().unwrap_or_default().to_owned();
    let told: Vec<_> =
        messages.iter().filter(|message| message["origin"] == "agent:oracle").map(last_line).collect();
    let said: HashSet<_> = told.iter().cloned().collect();
    assert_eq!(told.len(), said.len(), "{told:?}");
    said
}

/// The messages that the model was shown last in the session with this message.
fn last_context(deployment: &Deployment, message: &str) -> String {
    let requests: Vec<RecordedRequest> = deployment.requests_of(message);
    requests.last().unwrap().json()["messages"].to_string()
}
