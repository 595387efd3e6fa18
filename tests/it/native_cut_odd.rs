//! Cuts of Claude Code's sessions where something is not as it should be.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Client, Deployment, Engine, Kind, Options, native_of, on, text, until};

const AGENT: &str = "claude";

on!(without_anchors_the_messages_are_told_again: Embedded, Distributed);
async fn without_anchors_the_messages_are_told_again(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.counted_to_eleven(AGENT).await;
    let native = native_of(client, &session).await;
    deployment.sql("UPDATE messages SET engine_metadata = NULL").await;
    let at = client.id_of(&session, "X = 6").await;

    let refused = client.fork(&session, &json!({ "upToMessageId": at, "requireAnchor": true })).await;

    assert_eq!(refused.code(), "409 NO_FORK_ANCHOR");
    assert_eq!(client.items("/sessions").await.len(), 1, "nothing was created");
    let forked = client.fork(&session, &json!({ "upToMessageId": at })).await.json();
    assert_eq!((&forked["claudeForked"], &forked["contextSource"]), (&json!(false), &json!("replay")));
    assert_eq!(forked["session"]["nativeSessionId"], Value::Null);
    assert_eq!(deployment.recalls(other, AGENT, &text(&forked["sessionId"])).await, "X = 6");
    let trimmed = client.trim(&session, at).await.json();
    assert_eq!((&trimmed["claudeForked"], &trimmed["contextSource"]), (&json!(false), &json!("replay")));
    assert_eq!(trimmed["session"]["nativeSessionId"], Value::Null);
    deployment.forgotten(&native).await;
    let answer = other.chat_with(AGENT, Some(&session), "what is x").await.json();
    assert_eq!((&answer["content"], &answer["contextSource"]), (&json!("X = 6"), &json!("replay")));
    // From here on it has a conversation and anchors again.
    let at = answer["messageId"].as_i64().unwrap();
    assert_eq!(deployment.recalls(client, AGENT, &session).await, "X = 6");
    client.trim_natively(&session, at).await;
    assert_eq!(deployment.recalls(client, AGENT, &session).await, "X = 6");
    deployment.end().await;
}

on!(what_cannot_be_deleted_is_no_clients_business: Embedded);
async fn what_cannot_be_deleted_is_no_clients_business(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let client = deployment.client();
    let session = client.counted_to_eleven(AGENT).await;
    let native = native_of(client, &session).await;
    // Where nobody may delete a folder that is not empty.
    let obstacle = deployment.transcript(&native).with_extension("jsonl.partial");
    fs::create_dir_all(obstacle.join("in the way")).unwrap();

    client.trim_natively(&session, client.id_of(&session, "X = 6").await).await;

    deployment.apis[0].logged(&["a native session was not deleted", &native]).await;
    assert!(!deployment.files_of(&native).is_empty());
    assert_eq!(deployment.recalls(client, AGENT, &session).await, "X = 6");
    deployment.end().await;
}

on!(a_cut_at_what_claude_said_by_itself_tells_it_what_is_displayed_before: Embedded);
async fn a_cut_at_what_claude_said_by_itself_tells_it_what_is_displayed_before(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let client = deployment.client();
    let session = client.session_with(AGENT).await;
    client.says(AGENT, &session, "background 1 then say behind").await;
    // Two model calls of ours; the third is made once the command has ended.
    until("the turn that nobody asked for", async || {
        let ended = deployment.oracle.requests().iter().filter(|made| !made.in_flight()).count();
        (ended == 3).then_some(())
    })
    .await;
    client.says(AGENT, &session, "X = 9").await;
    let messages = client.items(&format!("/sessions/{session}/messages")).await;
    let by_itself = messages.iter().position(|message| message["origin"] == "autonomous").unwrap();
    let at = messages[by_itself]["id"].as_i64().unwrap();
    // It may be heard only when the next message is there already, and then it is displayed behind that.
    let is_known = messages[..by_itself].iter().any(|message| message["content"] == "X = 9");

    let fork = client.fork_natively(&session, at).await;
    client.trim_natively(&session, at).await;

    for cut in [fork, session] {
        let says = client.says(AGENT, &cut, "what is x").await;
        let expected = if is_known { "X = 9" } else { "I don't know X" };
        assert_eq!(says.lines().last(), Some(expected), "{:?}", deployment.told_last());
    }
    deployment.end().await;
}

