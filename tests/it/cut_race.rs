//! Cuts and messages at the same instant, and workers that die over a cut.

use serde_json::json;

use crate::support::{Client, Deployment, Kind, Options, note, on, text, until};

/// A session that is at 6 and then at 11; returns the message that says 6 as well.
async fn at_eleven(client: &Client) -> (String, i64) {
    let session = client.new_session().await;
    for message in ["X = 6", "add 5 to x"] {
        client.chat(Some(&session), message).await;
    }
    let messages = client.items(&format!("/sessions/{session}/messages")).await;
    (session, messages[1]["id"].as_i64().unwrap())
}

on!(a_message_and_a_trim_at_the_same_instant: Embedded, Distributed);
async fn a_message_and_a_trim_at_the_same_instant(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let mut trimmed_first = 0;
    for round in 0..50 {
        let (session, at) = at_eleven(client).await;
        let (chat, trimmed) =
            tokio::join!(client.chat(Some(&session), "what is x"), other.trim(&session, at));
        assert_eq!(chat.status, 200, "round {round}: {}", chat.body);
        let said = text(&chat.json()["content"]);
        let mut expected = vec!["user: X = 6", "assistant: X = 6"];
        if trimmed.status == 200 {
            let answered_before = trimmed.json()["deleted"] == 4;
            if answered_before {
                assert_eq!(said, "X = 11", "round {round}");
            } else {
                // Kept by the cut, and answered after it.
                assert_eq!(trimmed.json()["deleted"], 2, "round {round}: {}", trimmed.body);
                assert_eq!(said, "X = 6", "round {round}");
                expected.extend(["user: what is x", "assistant: X = 6"]);
                trimmed_first += 1;
            }
        } else {
            assert_eq!(trimmed.code(), "409 SESSION_BUSY", "round {round}");
            assert_eq!(said, "X = 11", "round {round}");
            expected.extend([
                "user: add 5 to x",
                "assistant: X = 11",
                "user: what is x",
                "assistant: X = 11",
            ]);
        }
        assert_eq!(client.messages(&session).await, expected, "round {round}");
        assert_eq!(client.session(&session).await["messageCount"], expected.len());
    }
    note(&format!("the trim was first in {trimmed_first} of 50 rounds"));
    deployment.end().await;
}

on!(two_trims_at_once: Embedded, Distributed);
async fn two_trims_at_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    for round in 0..10 {
        let (session, at) = at_eleven(client).await;
        let both: [_; 2] = tokio::join!(client.trim(&session, at), other.trim(&session, at)).into();
        let deleted: Vec<_> = both
            .iter()
            .filter(|done| done.status == 200)
            .map(|done| done.json()["deleted"].clone())
            .collect();
        assert!(
            deleted == [json!(2)] || deleted == [json!(2), json!(0)] || deleted == [json!(0), json!(2)],
            "round {round}: {deleted:?}"
        );
        for refused in both.iter().filter(|done| done.status != 200) {
            assert_eq!(refused.code(), "409 SESSION_BUSY", "round {round}");
        }
        assert_eq!(client.messages(&session).await, ["user: X = 6", "assistant: X = 6"]);
    }
    deployment.end().await;
}

on!(a_cut_outlives_the_workers_that_die_over_it: Distributed);
async fn a_cut_outlives_the_workers_that_die_over_it(kind: Kind) {
    let options = Options { workers: 1, lease: "2s", ..Options::default() };
    let mut deployment = Deployment::with(kind, options).await;
    for round in 0..4 {
        let (session, at) = at_eleven(deployment.client()).await;
        let client = deployment.client().clone();
        let killed = deployment.workers.len() - 1;
        let (trimmed, ()) = tokio::join!(client.trim(&session, at), async {
            // Somewhere on the way: before it is begun, in its middle, or after.
            until("the trim to be admitted", async || {
                let jobs = deployment.other().items(&format!("/jobs?kind=trim&sessionId={session}")).await;
                (!jobs.is_empty()).then_some(())
            })
            .await;
            deployment.workers[killed].kill().await;
            deployment.add_worker();
        });
        assert_eq!(trimmed.status, 200, "round {round}: {}", trimmed.body);
        assert_eq!(trimmed.json()["deleted"], 2);
        deployment.await_agent().await;
        let answer = deployment.other().chat(Some(&session), "what is x").await.json();
        assert_eq!(answer["content"], "X = 6", "round {round}");
    }
    deployment.end().await;
}

on!(a_cut_that_was_admitted_without_a_worker_waits_for_one: Distributed);
async fn a_cut_that_was_admitted_without_a_worker_waits_for_one(kind: Kind) {
    for (on_busy, becomes) in [("inject", "inject"), ("interrupt", "chat")] {
        Box::pin(a_cut_waits_for_a_worker(kind, on_busy, becomes)).await;
    }
}

/// And a message waits for the cut, whatever it would do to a turn.
async fn a_cut_waits_for_a_worker(kind: Kind, on_busy: &str, becomes: &str) {
    let options = Options { workers: 1, lease: "10s", ..Options::default() };
    let mut deployment = Deployment::with(kind, options).await;
    let (session, at) = at_eleven(deployment.client()).await;
    // Known for as long as its lease lasts: what is asked for meanwhile is admitted.
    deployment.kill_workers().await;
    let client = deployment.client().clone();
    let (trimmed, late, ()) = tokio::join!(
        client.trim(&session, at),
        async {
            until("the trim to be admitted", async || {
                let jobs = client.items(&format!("/jobs?kind=trim&sessionId={session}")).await;
                (!jobs.is_empty()).then_some(())
            })
            .await;
            let body = json!({ "message": "what is x", "sessionId": session, "onBusy": on_busy });
            let request = client.request("POST", "/agents/oracle/chat").header("prefer", "respond-async");
            client.send(request.json(&body)).await.json()
        },
        async {
            until("a message that waits behind it", async || {
                let jobs =
                    client.items(&format!("/jobs?kind={becomes}&state=pending&sessionId={session}")).await;
                (!jobs.is_empty()).then_some(())
            })
            .await;
            deployment.add_worker();
        }
    );
    assert_eq!(trimmed.json()["deleted"], 2, "{}", trimmed.body);
    let late = deployment.other().ended(&text(&late["jobId"])).await;
    let injected = json!(becomes == "inject");
    assert_eq!((&late["result"]["content"], &late["result"]["injected"]), (&json!("X = 6"), &injected));
    let expected = ["user: X = 6", "assistant: X = 6", "user: what is x", "assistant: X = 6"];
    assert_eq!(deployment.client().messages(&session).await, expected);
    deployment.end().await;
}
