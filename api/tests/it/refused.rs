//! What is refused, with what code, and that nothing of it is stored.

use axum::body::Body;
use roundhouse_api::Settings;
use roundhouse_shared::units::Size;
use serde_json::{Value, json};

use crate::support::{Api, Options, request, with_json};

#[tokio::test]
async fn a_wrong_message_names_its_field_and_is_not_stored() {
    let api = Api::start().await;
    let long = "x".repeat(201);
    let big = json!({"message": "m", "metadata": {"x": "y".repeat(20_000)}});
    let unknown = "018f0000-0000-7000-8000-000000000000";
    let cases: &[(Value, u16, &str, Option<&str>)] = &[
        (json!({}), 422, "INVALID_REQUEST", Some("message")),
        (json!([]), 422, "INVALID_REQUEST", Some("body")),
        (json!(["say hi"]), 422, "INVALID_REQUEST", Some("body")),
        (json!(null), 422, "INVALID_REQUEST", Some("body")),
        (json!("text"), 422, "INVALID_REQUEST", Some("body")),
        (json!({"message": 5}), 422, "INVALID_REQUEST", Some("message")),
        (json!({"message": null}), 422, "INVALID_REQUEST", Some("message")),
        (json!({"message": ""}), 422, "EMPTY_MESSAGE", Some("message")),
        (json!({"message": " \n\t\u{a0}"}), 422, "EMPTY_MESSAGE", Some("message")),
        (json!({"message": "a\u{0}b"}), 422, "INVALID_REQUEST", Some("message")),
        (json!({"message": "m", "mesage": "m"}), 422, "INVALID_REQUEST", Some("mesage")),
        (json!({"message": "m", "onBusy": "later"}), 422, "INVALID_REQUEST", Some("onBusy")),
        (json!({"message": "m", "onBusy": 1}), 422, "INVALID_REQUEST", Some("onBusy")),
        (json!({"message": "m", "sessionId": "nonsense"}), 422, "INVALID_REQUEST", Some("sessionId")),
        (json!({"message": "m", "sessionId": unknown}), 404, "SESSION_NOT_FOUND", None),
        (
            json!({"message": "m", "cancelOnDisconnect": "yes"}),
            422,
            "INVALID_REQUEST",
            Some("cancelOnDisconnect"),
        ),
        (
            json!({"message": "m", "attachments": [{"name": "a"}]}),
            422,
            "INVALID_REQUEST",
            Some("attachments[0].mediaType"),
        ),
        (
            json!({"message": "m", "attachments": [{"name": "a", "mediaType": "image/png", "data": "bm8="}]}),
            422,
            "INVALID_REQUEST",
            Some("attachments[0].mediaType"),
        ),
        (json!({"message": "m", "attachments": {}}), 422, "INVALID_REQUEST", Some("attachments")),
        (json!({"message": "m", "metadata": []}), 422, "INVALID_REQUEST", Some("metadata")),
        (json!({"message": "m", "metadata": {"a": ["\u{0}"]}}), 422, "INVALID_REQUEST", Some("metadata")),
        (big, 422, "INVALID_REQUEST", Some("metadata")),
        (json!({"message": "m", "title": long}), 422, "INVALID_REQUEST", Some("title")),
        (json!({"message": "m", "title": "\u{0}"}), 422, "INVALID_REQUEST", Some("title")),
        (json!({"message": "m", "model": ""}), 422, "INVALID_REQUEST", Some("model")),
        (json!({"message": "m", "model": "\u{0}"}), 422, "INVALID_REQUEST", Some("model")),
        (json!({"message": "m", "cwd": "\u{0}"}), 422, "INVALID_REQUEST", Some("cwd")),
        (json!({"message": "m", "cwd": "relative"}), 422, "CWD_NOT_ALLOWED", Some("cwd")),
        (json!({"message": "m", "cwd": "/etc"}), 422, "CWD_NOT_ALLOWED", Some("cwd")),
        (json!({"message": "m", "cwd": ""}), 422, "CWD_NOT_ALLOWED", Some("cwd")),
    ];
    for (body, status, code, field) in cases {
        let problem = api.chat(body).await.problem(*status, code);
        assert_eq!(problem["fields"][0]["path"].as_str(), *field, "{body}: {problem}");
    }
    assert!(api.is_empty().await);
}

