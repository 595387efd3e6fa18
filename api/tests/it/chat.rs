//! `POST /agents/{agent}/chat`, answered as JSON.

use axum::http::StatusCode;
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{EventName, JobId, SessionId};
use roundhouse_shared::units::Span;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Options, heard, id, request, with_json, within};

#[tokio::test]
async fn an_answer_is_the_result_of_the_turn() {
    let api = Api::start().await;
    let session = api.session().await;
    let body = json!({"message": "hello", "sessionId": session});
    let (answer, ()) = tokio::join!(api.chat(&body), async {
        let turn = api.begin_when_rung(session).await;
        assert_eq!(turn.mail.model.as_deref(), Some("oracle"));
        turn.answer("hi").await;
    });
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let result = answer.json();
    assert_eq!(result["sessionId"], session.to_string());
    assert_eq!(result["jobId"], result["correlationId"]);
    assert_eq!(
        (
            &result["content"],
            &result["engine"],
            &result["iterations"],
            &result["injected"],
            &result["cancelled"]
        ),
        (&json!("hi"), &json!("openai"), &json!(1), &json!(false), &json!(false))
    );
    assert_eq!(result["tokenUsage"], json!({"input": 3, "output": 2, "cache": 0, "cost": null}));
}

#[tokio::test]
async fn a_new_session_has_what_was_asked_for() {
    let api = Api::start().await;
    let cwd = api.folder.path().canonicalize().unwrap().join("ws");
    let body = json!({
        "message": "hello", "model": "other", "title": "T", "cwd": cwd, "metadata": {"a": [1, null]},
        "attachments": [], "onBusy": "reject", "cancelOnDisconnect": false,
    });
    let admitted = api.post(&body).await;
    assert_eq!(admitted["jobId"], admitted["correlationId"]);
    let session = api.get(&format!("/sessions/{}", admitted["sessionId"].as_str().unwrap())).await.json();
    assert_eq!(
        (&session["model"], &session["title"], &session["cwd"], &session["metadata"], &session["status"]),
        (&json!("other"), &json!("T"), &json!(cwd), &json!({"a": [1, null]}), &json!("queued"))
    );
    let turn = api.begin_when_rung(id(&session["id"])).await;
    assert_eq!(turn.mail.model.as_deref(), Some("other"));
}

#[tokio::test]
async fn a_model_for_one_message_is_not_the_sessions() {
    let api = Api::start().await;
    let session = api.session().await;
    api.post(&json!({"message": "m", "sessionId": session, "model": "once"})).await;
    let turn = api.begin_when_rung(session).await;
    assert_eq!(turn.mail.model.as_deref(), Some("once"));
    assert_eq!(api.get(&format!("/sessions/{session}")).await.json()["model"], "oracle");
}

#[tokio::test]
async fn a_failed_turn_is_a_problem_about_its_job() {
    let api = Api::start().await;
    let session = api.session().await;
    let body = json!({"message": "hello", "sessionId": session});
    let (answer, ()) = tokio::join!(api.chat(&body), async {
        api.begin_when_rung(session).await.fail(Code::EngineFailed, "no credit").await;
    });
    let problem = answer.problem(502, "ENGINE_FAILED");
    assert_eq!(
        (&problem["detail"], &problem["instance"]),
        (&json!("no credit"), &json!("/agents/helper/chat"))
    );
    assert_eq!(problem["sessionId"], session.to_string());
    let job = api.get(&format!("/jobs/{}", problem["jobId"].as_str().unwrap())).await.json();
    assert_eq!((&job["state"], &job["problem"]["code"]), (&json!("failed"), &json!("ENGINE_FAILED")));
}

#[tokio::test]
async fn a_message_to_a_session_at_work_is_injected_and_answered_by_its_own_turn() {
    let api = Api::start().await;
    let session = api.session().await;
    api.post(&json!({"message": "first", "sessionId": session})).await;
    let turn = api.begin_when_rung(session).await;
    let body = json!({"message": "second", "sessionId": session});
    let follow = api.listen(session).await;
    let (answer, ()) = tokio::join!(api.chat(&body), async {
        heard(follow, EventName::UserMessage).await;
        turn.answer("one").await.expect("there is more mail").answer("two").await;
    });
    let result = answer.json();
    assert_eq!((&result["content"], &result["injected"]), (&json!("two"), &json!(true)), "{result}");
}

#[tokio::test]
async fn an_injection_without_an_answer_in_time_names_its_job() {
    let api = Api::with(Options { injection_timeout: Span::from_millis(50), ..Options::default() }).await;
    let session = api.session().await;
    api.post(&json!({"message": "first", "sessionId": session})).await;
    let turn = api.begin_when_rung(session).await;
    let problem = api.chat(&json!({"message": "second", "sessionId": session})).await;
    let problem = problem.problem(504, "INJECTION_TIMEOUT");
    assert_eq!(problem["correlationId"], problem["jobId"]);
    turn.answer("one").await.expect("there is more mail").answer("two").await;
    let job = api.get(&format!("/jobs/{}", problem["jobId"].as_str().unwrap())).await.json();
    assert_eq!((&job["state"], &job["result"]["content"]), (&json!("succeeded"), &json!("two")));
}

