//! What ends a turn before its model does, and what keeps a long conversation within its window.

use serde_json::json;

use crate::script::{Server, calls, roles, says};
use crate::support::{Answer, Deployment, Gate, Kind, Options, agent, on, text, until};

/// The turn failed for this reason, and the session goes on.
async fn failed_with(deployment: &Deployment, agent: &str, failed: &Answer, reason: &str) {
    assert_eq!(failed.code(), "502 ENGINE_FAILED", "{}", failed.body);
    let problem = failed.json();
    assert!(text(&problem["detail"]).contains(reason), "{}", failed.body);
    let session = text(&problem["sessionId"]);
    let next = deployment.other().chat_with(agent, Some(&session), "say on we go").await;
    // It also answers what the failed turn left open.
    assert!(next.status == 200 && text(&next.json()["content"]).ends_with("on we go"), "{}", next.body);
}

on!(a_turn_that_takes_too_long_ends: Embedded, Distributed);
async fn a_turn_that_takes_too_long_ends(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let failed = deployment.client().chat_with("hasty", None, "slow 600 count to 50").await;
    failed_with(&deployment, "hasty", &failed, "the turn took longer than 5s").await;
    deployment.end().await;
}

on!(a_turn_that_costs_too_much_makes_no_further_call: Embedded, Distributed);
async fn a_turn_that_costs_too_much_makes_no_further_call(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let failed = deployment.client().chat_with("frugal", None, "sleep 0 then say hi").await;
    failed_with(&deployment, "frugal", &failed, "it has cost").await;
    // The call that asked for the tool, and that of the next message.
    assert_eq!(deployment.oracle.requests().len(), 2);
    deployment.end().await;
}

on!(a_conversation_near_its_window_is_summarised: Embedded, Distributed);
async fn a_conversation_near_its_window_is_summarised(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = client.session_with("forgetful").await;
    let mut events = client.follow(&session, None).await;
    let long = format!("say {}", "blah ".repeat(150));

    for _ in 0..4 {
        let said = client.chat_with("forgetful", Some(&session), &long).await;
        assert_eq!(said.status, 200, "{}", said.body);
    }

    let compacted = events.until("context.compacted").await;
    let stood_for = compacted.data["compactSize"].as_i64().unwrap();
    let row = client.get(&format!("/sessions/{session}")).await.json();
    assert!(0 < stood_for && stood_for <= row["compactSize"].as_i64().unwrap(), "{row}");
    let messages = client.messages(&session).await;
    assert_eq!(messages.iter().filter(|message| message.starts_with("user: ")).count(), 4, "{messages:?}");
    // The model is shown less than what is displayed.
    let last = deployment.oracle.requests().pop().unwrap().json();
    assert!(last["messages"].as_array().unwrap().len() < messages.len(), "{last}");
    deployment.end().await;
}

on!(messages_that_came_at_one_boundary_are_summarised_once: Embedded, Distributed);
async fn messages_that_came_at_one_boundary_are_summarised_once(kind: Kind) {
    let gate = Gate::closed();
    let child = json!({ "agent": "oracle", "message": "say child here", "mode": "async" }).to_string();
    let wait = json!({ "command": gate.command("waited") }).to_string();
    let fill = json!({ "command": "head -c 16000 /dev/zero | tr '\\0' x" }).to_string();
    let replies = [
        calls(&[("a", "spawn_agent", &child), ("b", "shell", &wait)]),
        calls(&[("c", "shell", &fill)]),
        says("the summary"),
        says("done"),
    ];
    let server = Server::start(replies).await;
    let more = "tools = [\"shell\", \"spawn_agent\"]\nspawn = [\"oracle\"]\ncontext_window = 10000";
    let agents = agent("scripted", &server.base_url, more);
    let deployment = Deployment::with(kind, Options { agents, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("scripted").await;
    let mut events = client.follow(&session, None).await;
    let first = client.waiting_with("scripted", &session, "go");
    until("the command to begin", async || (gate.begun() == 1).then_some(())).await;
    // Long, so that the next result is too much.
    let injected =
        other.later_with("scripted", &session, &format!("by the way {}", "blah ".repeat(4000))).await;
    until("the child's word", async || {
        other.items(&format!("/jobs?sessionId={session}&kind=wake")).await.pop()
    })
    .await;
    gate.open();

    // The first message, both calls and results, and what came at the boundary: two, of which each is one.
    assert_eq!(events.until("context.compacted").await.data["compactSize"], 6);
    let first = first.result().await;
    let injected = client.ended(&text(&injected["jobId"])).await["result"].clone();
    assert_eq!((&first["content"], &first["turnId"]), (&json!("done"), &injected["turnId"]));
    let next = client.chat_with("scripted", Some(&session), "on").await.json();
    assert_eq!(next["content"], "done");
    let shown = server.requests().pop().unwrap().body;
    // A summary that nobody's message follows is shown as one.
    assert_eq!(roles(&shown), ["user", "assistant", "tool", "assistant", "user"]);
    for word in ["by the way", "child here"] {
        assert!(!shown["messages"].to_string().contains(word), "{word} is shown again");
    }
    deployment.end().await;
}
