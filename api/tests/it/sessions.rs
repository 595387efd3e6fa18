//! Sessions, their messages and their jobs, as they are read and changed.

use axum::http::StatusCode;
use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::{EventName, SessionId};
use serde_json::{Value, json};

use crate::support::{Api, heard};

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn a_session_has_the_shape_of_the_contract() {
    let api = Api::start().await;
    let answer = api.call("POST", "/sessions", &json!({"agent": "helper", "title": "T"})).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let session = answer.json();
    assert_eq!(answer.headers["location"], format!("/sessions/{}", session["id"].as_str().unwrap()).as_str());
    assert_eq!(
        keys(&session),
        [
            "activeTurnId",
            "agent",
            "archived",
            "compactSize",
            "connectedAt",
            "createdAt",
            "cwd",
            "engine",
            "forkedFromMessageId",
            "historyVersion",
            "id",
            "lastMessageId",
            "messageCount",
            "metadata",
            "model",
            "nativeSessionId",
            "parentSessionId",
            "status",
            "title",
            "updatedAt",
            "usage"
        ]
    );
    assert_eq!(session["usage"], json!({"input": 0, "output": 0, "cache": 0, "cost": null}));
    assert_eq!((&session["model"], &session["cwd"]), (&json!("oracle"), &Value::Null));
    assert!(session["createdAt"].as_str().unwrap().ends_with('Z'));
    let read = api.get(&format!("/sessions/{}", session["id"].as_str().unwrap())).await.json();
    assert_eq!(read, session);
}

#[tokio::test]
async fn a_patch_changes_what_it_names() {
    let api = Api::start().await;
    let path = format!("/sessions/{}", api.session().await);
    let patched = api
        .call("PATCH", &path, &json!({"title": "T", "model": "m", "metadata": {"a": 1}, "archived": true}))
        .await
        .json();
    assert_eq!(
        (&patched["title"], &patched["model"], &patched["metadata"], &patched["archived"]),
        (&json!("T"), &json!("m"), &json!({"a": 1}), &json!(true))
    );
    let cleared = api.call("PATCH", &path, &json!({"title": null})).await.json();
    assert_eq!((&cleared["title"], &cleared["model"]), (&Value::Null, &json!("m")));
    for (body, field) in [
        (json!({"title": 1}), "title"),
        (json!({"agent": "other"}), "agent"),
        (json!({"archived": "x"}), "archived"),
        (json!({"metadata": 1}), "metadata"),
        (json!({"model": " "}), "model"),
    ] {
        let problem = api.call("PATCH", &path, &body).await.problem(422, "INVALID_REQUEST");
        assert_eq!(problem["fields"][0]["path"], field);
    }
    let unknown = "/sessions/018f0000-0000-7000-8000-000000000000";
    api.call("PATCH", unknown, &json!({"title": "T"})).await.problem(404, "SESSION_NOT_FOUND");
}