#[tokio::test]
async fn a_long_chat_becomes_a_job() {
    let api = Api::with(Options { json_wait_timeout: Span::from_millis(50), ..Options::default() }).await;
    let answer = api.chat(&json!({"message": "long"})).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
    let job = answer.json()["jobId"].as_str().unwrap().to_owned();
    assert_eq!(answer.headers["location"], format!("/jobs/{job}").as_str());
    assert_eq!(api.get(&format!("/jobs/{job}")).await.json()["state"], "pending");
}

#[tokio::test]
async fn a_busy_session_can_refuse_or_queue_or_be_interrupted() {
    let api = Api::start().await;
    let session = api.session().await;
    let first = api.post(&json!({"message": "first", "sessionId": session})).await;
    let turn = api.begin_when_rung(session).await;
    let message = |on_busy: &str| json!({"message": "m", "sessionId": session, "onBusy": on_busy});

    api.chat(&message("reject")).await.problem(409, "SESSION_BUSY");
    let queued = api.post(&message("enqueue")).await;
    let injected = api.post(&message("inject")).await;
    let follow = api.listen(session).await;
    let urgent = api.post(&message("interrupt")).await;
    // What no turn had taken is told by whoever cancelled it.
    heard(follow, EventName::JobCancelled).await;
    turn.cancel().await;

    let state = async |job: &Value| {
        let job = api.get(&format!("/jobs/{}", job["jobId"].as_str().unwrap())).await.json();
        (job["kind"].as_str().unwrap().to_owned(), job["state"].as_str().unwrap().to_owned())
    };
    let states = [state(&first).await, state(&queued).await, state(&injected).await, state(&urgent).await];
    let told: Vec<_> = states.iter().map(|(kind, state)| (kind.as_str(), state.as_str())).collect();
    assert_eq!(
        told,
        [("chat", "cancelled"), ("chat", "claimed"), ("inject", "cancelled"), ("chat", "pending")]
    );
}

async fn keyed(api: &Api, key: &str, body: &Value) -> Answer {
    api.send(with_json(request("POST", "/agents/helper/chat").header("idempotency-key", key), body)).await
}

#[tokio::test]
async fn a_repeated_request_gets_the_answer_of_the_first() {
    let api = Api::start().await;
    let body = json!({"message": "once"});
    let first = with_json(
        request("POST", "/agents/helper/chat")
            .header("idempotency-key", "k")
            .header("prefer", "respond-async"),
        &body,
    );
    let first = api.send(first).await.json();
    let session: SessionId = id(&first["sessionId"]);
    let (waiting, ()) = tokio::join!(keyed(&api, "k", &body), async {
        api.begin_when_rung(session).await.answer("one").await;
    });
    // Another order of fields and other white space are the same request.
    let late = keyed(&api, "k", &json!({"message": "once", "title": null})).await;
    for answer in [waiting, late] {
        let result = answer.json();
        assert_eq!((&result["jobId"], &result["content"]), (&first["jobId"], &json!("one")));
    }
    keyed(&api, "k", &json!({"message": "twice"})).await.problem(409, "IDEMPOTENCY_CONFLICT");
    assert_eq!(api.get("/jobs").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(api.get(&format!("/sessions/{session}")).await.json()["messageCount"], 2);
}

#[tokio::test]
async fn a_client_that_goes_away_finds_its_answer_at_the_job() {
    let api = Api::start().await;
    let session = api.session().await;
    let body = json!({"message": "m", "sessionId": session});
    let turn = tokio::select! {
        answer = api.chat(&body) => panic!("{answer:?}"),
        turn = api.begin_when_rung(session) => turn,
    };
    let job: JobId = turn.mail.jobs[0].job;
    turn.answer("late").await;
    let job = api.get(&format!("/jobs/{job}")).await.json();
    assert_eq!((&job["state"], &job["result"]["content"]), (&json!("succeeded"), &json!("late")));
}

#[tokio::test]
async fn a_client_that_wants_so_cancels_by_going_away() {
    let api = Api::start().await;
    let session = api.session().await;
    let body = json!({"message": "m", "sessionId": session, "cancelOnDisconnect": true});
    let mut notices = api.bus.notices();
    let turn = tokio::select! {
        answer = api.chat(&body) => panic!("{answer:?}"),
        turn = api.begin_when_rung(session) => turn,
    };
    let notice = within(notices.recv()).await.unwrap();
    assert_eq!(notice, roundhouse_shared::bus::Notice::Cancel(session, turn.mail.turn));
}
