//! Cuts in the middle of what Claude Code does: within a turn with tools, and around its compactions.

use serde_json::json;

use crate::support::{Deployment, Engine, Gate, Kind, native_of, on, text};

const AGENT: &str = "claude-asking";
const INTERRUPTED: &str = "tool: (interrupted: the turn was ended while this ran)";

on!(a_cut_in_a_tool_turn_is_what_claude_is_shown: Embedded, Distributed);
async fn a_cut_in_a_tool_turn_is_what_claude_is_shown(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let source = client.session_with(AGENT).await;
    client.says(AGENT, &source, "X = 1").await;
    let gate = Gate::closed();
    let first = client.waiting_with(AGENT, &source, "sleep 0 then say a");
    client.have_it_run(&source, &gate.command("a")).await;
    let injected = other.waiting_with(AGENT, &source, "X = 7");
    deployment.in_reach(Engine::Claude, &source, "X = 7").await;
    gate.open();
    first.result().await;
    injected.result().await;
    let all = client.counts(&source).await;
    let expected =
        ["user: sleep 0 then say a", "assistant: ", "user: X = 7", "tool: a", "assistant: a\nX = 7"];
    assert_eq!(all[2..], expected);
    let messages = client.items(&format!("/sessions/{source}/messages")).await;
    assert!(messages[5]["engineMetadata"].is_null(), "anchors of results are no client's business");
    let (call, message, result, last) = (3, 4, 5, 6);

    for (at, x) in [(call, "X = 1"), (message, "X = 7"), (result, "X = 7"), (last, "X = 7")] {
        let fork = other.fork_natively(&source, messages[at]["id"].as_i64().unwrap()).await;
        let mut expected = all[..=at].to_vec();
        if at < result {
            expected.push(INTERRUPTED.to_owned());
        }
        assert_eq!(client.counts(&fork).await, expected);
        assert_eq!(deployment.recalls(client, AGENT, &fork).await, x, "cut at {at}");
        assert_eq!(gate.begun(), 1, "the tool is not run again");
    }
    // The copy can be cut there too, and in its place the source.
    let id = messages[last]["id"].as_i64().unwrap();
    let fork = client.fork_natively(&source, id).await;
    let copies = client.items(&format!("/sessions/{fork}/messages")).await;
    other.trim_natively(&fork, copies[result]["id"].as_i64().unwrap()).await;
    assert_eq!(client.counts(&fork).await, all[..last]);
    assert_eq!(deployment.recalls(client, AGENT, &fork).await, "X = 7");
    other.trim_natively(&source, messages[call]["id"].as_i64().unwrap()).await;
    assert_eq!(client.counts(&source).await[call..], [all[call].as_str(), INTERRUPTED]);
    assert_eq!(deployment.recalls(client, AGENT, &source).await, "X = 1");
    deployment.end().await;
}

on!(a_cut_around_a_compaction_of_claudes: Embedded);
async fn a_cut_around_a_compaction_of_claudes(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let client = deployment.client();
    let agent = "claude-commands";
    let session = client.session_with(agent).await;
    let mut events = client.follow(&session, None).await;
    let mut answers = Vec::new();
    for (message, x) in [("X = 5", 5), ("add 1 to x", 6), ("/compact", 6), ("X = 20", 20), ("add 1 to x", 21)]
    {
        let answer = client.chat_with(agent, Some(&session), message).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        // The model has not said the compaction's answer: there the messages are told again.
        let source = if message == "/compact" { "replay" } else { "native" };
        answers.push((answer.json()["messageId"].clone(), format!("X = {x}"), source));
    }
    events.until("context.compacted").await;
    let native = native_of(client, &session).await;
    let transcript = std::fs::read_to_string(deployment.transcript(&native)).unwrap();
    assert!(transcript.contains("compact_boundary"), "nothing was compacted");

    for (at, x, source) in answers.iter().rev() {
        let forked = client.fork(&session, &json!({ "upToMessageId": at })).await.json();
        assert_eq!(forked["contextSource"], *source, "{x}");
        let says = client.says(agent, &text(&forked["sessionId"]), "what is x").await;
        assert_eq!(says.lines().last(), Some(&**x));
    }
    for (at, x, source) in answers.iter().rev().filter(|(.., source)| *source == "native") {
        let trimmed = client.trim(&session, at.as_i64().unwrap()).await.json();
        assert_eq!(
            (&trimmed["contextSource"], &trimmed["session"]["compactSize"]),
            (&json!(source), &json!(0))
        );
        let says = client.says(agent, &session, "what is x").await;
        assert_eq!(says.lines().last(), Some(&**x));
    }
    client.counts(&session).await;
    deployment.end().await;
}

on!(a_fork_needs_nothing_of_its_source: Embedded, Distributed);
async fn a_fork_needs_nothing_of_its_source(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let source = client.session_with("claude").await;
    client.says("claude", &source, "X = 5").await;
    // More than the CLI keeps in the transcript itself.
    let long = "word ".repeat(9_000);
    client.says("claude", &source, &format!("sleep 0 then say {}", long.trim())).await;
    let native = native_of(client, &source).await;
    assert!(std::fs::read_to_string(deployment.transcript(&native)).unwrap().contains("tool-results"));

    let answer = client.fork(&source, &json!({ "requireAnchor": true })).await;
    let fork = text(&answer.json()["sessionId"]);
    let deleted = other.send(client.request("DELETE", &format!("/sessions/{source}"))).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    deployment.forgotten(&native).await;

    assert_eq!(other.says("claude", &fork, "what is x").await, "X = 5");
    let shown = deployment.oracle.requests().pop().unwrap();
    let shown = String::from_utf8_lossy(&shown.body).into_owned();
    assert!(!shown.contains(&native), "nothing names what is gone");
    // What it names is there.
    let copy = native_of(client, &fork).await;
    let (_, named) = shown.split_once(&format!("{copy}/tool-results/")).expect("a large result");
    let name = named.split(|c: char| c.is_whitespace() || "\\\"".contains(c)).next().unwrap();
    let results = deployment.transcript(&copy).with_extension("").join("tool-results");
    assert_eq!(std::fs::read_to_string(results.join(name)).unwrap().trim(), long.trim());
    assert_eq!(other.says("claude", &fork, "add 1 to x").await, "X = 6");
    deployment.end().await;
}
