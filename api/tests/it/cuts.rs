//! Trim, fork, reset and the deletion of a message: their shapes, and what is refused.

use axum::body::Body;
use axum::http::StatusCode;
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Cut, EventName, Fork, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::WorkEnd;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Options, heard, request, with_json};

/// A session with two turns; returns the ids of its messages.
async fn talked(api: &Api) -> (SessionId, Vec<i64>) {
    let session = api.session().await;
    for text in ["one", "two"] {
        let body = json!({"message": text, "sessionId": session});
        let answer = async { api.begin_when_rung(session).await.answer("ok").await.is_none() };
        let (_, idle) = tokio::join!(api.chat(&body), answer);
        assert!(idle);
    }
    let messages = api.get(&format!("/sessions/{session}/messages")).await.json();
    let ids = messages["items"].as_array().unwrap().iter().map(|message| message["id"].as_i64().unwrap());
    (session, ids.collect())
}

async fn delete(api: &Api, path: &str) -> Answer {
    api.send(request("DELETE", path).body(Body::empty()).unwrap()).await
}

fn ready() -> WorkEnd {
    WorkEnd::Ready { native: None, cwd: String::new() }
}

#[tokio::test]
async fn a_trim_says_what_it_did() {
    let api = Api::start().await;
    for by_query in [true, false] {
        let (session, ids) = talked(&api).await;
        let path = format!("/sessions/{session}/messages");
        let path =
            if by_query { format!("{path}?after={}", ids[1]) } else { format!("{path}/after/{}", ids[1]) };
        let (answer, work) = tokio::join!(delete(&api, &path), api.cut_when_rung(session, ready()));
        assert!(matches!(work.cut, Cut::Trim { at } if at.0 == ids[1]), "{work:?}");
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let session = api.get(&format!("/sessions/{session}")).await.json();
        assert_eq!(session["lastMessageId"], ids[1]);
        let expected = json!({"deleted": 2, "claudeForked": false, "engineForked": false,
            "contextSource": "replay", "session": session});
        assert_eq!(answer.json(), expected);
        let job = api.get(&format!("/jobs/{}", work.job)).await.json();
        let expected = json!({"sessionId": session["id"], "deleted": 2, "claudeForked": false,
            "engineForked": false, "contextSource": "replay"});
        assert_eq!(
            (&job["kind"], &job["state"], &job["result"]),
            (&json!("trim"), &json!("succeeded"), &expected)
        );
    }
}

#[tokio::test]
async fn a_fork_is_a_new_session() {
    let api = Api::start().await;
    let (session, ids) = talked(&api).await;
    let path = format!("/sessions/{session}/fork");
    let body = json!({"upToMessageId": ids[2], "title": "branch", "requireAnchor": false});
    let (answer, work) = tokio::join!(api.call("POST", &path, &body), api.cut_when_rung(session, ready()));
    let Cut::Fork(Fork { into, at, title, .. }) = work.cut else { panic!("{work:?}") };
    assert_eq!((at.map(|at| at.0), title.as_deref()), (Some(ids[2]), Some("branch")));
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    assert_eq!(answer.headers["location"], format!("/sessions/{into}").as_str());
    let fork = api.get(&format!("/sessions/{into}")).await.json();
    assert_eq!((&fork["parentSessionId"], &fork["messageCount"]), (&json!(session), &json!(3)));
    let expected = json!({"sessionId": into, "session": fork, "claudeForked": false, "engineForked": false,
        "contextSource": "replay"});
    assert_eq!(answer.json(), expected);

    // Without a body: all of it.
    let bare = api.send(request("POST", &path).body(Body::empty()).unwrap());
    let (answer, _) = tokio::join!(bare, api.cut_when_rung(session, ready()));
    assert_eq!((answer.status, &answer.json()["session"]["messageCount"]), (StatusCode::CREATED, &json!(4)));
}

