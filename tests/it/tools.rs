//! Tools: what they bring is told, stored and counted as it happens, and what is sent meanwhile is heard.

use roundhouse_oracle::RecordedRequest;
use serde_json::{Value, json};

use crate::support::{Client, Deployment, Gate, Kind, Sleepers, names_of, on, text};

const CANCELLED: &str = "(target session cancelled)";

on!(a_tool_is_used_and_all_of_it_is_told: Embedded, Distributed);
async fn a_tool_is_used_and_all_of_it_is_told(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();

    let events = client.stream_with("tooled", None, "sleep 0.2 then say hi").await.all().await;

    let told = names_of(&events, &["message.completed", "tool.started", "tool.completed", "done", "error"]);
    let row = "message.completed";
    assert_eq!(told, [row, "tool.started", row, "tool.completed", row, "done"]);
    let find = |name: &str| &events.iter().find(|event| event.name == name).unwrap().data;
    let (called, started, completed, done) =
        (find(row), find("tool.started"), find("tool.completed"), find("done"));
    let call = &called["message"]["toolCalls"][0];
    assert_eq!((&call["name"], &started["name"]), (&json!("shell"), &json!("shell")));
    assert_eq!((&call["id"], &call["id"]), (&started["toolCallId"], &completed["toolCallId"]));
    assert_eq!(started["input"]["command"], "sleep 0.2 && echo hi");
    assert_eq!((&completed["success"], &completed["result"]), (&json!(true), &json!("hi\n")));
    assert_eq!((text(&done["content"]).trim(), &done["iterations"]), ("hi", &json!(2)));
    let requests = deployment.oracle.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(done["tokenUsage"], counted(&requests));

    let session = text(&done["sessionId"]);
    let messages = deployment.other().messages(&session).await;
    let (answer, rest) = messages.split_last().unwrap();
    assert_eq!(rest, ["user: sleep 0.2 then say hi", "assistant: ", "tool: hi\n"]);
    assert_eq!(answer.trim(), "assistant: hi");
    assert_eq!(client.session(&session).await["usage"], counted(&requests));
    deployment.end().await;
}

on!(a_message_sent_while_a_tool_runs_is_answered_by_that_turn: Embedded, Distributed);
async fn a_message_sent_while_a_tool_runs_is_answered_by_that_turn(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("asking").await;
    let mut events = client.follow(&session, None).await;
    let gate = Gate::closed();
    let first = client.waiting_with("asking", &session, "sleep 0 then say x");
    client.have_it_run(&session, &gate.command("hi")).await;
    events.until("tool.started").await;

    let injected = other.waiting_with("asking", &session, "X = 7");
    while events.until("chat.user_message").await.data["content"] != "X = 7" {}
    let own = json!({"message": "say later", "sessionId": session, "onBusy": "enqueue"});
    let request = client.request("POST", "/agents/asking/chat").header("prefer", "respond-async");
    let own = client.send(request.json(&own)).await.json();
    gate.open();

    let (first, injected) = (first.result().await, injected.result().await);
    assert!(text(&first["content"]).contains("hi\n"), "{first}");
    assert!(text(&first["content"]).ends_with("X = 7"), "{first}");
    for same in ["content", "turnId", "messageId", "iterations", "tokenUsage"] {
        assert_eq!(first[same], injected[same], "{same}");
    }
    assert_eq!((&first["injected"], &injected["injected"]), (&json!(false), &json!(true)));
    assert_eq!(first["iterations"], 2);
    let completed = events.until("tool.completed").await.data;
    assert_eq!((&completed["success"], &completed["turnId"]), (&json!(true), &first["turnId"]));
    let delivered = events.until("injection.delivered").await.data;
    assert_eq!((&delivered["turnId"], &delivered["merged"]), (&first["turnId"], &json!([injected["jobId"]])));
    let own = client.ended(&text(&own["jobId"])).await["result"].clone();
    assert_eq!((&own["content"], &own["injected"]), (&json!("later"), &json!(false)));
    assert_ne!(own["turnId"], first["turnId"]);

    let requests = deployment.oracle.requests();
    let seen: Vec<_> = requests.iter().map(shown).collect();
    assert_eq!(seen[1], ["user", "assistant", "tool", "user"], "never between a call and its result");
    assert_eq!(seen[2], ["user", "assistant", "tool", "user", "assistant", "user"]);
    assert_eq!(gate.begun(), 1);
    deployment.end().await;
}