#[tokio::test]
async fn what_cannot_be_read_is_another_error_than_what_is_wrong() {
    let settings = Settings { body_limit: Size(1000), ..Settings::default() };
    let api = Api::with(Options { settings, ..Options::default() }).await;
    let raw = async |kind: &str, body: Vec<u8>| {
        let request = request("POST", "/agents/helper/chat").header("content-type", kind);
        api.send(request.body(Body::from(body)).unwrap()).await
    };
    let json = "application/json";
    for body in [
        "",
        "{",
        "nonsense",
        r#"{"message": "m"} x"#,
        r#"{"message": "\ud800"}"#,
        r#"{"message": "\x"}"#,
        "{\"message\": \"\u{1}\"}",
        r#"{message: "m"}"#,
    ] {
        raw(json, body.into()).await.problem(400, "INVALID_REQUEST");
    }
    raw(json, b"{\"message\": \"\xff\"}".to_vec()).await.problem(400, "INVALID_REQUEST");
    raw("text/plain", r#"{"message": "m"}"#.into()).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    let without = request("POST", "/agents/helper/chat").body(Body::from("{}")).unwrap();
    api.send(without).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    let large = format!(r#"{{"message": "{}"}}"#, "m".repeat(1000));
    raw(json, large.into()).await.problem(413, "PAYLOAD_TOO_LARGE");
    let nested = format!(r#"{{"message": "m", "metadata": {{"a": {}"#, "[".repeat(500));
    raw(json, nested.into()).await.problem(400, "INVALID_REQUEST");
    assert!(api.is_empty().await);
    let fits = raw("application/json; charset=utf-8", r#"{"message": ""}"#.into()).await;
    fits.problem(422, "EMPTY_MESSAGE");
}

#[tokio::test]
async fn only_agents_that_can_run_get_messages() {
    let api = Api::start().await;
    let message = json!({"message": "m"});
    api.call("POST", "/agents/nobody/chat", &message).await.problem(404, "AGENT_NOT_FOUND");
    let problem = api.call("POST", "/agents/absent/chat", &message).await.problem(503, "ENGINE_UNAVAILABLE");
    assert_eq!(problem["detail"], "no live worker has this agent");
    api.call("POST", "/sessions", &json!({"agent": "nobody"})).await.problem(404, "AGENT_NOT_FOUND");
    assert!(api.is_empty().await);
}

#[tokio::test]
async fn what_a_session_is_cannot_be_chosen_again() {
    let api = Api::start().await;
    let created =
        json!({"agent": "helper", "title": "T", "metadata": {"a": 1}, "cwd": api.folder.path().join("w")});
    let session = api.call("POST", "/sessions", &created).await.json();
    let id = &session["id"];
    for (field, other) in
        [("cwd", json!(api.folder.path().join("v"))), ("title", json!("U")), ("metadata", json!({"a": 2}))]
    {
        let body = json!({"message": "m", "sessionId": id, field: other});
        let problem = api.chat(&body).await.problem(422, "INVALID_REQUEST");
        assert_eq!(problem["fields"][0]["path"], field);
    }
    let body = json!({"message": "m", "sessionId": id});
    let problem = api.call("POST", "/agents/absent/chat", &body).await.problem(422, "INVALID_REQUEST");
    assert_eq!(problem["fields"][0]["path"], "sessionId");
    assert_eq!(api.get("/jobs").await.json()["items"], json!([]));
    let same =
        json!({"message": "m", "sessionId": id, "cwd": session["cwd"], "title": "T", "metadata": {"a": 1}});
    api.post(&same).await;
}

#[tokio::test]
async fn unknown_routes_methods_and_parameters_are_problems() {
    let api = Api::start().await;
    let session = api.session().await;
    let job = "018f0000-0000-7000-8000-000000000000";
    let events = format!("/sessions/{session}/events?since=1");
    let cases: &[(&str, &str, u16, &str)] = &[
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("GET", "/docs/nowhere.js", 404, "NOT_FOUND"),
        ("GET", "/problems/NONSENSE", 404, "NOT_FOUND"),
        ("PUT", "/sessions", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/agents/helper/chat", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/sessions/nonsense", 400, "INVALID_REQUEST"),
        ("GET", "/jobs/%ff", 400, "INVALID_REQUEST"),
        ("GET", "/jobs?limit=0", 400, "INVALID_REQUEST"),
        ("GET", "/jobs?limit=201", 400, "INVALID_REQUEST"),
        ("GET", "/jobs?limit=x", 400, "INVALID_REQUEST"),
        ("GET", "/jobs?state=lost", 400, "INVALID_REQUEST"),
        ("GET", "/jobs?stat=failed", 400, "INVALID_REQUEST"),
        ("GET", "/jobs?cursor=x", 400, "INVALID_REQUEST"),
        ("GET", "/sessions?cursor=x", 400, "INVALID_REQUEST"),
        ("GET", "/sessions?status=x", 400, "INVALID_REQUEST"),
        ("GET", "/sessions?agent=a%00", 400, "INVALID_REQUEST"),
        ("GET", &events, 400, "INVALID_REQUEST"),
        ("GET", &format!("/sessions/{job}"), 404, "SESSION_NOT_FOUND"),
        ("GET", &format!("/sessions/{job}/messages"), 404, "SESSION_NOT_FOUND"),
        ("GET", &format!("/sessions/{job}/events"), 404, "SESSION_NOT_FOUND"),
        ("DELETE", &format!("/sessions/{job}"), 404, "SESSION_NOT_FOUND"),
        ("DELETE", &format!("/sessions/{job}?force=true"), 404, "SESSION_NOT_FOUND"),
        ("POST", &format!("/sessions/{job}/cancel"), 404, "SESSION_NOT_FOUND"),
        ("GET", &format!("/jobs/{job}"), 404, "JOB_NOT_FOUND"),
        ("POST", &format!("/jobs/{job}/cancel"), 404, "JOB_NOT_FOUND"),
    ];
    for (method, path, status, code) in cases {
        let answer = api.send(request(method, path).body(Body::empty()).unwrap()).await;
        let problem = answer.problem(*status, code);
        assert_eq!(problem["instance"], path.split('?').next().unwrap());
    }
    let named = api.get("/jobs?limit=x").await.json();
    assert_eq!(named["fields"][0]["path"], "limit");
    let unknown = api.get("/jobs?stat=failed").await.json();
    assert_eq!(unknown["fields"][0]["path"], "stat");
    let allowed = api.send(request("PUT", "/sessions").body(Body::empty()).unwrap()).await;
    assert!(allowed.headers["allow"].to_str().unwrap().contains("POST"));
}

#[tokio::test]
async fn idempotency_keys_and_request_ids_are_sane() {
    let api = Api::start().await;
    let long = "k".repeat(201);
    for key in ["", "a b", "é", &long] {
        let request = request("POST", "/agents/helper/chat").header("idempotency-key", key);
        let problem = api.send(with_json(request, &json!({"message": "m"}))).await;
        let problem = problem.problem(400, "INVALID_REQUEST");
        assert_eq!(problem["fields"][0]["path"], "Idempotency-Key");
    }
    assert!(api.is_empty().await);
    let with_id = async |id: &str| {
        let request = request("GET", "/healthz").header("x-request-id", id);
        api.send(request.body(Body::empty()).unwrap()).await.headers["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(with_id("mine-1.2:3_4").await, "mine-1.2:3_4");
    for bad in ["", "a b", "a\"b", &"x".repeat(129)] {
        let id: uuid::Uuid = with_id(bad).await.parse().unwrap();
        assert_eq!(id.get_version_num(), 7);
    }
}