#[tokio::test]
async fn a_reset_and_a_deletion_say_what_they_did() {
    let api = Api::start().await;
    let (session, ids) = talked(&api).await;
    let mut events =
        api.stream(request("GET", &format!("/sessions/{session}/events")).body(Body::empty()).unwrap()).await;
    let deleted = delete(&api, &format!("/sessions/{session}/messages/{}", ids[3])).await;
    assert_eq!(
        (deleted.status, deleted.json()),
        (StatusCode::OK, json!({"deleted": 1, "contextDrift": false}))
    );
    events.expect("session.snapshot").await;
    events.expect("session.updated").await;
    let reset = api.send(request("POST", &format!("/sessions/{session}/reset")).body(Body::empty()).unwrap());
    let (answer, _) = tokio::join!(reset, api.cut_when_rung(session, ready()));
    let row = api.get(&format!("/sessions/{session}")).await.json();
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({"deleted": 3, "session": row})));
}

#[tokio::test]
async fn what_cannot_be_cut_is_refused() {
    let api = Api::start().await;
    let (session, ids) = talked(&api).await;
    let (_, others) = talked(&api).await;
    let path = format!("/sessions/{session}");
    let unknown = format!("/sessions/{}", SessionId::generate());
    let (first, other) = (ids[0], others[0]);
    for (method, path, status, code, field) in [
        ("DELETE", format!("{path}/messages?after={other}"), 404, "MESSAGE_NOT_FOUND", None),
        ("DELETE", format!("{path}/messages/after/{other}"), 404, "MESSAGE_NOT_FOUND", None),
        ("DELETE", format!("{path}/messages/{other}"), 404, "MESSAGE_NOT_FOUND", None),
        ("DELETE", format!("{path}/messages/-1"), 404, "MESSAGE_NOT_FOUND", None),
        ("DELETE", format!("{unknown}/messages?after={first}"), 404, "SESSION_NOT_FOUND", None),
        ("DELETE", format!("{unknown}/messages/{first}"), 404, "SESSION_NOT_FOUND", None),
        ("POST", format!("{unknown}/fork"), 404, "SESSION_NOT_FOUND", None),
        ("POST", format!("{unknown}/reset"), 404, "SESSION_NOT_FOUND", None),
        ("DELETE", format!("{path}/messages"), 400, "INVALID_REQUEST", Some("after")),
        ("DELETE", format!("{path}/messages?after="), 400, "INVALID_REQUEST", Some("after")),
        ("DELETE", format!("{path}/messages?after=first"), 400, "INVALID_REQUEST", Some("after")),
        ("DELETE", format!("{path}/messages?after=1.5"), 400, "INVALID_REQUEST", Some("after")),
        ("DELETE", format!("{path}/messages?before=1"), 400, "INVALID_REQUEST", None),
        ("DELETE", format!("{path}/messages/after/first"), 400, "INVALID_REQUEST", Some("messageId")),
        ("DELETE", format!("{path}/messages/first"), 400, "INVALID_REQUEST", Some("messageId")),
    ] {
        let answer = api.send(request(method, &path).body(Body::empty()).unwrap()).await;
        let problem = answer.problem(status, code);
        if let Some(field) = field {
            assert_eq!(problem["fields"][0]["path"], field, "{path}: {problem}");
        }
    }
    let fork = format!("{path}/fork");
    for (body, status, code) in [
        (json!({"upToMessageId": other}), 404, "MESSAGE_NOT_FOUND"),
        (json!({"upToMessageId": "first"}), 422, "INVALID_REQUEST"),
        (json!({"unknown": 1}), 422, "INVALID_REQUEST"),
        (json!([]), 422, "INVALID_REQUEST"),
        (json!([first]), 422, "INVALID_REQUEST"),
        (json!({"title": "x".repeat(201)}), 422, "INVALID_REQUEST"),
        (json!({"cwd": "/etc"}), 422, "CWD_NOT_ALLOWED"),
    ] {
        api.call("POST", &fork, &body).await.problem(status, code);
    }
    let mut bare = with_json(request("POST", &fork), &json!({}));
    bare.headers_mut().remove("content-type");
    api.send(bare).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    let row = api.get(&path).await.json();
    assert_eq!((&row["messageCount"], &row["historyVersion"]), (&json!(4), &json!(0)));
}