on!(a_session_keeps_its_engine_whatever_its_agent_is_now: Embedded);
async fn a_session_keeps_its_engine_whatever_its_agent_is_now(kind: Kind) {
    let options = Options { lease: "4s", ..Engine::Claude.options() };
    let mut deployment = Deployment::with(kind, options).await;
    let session = deployment.client().counted_to_eleven(AGENT).await;
    let native = native_of(deployment.client(), &session).await;
    let was = deployment.configuration();

    // Another agent has the engine still.
    deployment.reconfigure(&with_another_engine(&was, |agent| agent == AGENT)).await;
    let client = deployment.client();
    let at = client.said(&session, "X = 6").await;
    let fork = client.fork_natively(&session, at).await;
    assert_eq!(client.session(&fork).await["engine"], "claude-cli");
    let chat = client.chat_with(AGENT, Some(&session), "what is x").await;
    assert_eq!(chat.code(), "503 ENGINE_UNAVAILABLE", "it is no session of the agent's new engine");

    // The agent has another name now.
    deployment.reconfigure(&was.replace("[agents.claude]", "[agents.renamed]")).await;
    let client = deployment.client();
    only_one_worker(client).await;
    let chat = client.chat_with(AGENT, Some(&session), "what is x").await;
    assert_eq!(chat.code(), "404 AGENT_NOT_FOUND");
    let [second, third] =
        [client.fork_natively(&session, at).await, client.fork_natively(&session, at).await];
    client.trim_natively(&second, client.said(&second, "X = 5").await).await;

    // Nobody has it: what copies no conversation can still be done.
    deployment.reconfigure(&with_another_engine(&was, |_| true)).await;
    let client = deployment.client();
    only_one_worker(client).await;
    assert_eq!(client.trim(&session, at).await.code(), "503 ENGINE_UNAVAILABLE");
    assert_eq!(client.fork(&session, &json!({})).await.code(), "503 ENGINE_UNAVAILABLE");
    let left = [native_of(client, &second).await, native_of(client, &third).await];
    let trimmed = client.trim(&second, client.id_of(&second, "X = 5").await).await;
    assert_eq!(
        (trimmed.status, &trimmed.json()["contextSource"]),
        (200, &json!("empty")),
        "{}",
        trimmed.body
    );
    let reset = client.reset(&third).await;
    assert_eq!((reset.status, &reset.json()["deleted"]), (200, &json!(4)), "{}", reset.body);
    // No try is spent on what only its engine can delete.
    deployment.sql("UPDATE doomed_natives SET attempt = 9, due_ms = 0").await;

    deployment.reconfigure(&was).await;
    let client = deployment.client();
    for native in left {
        deployment.forgotten(&native).await;
    }
    assert_eq!(native_of(client, &session).await, native);
    assert_eq!(deployment.recalls(client, AGENT, &fork).await, "X = 6");
    let answer = client.says(AGENT, &session, "what is x").await;
    assert_eq!(answer.lines().last(), Some("X = 11"));
    deployment.end().await;
}

/// Waits until a worker that was stopped counts as gone: until then, others may hope that it is replaced by one like it.
async fn only_one_worker(client: &Client) {
    until("the worker before to be forgotten", async || {
        (client.items("/workers").await.len() == 1).then_some(())
    })
    .await;
}

/// A configuration in which another engine runs these agents of Claude Code's.
fn with_another_engine(configuration: &str, is_meant: impl Fn(&str) -> bool) -> String {
    let change = |agent: &str| {
        let name = agent.split(']').next().unwrap();
        if agent.contains("claude-cli") && is_meant(name) {
            format!(
                "[agents.{name}]\nengine = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n"
            )
        } else {
            format!("[agents.{agent}")
        }
    };
    configuration.split("[agents.").skip(1).map(change).collect()
}
