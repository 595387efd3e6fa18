//! T2: two chats at the same instant, to one session, on two api processes and two workers.

use std::collections::{HashMap, HashSet};

use futures::future::join_all;
use roundhouse_oracle::{RecordedRequest, most_at_once};

use crate::support::{Deployment, Kind, on, text};

const SESSIONS: usize = 40;
/// Pairs of chats at once, in each session.
const PAIRS: usize = 5;
/// Turns of each session.
const TURNS: usize = 1 + 2 * PAIRS;

on!(two_chats_at_once_take_turns: Embedded, Distributed);
async fn two_chats_at_once_take_turns(kind: Kind) {
    let deployment = Deployment::start(kind).await;

    let starts: Vec<_> = (1..=SESSIONS).map(|session| session * 1000).collect();
    for some in starts.chunks(8) {
        join_all(some.iter().map(|start| pairs(&deployment, *start))).await;
    }

    let mut by_session: HashMap<String, Vec<RecordedRequest>> = HashMap::new();
    for request in deployment.oracle.requests() {
        let first = text(&request.json()["messages"][0]["content"]);
        by_session.entry(first).or_default().push(request);
    }
    assert_eq!(by_session.len(), SESSIONS);
    for (first, requests) in &by_session {
        assert_eq!(most_at_once(requests), 1, "two turns at once after {first}");
        assert_eq!(requests.len(), TURNS, "after {first}");
    }
    deployment.end().await;
}

/// Counts up in a session of its own, two chats at a time.
async fn pairs(deployment: &Deployment, start: usize) {
    let (one, other) = (deployment.client(), deployment.other());
    let session = text(&one.chat(None, &format!("X = {start}")).await.json()["sessionId"]);
    for pair in 0..PAIRS {
        let add = "add 1 to x";
        let (a, b) = tokio::join!(one.chat(Some(&session), add), other.chat(Some(&session), add));
        let mut said = [a, b].map(|answer| {
            assert_eq!(answer.status, 200, "{}", answer.body);
            text(&answer.json()["content"])
        });
        said.sort();
        assert_eq!(said, [1, 2].map(|n| format!("X = {}", start + 2 * pair + n)));
    }
    is_told_in_order(deployment, &session, start).await;
}

/// Every message is stored once; the list's order is that of arrival, and here that of consumption too.
async fn is_told_in_order(deployment: &Deployment, session: &str, start: usize) {
    let client = deployment.other();
    let messages = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
    let ids: Vec<_> = messages.iter().map(|message| message["id"].as_i64().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let arrived: Vec<_> = messages.iter().map(|message| text(&message["createdAt"])).collect();
    assert!(arrived.is_sorted(), "{arrived:?}");

    let of = |role: &'static str| messages.iter().filter(move |message| message["role"] == role);
    let expected: Vec<_> = (0..TURNS).map(|turn| format!("X = {}", start + turn)).collect();
    let written: Vec<_> = of("assistant").map(|message| text(&message["content"])).collect();
    assert_eq!(written, expected);
    let jobs: Vec<_> = of("user").map(|message| text(&message["jobId"])).collect();
    assert_eq!(jobs.iter().collect::<HashSet<_>>().len(), TURNS, "a message for each job: {jobs:?}");
    let answered = jobs.iter().map(async |job| {
        let job = client.get(&format!("/jobs/{job}")).await.json();
        text(&job["result"]["content"])
    });
    assert_eq!(join_all(answered).await, expected);
}