/// The ids of all pages of a list.
async fn pages(api: &Api, path: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = None::<String>;
    loop {
        let next = cursor.map_or(path.to_owned(), |cursor| format!("{path}&cursor={cursor}"));
        let page = api.get(&next).await.json();
        let items = page["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2);
        ids.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn lists_are_paged_from_the_newest() {
    let api = Api::start().await;
    let (mut sessions, mut jobs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let admitted = api.post(&json!({"message": "m"})).await;
        sessions.push(admitted["sessionId"].as_str().unwrap().to_owned());
        jobs.push(admitted["jobId"].as_str().unwrap().to_owned());
    }
    jobs.reverse();
    assert_eq!(pages(&api, "/jobs?limit=2").await, jobs);
    let mut listed = pages(&api, "/sessions?limit=2").await;
    listed.sort_unstable();
    sessions.sort_unstable();
    assert_eq!(listed, sessions);
    assert_eq!(pages(&api, "/sessions?limit=2&status=idle&agent=helper").await, [""; 0]);
    assert_eq!(
        pages(&api, &format!("/jobs?limit=2&state=pending&kind=chat&sessionId={}", sessions[0])).await.len(),
        1
    );
    assert_eq!(pages(&api, "/jobs?limit=2&state=failed").await, [""; 0]);
}

#[tokio::test]
async fn messages_are_paged_both_ways() {
    let api = Api::start().await;
    let session = api.session().await;
    for text in ["1", "2", "3"] {
        api.post(&json!({"message": text, "sessionId": session, "onBusy": "enqueue"})).await;
    }
    let list = async |query: &str| {
        let page = api.get(&format!("/sessions/{session}/messages?{query}")).await.json();
        let texts: Vec<_> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["content"].as_str().unwrap().to_owned())
            .collect();
        (texts, page["nextCursor"].as_str().map(ToOwned::to_owned))
    };
    let (texts, next) = list("limit=2").await;
    assert_eq!(texts, ["1", "2"]);
    let (texts, end) = list(&format!("limit=2&after={}", next.unwrap())).await;
    assert_eq!((texts.as_slice(), end), (["3".to_owned()].as_slice(), None));
    let (texts, next) = list("limit=2&before=1000000").await;
    assert_eq!(texts, ["2", "3"]);
    let (texts, end) = list(&format!("limit=2&before={}", next.unwrap())).await;
    assert_eq!((texts.as_slice(), end), (["1".to_owned()].as_slice(), None));
    let page = api.get(&format!("/sessions/{session}/messages?limit=1")).await.json();
    assert_eq!(
        keys(&page["items"][0]),
        [
            "attachments",
            "cacheTokens",
            "cancelled",
            "content",
            "cost",
            "createdAt",
            "engineMetadata",
            "externalId",
            "failed",
            "id",
            "inputTokens",
            "jobId",
            "model",
            "origin",
            "outputTokens",
            "role",
            "sessionId",
            "thinkingContent",
            "thinkingTokens",
            "toolCallId",
            "toolCalls",
            "truncated",
            "turnId"
        ]
    );
    let empty = api.session().await;
    assert_eq!(
        api.get(&format!("/sessions/{empty}/messages")).await.json(),
        json!({"items": [], "nextCursor": null})
    );
}

#[tokio::test]
async fn a_job_has_the_shape_of_the_contract() {
    let api = Api::start().await;
    let session = api.session().await;
    let admitted = api.post(&json!({"message": "m", "sessionId": session})).await;
    let path = format!("/jobs/{}", admitted["jobId"].as_str().unwrap());
    let waiting = api.get(&path).await.json();
    assert_eq!(
        keys(&waiting),
        [
            "agent",
            "attempt",
            "createdAt",
            "endedAt",
            "id",
            "kind",
            "messageId",
            "problem",
            "ranMs",
            "result",
            "sessionId",
            "startedAt",
            "state",
            "turnId",
            "waitedMs",
            "workerId"
        ]
    );
    assert_eq!((&waiting["attempt"], &waiting["ranMs"]), (&json!(0), &Value::Null));
    let turn = api.begin_when_rung(session).await;
    let running = api.get(&format!("/sessions/{session}")).await.json();
    assert_eq!((&running["status"], &running["activeTurnId"]), (&json!("running"), &json!(turn.mail.turn)));
    assert!(running["connectedAt"].is_string());
    turn.answer("a").await;
    let done = api.get(&path).await.json();
    assert_eq!(
        (&done["state"], &done["attempt"], &done["workerId"]),
        (&json!("succeeded"), &json!(1), &json!(api.worker))
    );
    assert!(done["ranMs"].is_i64() && done["endedAt"].is_string());
}

#[tokio::test]
async fn cancels_say_what_they_did() {
    let api = Api::start().await;
    let session = api.session().await;
    let cancel = format!("/sessions/{session}/cancel");
    assert_eq!(
        api.call("POST", &cancel, &json!({})).await.json(),
        json!({"cancelled": false, "turnId": null})
    );
    let admitted = api.post(&json!({"message": "m", "sessionId": session})).await;
    let turn = api.begin_when_rung(session).await;
    let by_job = format!("/jobs/{}/cancel", admitted["jobId"].as_str().unwrap());
    let expected = json!({"cancelled": true, "turnId": turn.mail.turn});
    assert_eq!(api.call("POST", &by_job, &json!({})).await.json(), expected);
    assert_eq!(api.call("POST", &cancel, &json!({})).await.json(), expected);
    turn.cancel().await;
    assert_eq!(
        api.call("POST", &by_job, &json!({})).await.json(),
        json!({"cancelled": false, "turnId": null})
    );
}

#[tokio::test]
async fn a_busy_session_is_deleted_only_by_force() {
    let api = Api::start().await;
    let session: SessionId = api.session().await;
    let path = format!("/sessions/{session}");
    let waiting = json!({"message": "m", "sessionId": session});
    api.post(&json!({"message": "queued", "sessionId": session, "onBusy": "enqueue"})).await;
    let turn = api.begin_when_rung(session).await;
    api.call("DELETE", &path, &json!(null)).await.problem(409, "SESSION_BUSY");
    let mut notices = api.bus.notices();
    let forced = format!("{path}?force=true");
    let follow = api.listen(session).await;
    let (deleted, answer, ()) = tokio::join!(
        async {
            heard(follow, EventName::UserMessage).await;
            api.call("DELETE", &forced, &json!(null)).await
        },
        api.chat(&waiting),
        async {
            // As a worker hears of it.
            while !matches!(notices.recv().await.unwrap(), Notice::Cancel(..)) {}
            turn.cancel().await;
        }
    );
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text);
    let result = answer.json();
    assert_eq!((&result["cancelled"], &result["injected"]), (&json!(true), &json!(true)), "{result}");
    api.get(&path).await.problem(404, "SESSION_NOT_FOUND");
    let idle = format!("/sessions/{}", api.session().await);
    assert_eq!(api.call("DELETE", &idle, &json!(null)).await.status, StatusCode::NO_CONTENT);
}
