//! Trim, fork and reset of sessions that Claude Code runs: what is displayed is what it remembers.

use serde_json::{Value, json};

use crate::support::{Deployment, Engine, Kind, native_of, on, text};

const AGENT: &str = "claude";

on!(a_fork_says_6_while_its_source_says_11: Embedded, Distributed);
async fn a_fork_says_6_while_its_source_says_11(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let source = client.counted_to_eleven(AGENT).await;
    let native = native_of(client, &source).await;
    let at = client.id_of(&source, "X = 6").await;

    let forked = other.fork(&source, &json!({ "upToMessageId": at, "requireAnchor": true })).await;

    assert_eq!(forked.status, 201, "{}", forked.body);
    let forked = forked.json();
    assert_eq!((&forked["claudeForked"], &forked["engineForked"]), (&json!(true), &json!(true)));
    assert_eq!(forked["contextSource"], "native");
    assert_eq!(forked["session"]["usage"]["output"], 0);
    let first = text(&forked["sessionId"]);
    assert_ne!(native_of(client, &first).await, native);
    assert_eq!(client.counts(&first).await.len(), 4);
    assert_eq!(deployment.recalls(client, AGENT, &first).await, "X = 6");
    assert_eq!(deployment.recalls(other, AGENT, &source).await, "X = 11");
    // Its anchors are its own: neither is one of the source, and both can be cut at.
    let anchors = async |session: &str| -> Vec<Value> {
        let messages = client.items(&format!("/sessions/{session}/messages")).await;
        let assistants = messages.iter().filter(|message| message["role"] == "assistant");
        assistants.map(|message| message["engineMetadata"]["claude_uuid"].clone()).collect()
    };
    let (ours, theirs) = (anchors(&first).await, anchors(&source).await);
    assert!(ours.iter().all(|anchor| anchor.is_string() && !theirs.contains(anchor)), "{ours:?} {theirs:?}");
    let at = client.said(&first, "X = 5").await;
    let second = other.fork_natively(&first, at).await;
    assert_eq!(deployment.recalls(client, AGENT, &second).await, "X = 5");
    assert_eq!(other.trim_natively(&first, at).await["deleted"], 4);
    assert_eq!(deployment.recalls(client, AGENT, &first).await, "X = 5");
    client.counts(&first).await;
    assert_eq!(native_of(client, &source).await, native, "the source is as it was");
    deployment.end().await;
}

on!(a_trimmed_session_goes_on_from_there: Embedded, Distributed);
async fn a_trimmed_session_goes_on_from_there(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.counted_to_eleven(AGENT).await;
    let before = client.session(&session).await;
    let mut native = native_of(client, &session).await;
    // A checkpoint of a file, as the CLI keeps them for some sessions.
    let history = deployment.claude_dir().join("file-history").join(&native);
    std::fs::create_dir_all(&history).unwrap();
    assert!(deployment.files_of(&native).len() > 1);
    let mut events = other.follow(&session, None).await;
    events.until("session.snapshot").await;

    for (at, x, deleted) in [("X = 6", "X = 6", 2), ("X = 5", "X = 5", 4)] {
        let at = client.said(&session, at).await;
        let trimmed = other.trim_natively(&session, at).await;

        assert_eq!(trimmed["deleted"], deleted);
        assert_eq!(events.until("session.trimmed").await.data["deleted"], deleted);
        let next = native_of(client, &session).await;
        assert_ne!(next, native);
        deployment.forgotten(&native).await;
        assert_eq!(deployment.recalls(client, AGENT, &session).await, x);
        native = next;
    }
    assert_eq!(native_of(client, &session).await, native, "a chat does not change it");
    assert!(before["usage"]["output"].as_i64() < client.session(&session).await["usage"]["output"].as_i64());
    // Nothing of the last one is left either.
    let reset = other.reset(&session).await.json();
    assert_eq!((&reset["deleted"], &reset["session"]["nativeSessionId"]), (&json!(4), &Value::Null));
    deployment.forgotten(&native).await;
    assert_eq!(deployment.recalls(client, AGENT, &session).await, "I don't know X");
    let native = native_of(client, &session).await;
    let deleted = client.send(client.request("DELETE", &format!("/sessions/{session}"))).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    deployment.forgotten(&native).await;
    deployment.end().await;
}

on!(what_nobody_has_answered_is_no_memory: Embedded, Distributed);
async fn what_nobody_has_answered_is_no_memory(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.counted_to_eleven(AGENT).await;
    let native = native_of(client, &session).await;
    let first = client.id_of(&session, "X = 5").await;

    // At a message that has been answered by then: it is kept, and goes in front of the next one, once.
    let at = client.id_of(&session, "add 5 to x").await;
    let trimmed = other.trim(&session, at).await.json();
    assert_eq!((&trimmed["deleted"], &trimmed["contextSource"]), (&json!(1), &json!("native")));
    let answer = client.says(AGENT, &session, "what is x").await;
    assert_eq!(answer, "X = 11\nX = 11", "the answer to both");
    assert_eq!(deployment.told_last().last().unwrap(), "add 5 to x\n\nwhat is x");
    assert_eq!(deployment.recalls(client, AGENT, &session).await, "X = 11");
    assert_eq!(deployment.told_last().join("\n").matches("add 5 to x").count(), 1);

    // At the first message, which nobody has answered then: nothing is remembered, not even that.
    let trimmed = other.trim(&session, first).await.json();
    assert_eq!(
        (&trimmed["contextSource"], &trimmed["session"]["nativeSessionId"], &trimmed["claudeForked"]),
        (&json!("empty"), &Value::Null, &json!(false))
    );
    deployment.forgotten(&native).await;
    let answer = client.chat_with(AGENT, Some(&session), "what is x").await.json();
    assert_eq!((&answer["content"], &answer["contextSource"]), (&json!("I don't know X"), &json!("empty")));
    assert_eq!(client.counts(&session).await.len(), 3);
    deployment.end().await;
}

on!(what_has_failed_before_a_cut_is_not_done_after_it: Embedded);
async fn what_has_failed_before_a_cut_is_not_done_after_it(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let client = deployment.client();
    let session = client.session_with(AGENT).await;
    client.says(AGENT, &session, "X = 4").await;
    let failed = client.chat_with(AGENT, Some(&session), "fail 400").await;
    assert_eq!(failed.code(), "502 ENGINE_FAILED");
    let at = client.id_of(&session, "fail 400").await;

    let fork = client.fork_natively(&session, at).await;
    assert_eq!(client.says(AGENT, &fork, "what is x").await, "X = 4");
    assert_eq!(client.trim_natively(&session, at).await["deleted"], 0);
    assert_eq!(client.says(AGENT, &session, "what is x").await, "X = 4");
    deployment.end().await;
}

on!(a_single_message_is_displayed_no_more_and_remembered: Embedded);
async fn a_single_message_is_displayed_no_more_and_remembered(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let client = deployment.client();
    let session = client.session_with(AGENT).await;
    client.says(AGENT, &session, "X = 5").await;
    let at = client.id_of(&session, "X = 5").await;
    let path = format!("/sessions/{session}/messages/{at}");
    let deleted = client.send(client.request("DELETE", &path)).await;
    assert_eq!(deleted.json(), json!({ "deleted": 1, "contextDrift": true }));
    assert_eq!(client.says(AGENT, &session, "what is x").await, "X = 5");
    assert_eq!(client.counts(&session).await.len(), 3);
    deployment.end().await;
}
