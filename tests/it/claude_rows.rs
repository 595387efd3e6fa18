//! What is stored of Claude Code's turns: messages with their anchors, what they used, and what nobody asked for.

use std::collections::HashSet;

use roundhouse_oracle::{RecordedRequest, Usage, usage_of};
use serde_json::{Value, json};

use crate::support::{Client, Deployment, Kind, LONG, Options, claude_agent, clis, on, text, until};
use crate::tools::counted;

fn options() -> Options {
    Options { workers: 1, lease: "4s", claude: true, ..Options::default() }
}

async fn rows(client: &Client, session: &str) -> Vec<Value> {
    client.items(&format!("/sessions/{session}/messages?limit=200")).await
}

fn of_role<'a>(rows: &'a [Value], role: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["role"] == role).collect()
}

on!(each_message_of_the_agent_has_its_place_in_the_transcript: Embedded);
async fn each_message_of_the_agent_has_its_place_in_the_transcript(kind: Kind) {
    let deployment = Deployment::with(kind, options()).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    assert_eq!(client.says("claude", &session, "X = 5").await, "X = 5");
    assert_eq!(client.says("claude", &session, "sleep 0 then say hi").await, "hi");
    let inside = client.says("claude", &session, "spawn helper: say inside").await;
    assert!(inside.contains("inside"), "{inside}");
    let refused = client.chat_with("claude", Some(&session), "fail 400").await;
    assert_eq!(refused.code(), "502 ENGINE_FAILED");

    let rows = rows(client, &session).await;

    let roles: Vec<_> = rows.iter().map(|row| text(&row["role"])).collect();
    let tool_turn = ["user", "assistant", "tool", "assistant"];
    // Of the sub-agent there is only what it has answered; of the turn that failed, only what it was asked.
    let expected: Vec<_> = [&["user", "assistant"][..], &tool_turn, &tool_turn, &["user"]].concat();
    assert_eq!(roles, expected, "{rows:?}");
    let entries = deployment.entries(&deployment.native_of(&session).await);
    let written = entries.iter().filter(|entry| entry["type"] == "assistant" && entry["isSidechain"] != true);
    let written: HashSet<_> = written.map(|entry| text(&entry["uuid"])).collect();
    let mut anchors = HashSet::new();
    for row in &rows {
        if row["role"] == "assistant" {
            let anchor = text(&row["engineMetadata"]["claude_uuid"]);
            assert!(written.contains(&anchor) && anchors.insert(anchor), "{row}");
        } else {
            assert_eq!(row["engineMetadata"], Value::Null, "{row}");
        }
    }
    for (call, result) in [(&rows[3], &rows[4]), (&rows[7], &rows[8])] {
        assert_eq!(call["toolCalls"][0]["id"], result["toolCallId"], "{call} {result}");
        assert_eq!(call["turnId"], result["turnId"]);
    }
    assert_eq!(text(&rows[4]["content"]).trim(), "hi");
    assert_eq!(
        (&rows[3]["toolCalls"][0]["name"], &rows[7]["toolCalls"][0]["name"]),
        (&json!("Bash"), &json!("Agent"))
    );

    // An engine without conversations of its own has no places in them.
    let other = client.new_session().await;
    client.chat(Some(&other), "X = 5").await;
    let rows = self::rows(client, &other).await;
    assert!(rows.len() == 2 && rows.iter().all(|row| row["engineMetadata"].is_null()), "{rows:?}");
    assert_eq!(client.session(&other).await["nativeSessionId"], Value::Null);
    deployment.end().await;
}

/// Tokens as they are told and as the provider counted them; costs apart.
fn tokens(usage: &Value) -> Value {
    json!({"input": usage["input"], "output": usage["output"], "cache": usage["cache"], "cost": null})
}

fn nanos(usage: &Value) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "a few cents")]
    let nanos = (usage["cost"].as_f64().expect("a cost") * 1e9).round() as i64;
    nanos
}

on!(each_turn_tells_what_it_used_itself: Embedded, Distributed);
async fn each_turn_tells_what_it_used_itself(kind: Kind) {
    let mut deployment = Deployment::with(kind, options()).await;
    let session = deployment.client().session_with("claude").await;
    let mut costs = Vec::new();
    for message in ["X = 5", "sleep 0 then say hi", "count to 7", "add 1 to x"] {
        if costs.len() == 3 {
            deployment.replace_worker().await;
            deployment.await_agent().await;
        }
        let before = deployment.oracle.requests().len();

        let result = deployment.client().chat_with("claude", Some(&session), message).await.json();

        let requests: Vec<RecordedRequest> = deployment.oracle.requests().split_off(before);
        assert_eq!(result["iterations"], requests.len(), "{message}: {result}");
        assert_eq!(tokens(&result["tokenUsage"]), counted(&requests), "{message}");
        costs.push(nanos(&result["tokenUsage"]));
    }

    // The first turn reads all of the instructions, later ones have them from the cache. A sum would not fall.
    assert!(costs.iter().all(|cost| 0 < *cost), "{costs:?}");
    assert!(costs[2] < costs[0] && costs[3] < costs[0], "{costs:?}");
    let usage = deployment.client().session(&session).await["usage"].clone();
    assert_eq!(tokens(&usage), counted(&deployment.oracle.requests()));
    assert_eq!(nanos(&usage), costs.iter().sum::<i64>());
    deployment.end().await;
}

