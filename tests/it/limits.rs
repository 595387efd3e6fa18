//! What ends a turn before its model does, and what keeps a long conversation within its window.

use crate::support::{Answer, Deployment, Kind, on, text};

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
