//! Trim, fork, reset: what the agent remembers is what is displayed.

use serde_json::{Value, json};

use crate::support::{Deployment, Engine, Gate, Kind, on, text};

const INTERRUPTED: &str = "tool: (interrupted: the turn was ended before this had a result)";

on!(a_trim_is_forgotten_and_told: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_trim_is_forgotten_and_told(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.counted_to_eleven("priced").await;
    let before = client.session(&session).await;
    let mut events = other.follow(&session, None).await;
    events.until("session.snapshot").await;
    let at = client.id_of(&session, "X = 6").await;

    let trimmed = other.trim(&session, at).await.json();

    assert_eq!((&trimmed["deleted"], &trimmed["contextSource"]), (&json!(2), &json!("replay")));
    assert_eq!((&trimmed["claudeForked"], &trimmed["session"]["usage"]), (&json!(false), &before["usage"]));
    assert_eq!(trimmed["session"]["historyVersion"], 1);
    let told = events.until("session.trimmed").await.data;
    assert_eq!((&told["messageId"], &told["deleted"]), (&json!(at), &json!(2)));
    assert_eq!(client.says("priced", &session, "what is x").await, "X = 6");
    let left = ["user: X = 5", "assistant: X = 5", "user: add 1 to x", "assistant: X = 6"];
    assert_eq!(client.counts(&session).await[..4], left);
    // By its other name, and again: all of it is gone, and what was spent is not.
    let at = client.id_of(&session, "X = 5").await;
    let request = client.request("DELETE", &format!("/sessions/{session}/messages/after/{at}"));
    let trimmed = client.send(request).await.json();
    assert_eq!((&trimmed["deleted"], &trimmed["contextSource"]), (&json!(5), &json!("empty")));
    assert_eq!(client.says("priced", &session, "what is x").await, "I don't know X");
    let usage = client.session(&session).await["usage"].clone();
    assert_eq!(usage["input"], counted(&deployment, "input"));
    assert_eq!(usage["output"], counted(&deployment, "output"));
    assert!(before["usage"]["cost"].as_f64() < usage["cost"].as_f64(), "{usage}");
    deployment.end().await;
}

/// What the provider has counted in all.
pub(crate) fn counted(deployment: &Deployment, part: &str) -> Value {
    crate::tools::counted(&deployment.oracle.requests())[part].clone()
}

on!(a_reset_agent_knows_nothing: Embedded, Distributed);
async fn a_reset_agent_knows_nothing(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.counted_to_eleven("oracle").await;
    let mut events = other.follow(&session, None).await;
    events.until("session.snapshot").await;
    let reset = other.reset(&session).await.json();
    assert_eq!((&reset["deleted"], &reset["session"]["messageCount"]), (&json!(6), &json!(0)));
    assert_eq!(events.until("session.reset").await.data["deleted"], 6);
    assert_eq!(client.x(&session).await, "I don't know X");
    assert_eq!(client.counts(&session).await.len(), 2);
    deployment.end().await;
}

on!(a_busy_session_is_not_cut: Embedded, Distributed);
async fn a_busy_session_is_not_cut(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, events) = client.at_work().await;
    let at = client.items(&format!("/sessions/{session}/messages")).await[0]["id"].as_i64().unwrap();
    let one = client.request("DELETE", &format!("/sessions/{session}/messages/{at}"));
    for refused in [
        other.trim(&session, at).await,
        other.fork(&session, &json!({})).await,
        other.reset(&session).await,
        client.send(one).await,
    ] {
        assert_eq!(refused.code(), "409 SESSION_BUSY");
    }
    deployment.oracle.hurry();
    assert_eq!(events.all().await.pop().unwrap().name, "done");
    assert_eq!(other.fork(&session, &json!({})).await.status, 201);
    assert_eq!(other.trim(&session, at).await.json()["deleted"], 1);
    assert_eq!(other.reset(&session).await.json()["deleted"], 1);
    deployment.end().await;
}