#[tokio::test]
async fn a_busy_session_is_refused_and_a_failure_is_told() {
    let api = Api::start().await;
    let (session, ids) = talked(&api).await;
    let at = ids[1];
    let cuts = |method, path: String| {
        request(method, &format!("/sessions/{session}{path}")).body(Body::empty()).unwrap()
    };
    let all = || {
        [
            cuts("DELETE", format!("/messages?after={at}")),
            cuts("DELETE", format!("/messages/{at}")),
            cuts("POST", "/fork".to_owned()),
            cuts("POST", "/reset".to_owned()),
        ]
    };
    api.post(&json!({"message": "three", "sessionId": session})).await;
    for request in all() {
        api.send(request).await.problem(409, "SESSION_BUSY");
    }
    api.begin_when_rung(session).await.answer("ok").await;
    for (code, status) in
        [(Code::ClaudeForkFailed, 500), (Code::NoForkAnchor, 409), (Code::EngineForkFailed, 500)]
    {
        let end = WorkEnd::Failed(Problem::with_detail(code, "no"));
        let fork = api.send(cuts("POST", "/fork".to_owned()));
        let (answer, work) = tokio::join!(fork, api.cut_when_rung(session, end));
        let problem = answer.problem(status, code.as_str());
        assert_eq!((&problem["detail"], &problem["jobId"]), (&json!("no"), &json!(work.job)));
    }
    // Cancelled before it began.
    let events = api.listen(session).await;
    let reset = api.send(cuts("POST", "/reset".to_owned()));
    let cancel = async {
        heard(events, EventName::JobAccepted).await;
        let jobs = api.get("/jobs?state=pending").await.json();
        let id = jobs["items"][0]["id"].as_str().unwrap().to_owned();
        api.call("POST", &format!("/jobs/{id}/cancel"), &Value::Null).await
    };
    let path = format!("/sessions/{session}/events");
    let mut told = api.stream(request("GET", &path).body(Body::empty()).unwrap()).await;
    told.expect("session.snapshot").await;
    let (answer, cancelled) = tokio::join!(reset, cancel);
    answer.problem(409, "SESSION_BUSY");
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
    // It has no answer that anybody could take for a message's.
    let job = api.get("/jobs?state=cancelled").await.json()["items"][0].clone();
    assert_eq!(
        (&job["kind"], &job["result"], &job["problem"]),
        (&json!("reset"), &Value::Null, &Value::Null)
    );
    told.expect("job.accepted").await;
    told.expect("job.cancelled").await;
    api.call("PATCH", &format!("/sessions/{session}"), &json!({"title": "next"})).await;
    told.expect("session.updated").await;
}

#[tokio::test]
async fn without_a_worker_nothing_is_cut() {
    let api = Api::with(Options { worker: false, ..Options::default() }).await;
    let session = api.session().await;
    let reset = request("POST", &format!("/sessions/{session}/reset")).body(Body::empty()).unwrap();
    api.send(reset).await.problem(503, "ENGINE_UNAVAILABLE");
    assert_eq!(api.get("/jobs").await.json()["items"], json!([]));
}

#[tokio::test]
async fn a_repeated_trim_is_the_same_trim() {
    let api = Api::start().await;
    let (session, ids) = talked(&api).await;
    let trim = |path: String| {
        let path = format!("/sessions/{session}/messages{path}");
        api.send(request("DELETE", &path).header("idempotency-key", "k").body(Body::empty()).unwrap())
    };
    let by_query = || trim(format!("?after={}", ids[1]));
    let (first, _) = tokio::join!(by_query(), api.cut_when_rung(session, ready()));
    for again in [by_query().await, trim(format!("/after/{}", ids[1])).await] {
        assert_eq!(again.json(), first.json());
    }
    trim(format!("?after={}", ids[0])).await.problem(409, "IDEMPOTENCY_CONFLICT");
}