on!(a_turn_that_does_not_end_well_is_counted_too: Embedded);
async fn a_turn_that_does_not_end_well_is_counted_too(kind: Kind) {
    let agents = claude_agent("claude-once", "permissions = { default = \"allow\" }\nmax_iterations = 1");
    let deployment = Deployment::with(kind, Options { agents, ..options() }).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    let mut events = client.follow(&session, None).await;
    let mut costs = 0;
    for (message, sign) in [(LONG, "message.delta"), ("sleep 600 then say never", "tool.started")] {
        let before = deployment.oracle.requests().len();
        let job = text(&client.later_with("claude", &session, message).await["jobId"]);
        events.until(sign).await;
        client.post(&format!("/sessions/{session}/cancel"), &json!({})).await;

        let result = client.ended(&job).await["result"].clone();

        let mut requests = deployment.oracle.requests().split_off(before);
        for cut in requests.iter_mut().filter(|request| request.usage.is_none()) {
            // Of an answer that was cut off, the provider had told what it has read, and one token.
            let read = usage_of(cut.protocol, &cut.body, "").unwrap();
            cut.usage = Some(Usage { output_tokens: 1, ..read });
        }
        assert_eq!(tokens(&result["tokenUsage"]), counted(&requests), "{message}");
        costs += nanos(&result["tokenUsage"]);
        assert_eq!(nanos(&client.session(&session).await["usage"]), costs);
    }

    let session = client.session_with("claude-once").await;
    let before = deployment.oracle.requests().len();
    let refused = client.chat_with("claude-once", Some(&session), "sleep 0 then say more").await;
    assert_eq!(refused.code(), "502 ENGINE_FAILED");
    let usage = client.session(&session).await["usage"].clone();
    assert_eq!(tokens(&usage), counted(&deployment.oracle.requests()[before..]));
    assert!(0 < nanos(&usage), "{usage}");
    deployment.end().await;
}

on!(what_is_said_between_turns_is_told_and_kept: Embedded, Distributed);
async fn what_is_said_between_turns_is_told_and_kept(kind: Kind) {
    let deployment = Deployment::with(kind, options()).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    let mut events = client.follow(&session, None).await;
    client.says("claude", &session, "background 1 then say behind").await;

    // Nobody says anything more.
    let told = loop {
        let completed = events.until("message.completed").await.data;
        if completed["message"]["origin"] == "autonomous" {
            break completed["message"].clone();
        }
    };
    assert_eq!(rows(client, &session).await.last(), Some(&told));
    assert_eq!(client.session(&session).await["status"], "idle");
    assert_eq!(tokens(&client.session(&session).await["usage"]), counted(&deployment.oracle.requests()));
    // It is told once, and the next turn is on the same process.
    let process = clis(&deployment.native_of(&session).await);
    assert_eq!(client.says("claude", &session, "X = 1").await, "X = 1");
    let all = rows(client, &session).await;
    assert_eq!(all.iter().filter(|row| row["origin"] == "autonomous").count(), 1, "{all:?}");
    assert_eq!(clis(&deployment.native_of(&session).await), process);
    deployment.end().await;
}

on!(a_turn_that_nobody_asked_for_answers_nobody: Embedded, Distributed);
async fn a_turn_that_nobody_asked_for_answers_nobody(kind: Kind) {
    let deployment = Deployment::with(kind, options()).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    for round in 1..=2 {
        let before = deployment.oracle.requests().len();
        let first = client.says("claude", &session, "background 1 then say behind").await;
        assert!(first.contains("background") && !first.contains("behind"), "{first}");
        // Two model calls of ours; the third is made once the command has ended, and for nobody.
        until("the turn that nobody asked for", async || {
            let ended =
                deployment.oracle.requests().iter().skip(before).filter(|made| !made.in_flight()).count();
            (ended == 3).then_some(())
        })
        .await;

        let next = client.chat_with("claude", Some(&session), &format!("X = {round}")).await.json();

        assert_eq!((&next["content"], &next["injected"]), (&json!(format!("X = {round}")), &json!(false)));
        assert_eq!(tokens(&next["tokenUsage"]), counted(&deployment.oracle.requests()[before + 3..]));
        let rows = rows(client, &session).await;
        let autonomous: Vec<_> = rows.iter().filter(|row| row["origin"] == "autonomous").collect();
        assert_eq!(autonomous.len(), round, "{rows:?}");
        for row in autonomous {
            assert_eq!((&row["role"], &row["jobId"]), (&json!("assistant"), &Value::Null));
            assert!(row["engineMetadata"]["claude_uuid"].is_string(), "{row}");
            assert_ne!(row["turnId"], next["turnId"]);
        }
        assert_eq!(of_role(&rows, "user").len(), 2 * round);
    }
    // What it has said counts as well.
    assert_eq!(tokens(&client.session(&session).await["usage"]), counted(&deployment.oracle.requests()));
    deployment.end().await;
}
