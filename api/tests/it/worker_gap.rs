//! No worker for a moment: what is admitted waits for one, and what is refused says when to try again.

use axum::body::Body;
use axum::http::StatusCode;
use roundhouse_shared::domain::{AgentStatus, Worker};
use roundhouse_shared::units::Span;
use serde_json::json;

use crate::support::{Api, Options, agent, id, request};

const WAITS: &str = "no live worker has this agent now; messages wait for one";

fn without_worker() -> Options {
    let options = Options { worker: false, ..Options::default() };
    Options { worker_gap: Span::from_secs(300), json_wait_timeout: Span::from_millis(50), ..options }
}

/// A worker with this agent, as its row says.
async fn worker(api: &Api, name: &str, reason: Option<&str>) -> Worker {
    let other = Api::start().await;
    let row = other.store.workers().await.unwrap().remove(0);
    let status = AgentStatus {
        agent: agent(name),
        available: reason.is_none(),
        reason: reason.map(str::to_owned),
        left_out_tools: Vec::new(),
    };
    let row = Worker { id: api.worker, agents: vec![status], ..row };
    api.store.register_worker(&row, 60_000).await.unwrap();
    row
}

#[tokio::test]
async fn a_message_before_the_first_worker_waits_for_it() {
    let api = Api::with(without_worker()).await;
    let agents = api.get("/agents").await.json();
    assert_eq!(
        (&agents["items"][0]["available"], &agents["items"][0]["reason"]),
        (&json!(false), &json!(WAITS))
    );
    let admitted = api.post(&json!({"message": "m"})).await;
    let session = id(&admitted["sessionId"]);
    worker(&api, "helper", None).await;
    api.begin_when_rung(session).await.answer("a").await;
    let job = api.get(&format!("/jobs/{}", admitted["jobId"].as_str().unwrap())).await.json();
    assert_eq!(job["result"]["content"], "a");
}

#[tokio::test]
async fn a_cut_before_the_first_worker_waits_for_it() {
    let api = Api::with(without_worker()).await;
    let session = api.session().await;
    let reset = request("POST", &format!("/sessions/{session}/reset")).body(Body::empty()).unwrap();
    assert_eq!(api.send(reset).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn an_agent_that_a_live_worker_cannot_run_is_refused_with_its_reason() {
    let api = Api::with(without_worker()).await;
    worker(&api, "helper", Some("no key")).await;
    let problem = api.chat(&json!({"message": "m"})).await.problem(503, "ENGINE_UNAVAILABLE");
    assert_eq!(problem["detail"], "no key");
}

#[tokio::test]
async fn an_agent_without_a_worker_for_long_is_refused() {
    let api = Api::with(Options { worker_gap: Span::from_millis(0), ..without_worker() }).await;
    let row = worker(&api, "helper", None).await;
    api.post(&json!({"message": "m"})).await;
    assert!(api.store.declare_dead(row.id, None).await.unwrap());
    // The api may have the answer of a second ago.
    let refused = loop {
        let answer = api.chat(&json!({"message": "m"})).await;
        if answer.status != StatusCode::ACCEPTED {
            break answer;
        }
    };
    assert_eq!(refused.headers["retry-after"], "10");
    let problem = refused.problem(503, "ENGINE_UNAVAILABLE");
    assert_eq!(problem["detail"], "no live worker has this agent");
}

#[tokio::test]
async fn every_503_says_when_to_try_again() {
    let api = Api::start().await;
    let absent = api.call("POST", "/agents/absent/chat", &json!({"message": "m"})).await;
    api.store.close().await;
    let (away, unready) = (api.get("/sessions").await, api.get("/readyz").await);
    for answer in [absent, away, unready] {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
    }
}
