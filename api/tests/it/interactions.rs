//! `GET` and `POST /sessions/{id}/interactions`, and what a stream begins with.

use axum::body::Body;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Api, request};

#[tokio::test]
async fn a_question_is_listed_shown_and_answered_once() {
    let api = Api::start().await;
    let session = api.session().await;
    let path = format!("/sessions/{session}/interactions");
    assert_eq!(api.get(&path).await.json()["items"], json!([]));
    api.post(&json!({"message": "m", "sessionId": session})).await;
    let turn = api.begin_when_rung(session).await;

    let asked = turn.ask(json!({"tool": "shell"})).await;

    let listed = api.get(&path).await.json()["items"].clone();
    let question = &listed[0];
    assert_eq!((listed.as_array().unwrap().len(), &question["id"]), (1, &json!(asked.to_string())));
    assert_eq!((&question["kind"], &question["state"]), (&json!("permission"), &json!("open")));
    assert_eq!(question["payload"], json!({"tool": "shell"}));
    assert_eq!(api.get(&format!("/sessions/{session}")).await.json()["status"], "waiting");
    let stream = request("GET", &format!("/sessions/{session}/events")).body(Body::empty()).unwrap();
    let snapshot = api.stream(stream).await.expect("session.snapshot").await;
    assert_eq!((&snapshot.data["interactions"], &snapshot.data["status"]), (&listed, &json!("waiting")));

    let one = format!("{path}/{asked}");
    let answer = json!({"decision": "allow", "updatedInput": {"command": "ls"}});
    let answered = api.call("POST", &one, &answer).await.json();
    assert_eq!((&answered["id"], &answered["state"]), (&question["id"], &json!("answered")));
    api.call("POST", &one, &json!({"decision": "deny"})).await.problem(409, "INTERACTION_RESOLVED");
    assert_eq!(api.get(&path).await.json()["items"], json!([]));
    turn.answer("a").await;
    assert_eq!(api.get(&format!("/sessions/{session}")).await.json()["status"], "idle");
}

#[tokio::test]
async fn an_answer_that_cannot_be_is_refused_and_the_question_stays() {
    let api = Api::start().await;
    let session = api.session().await;
    let other = api.session().await;
    api.post(&json!({"message": "m", "sessionId": session})).await;
    let turn = api.begin_when_rung(session).await;
    let asked = turn.ask(json!({})).await;
    let one = format!("/sessions/{session}/interactions/{asked}");

    let cases: [(Value, &str); 6] = [
        (json!({}), "decision"),
        (json!({"decision": "perhaps"}), "decision"),
        (json!({"decision": "allow", "message": "\u{0}"}), "message"),
        (json!({"decision": "allow", "answers": {"q": "\u{0}"}}), "answers"),
        (json!({"decision": "allow", "updatedInput": {"command": "\u{0}"}}), "updatedInput"),
        (json!({"decision": "allow", "reason": "r"}), "reason"),
    ];
    for (answer, field) in cases {
        let problem = api.call("POST", &one, &answer).await.problem(422, "INVALID_REQUEST");
        assert_eq!(problem["fields"][0]["path"], field, "{answer}");
    }
    let allow = json!({"decision": "allow"});
    let unknown = Uuid::now_v7();
    for (session, id) in [(session.to_string(), unknown.to_string()), (other.to_string(), asked.to_string())]
    {
        let path = format!("/sessions/{session}/interactions/{id}");
        api.call("POST", &path, &allow).await.problem(404, "INTERACTION_NOT_FOUND");
    }
    let path = format!("/sessions/{unknown}/interactions");
    api.get(&path).await.problem(404, "SESSION_NOT_FOUND");
    api.call("POST", &format!("{path}/{asked}"), &allow).await.problem(404, "SESSION_NOT_FOUND");
    api.call("POST", &one, &allow).await.json();
    turn.cancel().await;
}