on!(a_cut_in_a_tool_turn_is_what_the_model_is_shown: Embedded, Distributed);
async fn a_cut_in_a_tool_turn_is_what_the_model_is_shown(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let source = client.session_with("asking").await;
    client.says("asking", &source, "X = 1").await;
    let gate = Gate::closed();
    let first = client.waiting_with("asking", &source, "sleep 0 then say a");
    client.have_it_run(&source, &gate.command("a")).await;
    let injected = other.waiting_with("asking", &source, "X = 7");
    deployment.in_reach(Engine::OpenAi, &source, "X = 7").await;
    gate.open();
    first.result().await;
    injected.result().await;
    let all = client.counts(&source).await;
    let call = 3;
    assert_eq!(all[2..5], ["user: sleep 0 then say a", "assistant: ", "user: X = 7"], "{all:?}");
    let messages = client.items(&format!("/sessions/{source}/messages")).await;

    // At the call, at the message that came in its middle, and at the result.
    for (at, x) in [(call, "X = 1"), (call + 1, "X = 7"), (call + 2, "X = 7")] {
        let id = &messages[at]["id"];
        let answer = other.fork(&source, &json!({ "upToMessageId": id })).await.json();
        let fork = text(&answer["sessionId"]);
        let mut expected = all[..=at].to_vec();
        if at < call + 2 {
            expected.push(INTERRUPTED.to_owned());
        }
        assert_eq!(client.counts(&fork).await, expected);
        let answer = client.says("asking", &fork, "what is x").await;
        assert!(answer.ends_with(x), "{answer}");
        let shown = deployment.oracle.requests().pop().unwrap().json();
        let shown: Vec<_> =
            shown["messages"].as_array().unwrap().iter().map(|shown| text(&shown["role"])).collect();
        let expected: &[&str] = match at {
            3 => &["user", "assistant", "user", "assistant", "tool", "user"],
            _ => &["user", "assistant", "user", "assistant", "tool", "user", "user"],
        };
        assert_eq!(shown, expected, "never a call without its result, nor anything between the two");
    }
    let trimmed = client.trim(&source, messages[call]["id"].as_i64().unwrap()).await;
    assert_eq!(trimmed.status, 200, "{}", trimmed.body);
    assert_eq!(client.counts(&source).await[4..], [INTERRUPTED]);
    deployment.end().await;
}

on!(a_cut_at_either_end: Embedded, Distributed);
async fn a_cut_at_either_end(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = client.counted_to_eleven("oracle").await;
    // After the last message nothing goes.
    assert_eq!(client.trim_at(&session, "X = 11").await["deleted"], 0);
    assert_eq!(client.x(&session).await, "X = 11");
    // At a user's message: it is kept, and shown to the model again.
    let trimmed = client.trim_at(&session, "add 5 to x").await;
    assert_eq!((&trimmed["deleted"], &trimmed["contextSource"]), (&json!(3), &json!("replay")));
    assert_eq!(client.x(&session).await, "X = 11\nX = 11", "the answer to both");
    // One message alone.
    let at = client.id_of(&session, "add 1 to x").await;
    let path = format!("/sessions/{session}/messages/{at}");
    let deleted = client.send(client.request("DELETE", &path)).await;
    assert_eq!(deleted.json(), json!({ "deleted": 1, "contextDrift": false }));
    assert_eq!(client.send(client.request("DELETE", &path)).await.code(), "404 MESSAGE_NOT_FOUND");
    client.counts(&session).await;
    // At the first, which nobody has answered then: the agent begins anew.
    let first = client.items(&format!("/sessions/{session}/messages")).await[0]["id"].as_i64().unwrap();
    let trimmed = client.trim(&session, first).await.json();
    assert_eq!(
        (&trimmed["contextSource"], &trimmed["session"]["nativeSessionId"]),
        (&json!("empty"), &Value::Null)
    );
    assert_eq!(client.counts(&session).await, ["user: X = 5"]);
    let answer = client.chat(Some(&session), "what is x").await.json();
    assert_eq!((&answer["content"], &answer["contextSource"]), (&json!("I don't know X"), &json!("empty")));
    deployment.end().await;
}

on!(a_cut_before_or_after_a_compaction: Embedded, Distributed);
async fn a_cut_before_or_after_a_compaction(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = client.session_with("forgetful").await;
    let mut last = String::new();
    for n in 0.. {
        assert!(n < 40, "never compacted");
        last = client.says("forgetful", &session, &format!("X = {n}\nsay {}", "word ".repeat(60))).await;
        if client.session(&session).await["compactSize"] != 0 {
            break;
        }
    }
    let size = client.session(&session).await["compactSize"].clone();
    let messages = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
    let summary = messages.iter().rposition(|message| message["origin"] == "compaction").unwrap();
    assert_eq!(messages.last().unwrap()["content"], last.as_str());
    let fork = async |at: usize| {
        let answer = client.fork(&session, &json!({ "upToMessageId": messages[at]["id"] })).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["session"].clone()
    };
    let after = fork(messages.len() - 1).await;
    assert_eq!((&after["compactSize"], &after["messageCount"]), (&size, &json!(messages.len())));
    let before = fork(1).await;
    assert_eq!((&before["compactSize"], &before["messageCount"]), (&json!(0), &json!(2)));
    assert!(client.says("forgetful", &text(&before["id"]), "what is x").await.ends_with("X = 0"));
    // At the summary it is displayed on, but what it stood for counts again.
    let at = fork(summary).await;
    assert_eq!((&at["compactSize"], &at["messageCount"]), (&json!(0), &json!(summary + 1)));
    let dropped = client.trim(&session, messages[summary]["id"].as_i64().unwrap()).await.json();
    assert_eq!(dropped["session"]["compactSize"], 0);
    let displayed = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
    assert_eq!(displayed.last(), Some(&messages[summary]));
    client.trim(&session, messages[1]["id"].as_i64().unwrap()).await;
    assert!(client.says("forgetful", &session, "what is x").await.ends_with("X = 0"));
    client.counts(&session).await;
    deployment.end().await;
}