on!(a_cancel_ends_a_tool_and_all_that_it_started: Embedded, Distributed);
async fn a_cancel_ends_a_tool_and_all_that_it_started(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("asking").await;
    assert_eq!(client.chat_with("asking", Some(&session), "X = 5").await.json()["content"], "X = 5");
    let sleepers = Sleepers::new();
    let mut events = client.follow(&session, None).await;
    let first = client.waiting_with("asking", &session, "sleep 0 then say x");
    client.have_it_run(&session, &sleepers.command()).await;
    sleepers.are(2).await;
    let second = other.waiting_with("asking", &session, "say more");
    while events.until("chat.user_message").await.data["content"] != "say more" {}

    let cancelled = cancel(other, &session).await;

    let (first, second) = (first.result().await, second.result().await);
    assert_eq!(cancelled["turnId"], first["turnId"]);
    for result in [&first, &second] {
        assert_eq!((&result["cancelled"], &result["content"]), (&json!(true), &json!(CANCELLED)), "{result}");
    }
    sleepers.are(0).await;
    assert_eq!(client.session(&session).await["status"], "idle");
    let tools: Vec<_> =
        client.messages(&session).await.into_iter().filter(|message| message.starts_with("tool: ")).collect();
    assert_eq!(tools.len(), 1, "{tools:?}");
    assert!(tools[0].contains("interrupted"), "{tools:?}");
    let next = client.chat_with("asking", Some(&session), "what is x").await.json();
    assert!(text(&next["content"]).ends_with("X = 5"), "{next}");
    assert_eq!(next["cancelled"], false);
    deployment.end().await;
}

on!(a_turn_that_goes_on_for_too_long_ends_with_a_word: Embedded, Distributed);
async fn a_turn_that_goes_on_for_too_long_ends_with_a_word(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = text(&client.chat_with("limited", None, "X = 5").await.json()["sessionId"]);

    let message = "sleep 0 then say a\nsleep 0 then say b";
    let answer = other.chat_with("limited", Some(&session), message).await;

    assert_eq!(answer.code(), "502 ENGINE_FAILED");
    let detail = text(&answer.json()["detail"]);
    assert!(detail.contains("2 model calls"), "{detail}");
    assert_eq!(deployment.oracle.requests().len(), 3);
    assert_eq!(client.session(&session).await["status"], "error");
    let next = client.chat_with("limited", Some(&session), "what is x").await.json();
    assert!(text(&next["content"]).ends_with("X = 5"), "{next}");
    assert_eq!(client.session(&session).await["status"], "idle");
    assert_eq!(other.session(&session).await["usage"], counted(&deployment.oracle.requests()));
    deployment.end().await;
}

/// The roles of what a model was shown.
fn shown(request: &RecordedRequest) -> Vec<String> {
    request.json()["messages"].as_array().unwrap().iter().map(|message| text(&message["role"])).collect()
}

/// What the provider has counted for all of these together.
pub(crate) fn counted(requests: &[RecordedRequest]) -> Value {
    let sum = |part: fn(roundhouse_oracle::Usage) -> u64| -> u64 {
        requests.iter().filter_map(|request| request.usage).map(part).sum()
    };
    json!({
        "input": sum(|usage| usage.input_tokens - usage.cached_tokens),
        "output": sum(|usage| usage.output_tokens),
        "cache": sum(|usage| usage.cached_tokens),
        "cost": null,
    })
}

/// Cancels what a session does.
pub(crate) async fn cancel(client: &Client, session: &str) -> Value {
    let answer = client.send(client.request("POST", &format!("/sessions/{session}/cancel"))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}
