//! What operators look at.

use axum::http::StatusCode;
use serde_json::json;

use crate::support::{Api, Options};

#[tokio::test]
async fn queues_workers_and_agents_are_listed() {
    let api = Api::start().await;
    let session = api.session().await;
    api.post(&json!({"message": "m", "sessionId": session})).await;
    let queues = api.get("/queues").await.json();
    let chat = &queues["items"][0];
    assert_eq!((&chat["name"], &chat["depth"], &chat["bells"]), (&json!("chat"), &json!(1), &json!(1)));
    assert!(chat["oldestAt"].is_string() && chat["ageMs"].is_i64());
    let turn = api.begin_when_rung(session).await;
    let workers = api.get("/workers").await.json();
    let worker = &workers["items"][0];
    assert_eq!(
        (&worker["id"], &worker["engines"], &worker["slots"], &worker["stopping"]),
        (&json!(api.worker), &json!(["openai"]), &json!(3), &json!(false))
    );
    assert_eq!(worker["leases"][0]["sessionId"], json!(session));
    assert_eq!(worker["leases"][0]["turnId"], json!(turn.mail.turn));
    turn.answer("a").await;
    let queues = api.get("/queues").await.json();
    assert_eq!(queues["items"][0]["endedLastMinute"], 1);
    let agents = api.get("/agents").await.json();
    assert_eq!(
        agents["items"],
        json!([
            {"name": "helper", "engine": "openai", "model": "oracle", "demo": false, "available": true, "reason": null,
             "leftOutTools": []},
            {"name": "absent", "engine": "openai", "model": "oracle", "demo": false, "available": false,
             "reason": "no live worker has this agent", "leftOutTools": []},
        ])
    );
}

#[tokio::test]
async fn a_worker_that_comes_is_seen_at_once() {
    let api = Api::with(Options { worker: false, ..Options::default() }).await;
    let message = json!({"message": "m"});
    api.chat(&message).await.problem(503, "ENGINE_UNAVAILABLE");
    let other = Api::start().await;
    let worker = other.store.workers().await.unwrap().remove(0);
    api.store.register_worker(&worker, 60_000).await.unwrap();
    api.post(&message).await;
}

#[tokio::test]
async fn readiness_names_each_dependency() {
    let api = Api::start().await;
    assert_eq!(api.get("/healthz").await.json(), json!({"status": "ok", "version": "1.2.3"}));
    let ready = api.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::OK);
    let body = ready.json();
    let names: Vec<_> =
        body["dependencies"].as_array().unwrap().iter().map(|of| of["name"].clone()).collect();
    assert_eq!(names, ["store", "queue", "bus"]);
    api.store.close().await;
    let down = api.get("/readyz").await;
    assert_eq!(down.status, StatusCode::SERVICE_UNAVAILABLE);
    let body = down.json();
    assert_eq!((&body["ready"], &body["dependencies"][0]["ok"]), (&json!(false), &json!(false)));
    assert_eq!(body["dependencies"][1]["ok"], true);
    assert_eq!(api.get("/healthz").await.status, StatusCode::OK);
    api.get("/sessions").await.problem(503, "STORE_UNAVAILABLE");
    api.chat(&json!({"message": "m"})).await.problem(503, "STORE_UNAVAILABLE");
}

#[tokio::test]
async fn pages_are_served_from_here() {
    let api = Api::start().await;
    let index = api.get("/").await.json();
    assert_eq!((&index["name"], &index["version"]), (&json!("roundhouse"), &json!("1.2.3")));
    for link in index["links"].as_object().unwrap().values() {
        let status = api.get(link.as_str().unwrap()).await.status;
        assert!(status.is_success() || status.is_redirection(), "{link}");
    }
    let docs = api.get("/docs/").await;
    assert_eq!(docs.status, StatusCode::OK);
    assert!(!docs.text.contains("https://"), "{}", docs.text);
    assert!(api.get("/docs/swagger-initializer.js").await.text.contains("/openapi.json"));
    let page = api.get("/problems/SESSION_BUSY").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("The session is busy") && page.text.contains("409"));
}
