//! Who may call, over HTTP.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use roundhouse_api::Settings;

use crate::support::{Api, Options, request};

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused() {
    let api = Api::start().await;
    let foreign =
        Request::builder().uri("/sessions").header("host", "evil.example").body(Body::empty()).unwrap();
    api.send(foreign).await.problem(403, "FORBIDDEN");
    let cross =
        request("GET", "/sessions").header("origin", "http://evil.example").body(Body::empty()).unwrap();
    let answer = api.send(cross).await;
    answer.problem(403, "FORBIDDEN");
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
    let same =
        request("GET", "/sessions").header("origin", "http://localhost:7700").body(Body::empty()).unwrap();
    let answer = api.send(same).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn a_public_origin_is_told_that_it_may() {
    let settings = Settings { public_origins: vec!["https://app.example".to_owned()], ..Settings::default() };
    let api = Api::with(Options { settings, ..Options::default() }).await;
    let preflight = request("OPTIONS", "/sessions")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,idempotency-key");
    let answer = api.send(preflight.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["access-control-allow-origin"], "https://app.example");
    let wrong = request("GET", "/nowhere").header("origin", "https://app.example");
    let answer = api.send(wrong.body(Body::empty()).unwrap()).await;
    answer.problem(404, "NOT_FOUND");
    assert_eq!(answer.headers["access-control-allow-origin"], "https://app.example");
    let other = request("GET", "/sessions").header("origin", "https://other.example");
    api.send(other.body(Body::empty()).unwrap()).await.problem(403, "FORBIDDEN");
}

#[tokio::test]
async fn an_open_listener_checks_the_host_too() {
    let settings = Settings {
        listen: "0.0.0.0:7700".to_owned(),
        public_hosts: vec!["agents.example".to_owned()],
        ..Settings::default()
    };
    let api = Api::with(Options { settings, ..Options::default() }).await;
    let get =
        |host: &str| Request::builder().uri("/sessions").header("host", host).body(Body::empty()).unwrap();
    for host in
        ["localhost:7700", "127.0.0.1:7700", "192.0.2.7:7700", "agents.example", "agents.example:8080"]
    {
        assert_eq!(api.send(get(host)).await.status, StatusCode::OK, "{host}");
    }
    for host in ["evil.example", "agents.example.evil.example"] {
        let refused = api.send(get(host)).await;
        let problem = refused.problem(403, "FORBIDDEN");
        assert!(problem["detail"].as_str().unwrap().contains("server.public_hosts"), "{problem}");
    }
}
