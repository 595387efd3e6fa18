//! What Claude Code asks a person: whether it may, which one, and whether a plan is good.

use serde_json::{Value, json};

use crate::support::{Client, Deployment, Gate, Kind, Options, claude_agent, on, text};

const SAY: &str = "sleep 0 then say yes";

fn options() -> Options {
    Options { workers: 1, lease: "4s", claude: true, ..Options::default() }
}

/// What the agent answers once a person has answered its question.
async fn answered(client: &Client, agent: &str, session: &str, message: &str, answer: &Value) -> String {
    let caller = client.waiting_with(agent, session, message);
    let question = client.asked(session).await;
    let decided = client.decide(session, &question, answer).await;
    assert_eq!(decided.status, 200, "{}", decided.body);
    text(&caller.result().await["content"])
}

on!(a_call_runs_as_a_person_says: Embedded, Distributed);
async fn a_call_runs_as_a_person_says(kind: Kind) {
    let deployment = Deployment::with(kind, options()).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("claude-asking").await;
    let mut events = client.follow(&session, None).await;
    let caller = client.waiting_with("claude-asking", &session, SAY);

    let asked = events.until("interaction.requested").await.data["interaction"].clone();

    assert_eq!((&asked["kind"], &asked["state"]), (&json!("permission"), &json!("open")));
    assert_eq!(asked["payload"]["tool"], "Bash");
    assert!(text(&asked["payload"]["input"]["command"]).contains("echo yes"), "{asked}");
    assert_eq!(other.session(&session).await["status"], "waiting");
    let snapshot = other.follow(&session, None).await.until("session.snapshot").await.data;
    assert_eq!((&snapshot["interactions"], &snapshot["status"]), (&json!([asked]), &json!("waiting")));
    let allow = json!({"decision": "allow"});
    let (one, two) =
        tokio::join!(client.decide(&session, &asked, &allow), other.decide(&session, &asked, &allow));
    let mut codes = [one.status, two.status];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
    assert_eq!(caller.result().await["content"], "yes");
    let started = events.until("tool.started").await.data;
    assert_eq!(started["toolCallId"], asked["payload"]["toolCallId"]);
    let late = other.decide(&session, &asked, &json!({"decision": "deny"})).await;
    assert_eq!(late.code(), "409 INTERACTION_RESOLVED");
    assert_eq!(client.session(&session).await["status"], "idle");

    for (answer, expected) in [
        (json!({"decision": "deny", "message": "not on a Monday"}), "not on a Monday"),
        (json!({"decision": "allow", "updatedInput": {"command": "echo something else"}}), "something else"),
    ] {
        assert_eq!(answered(client, "claude-asking", &session, SAY, &answer).await, expected);
        // The model was told so.
        let request = deployment.oracle.requests().pop().unwrap().json();
        assert!(request["messages"].to_string().contains(expected), "{request}");
    }
    deployment.end().await;
}

on!(a_question_gets_its_answer: Embedded);
async fn a_question_gets_its_answer(kind: Kind) {
    let deployment = Deployment::with(kind, options()).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    let caller = client.waiting_with("claude", &session, "ask: Which one?");
    let asked = client.asked(&session).await;
    assert_eq!(asked["kind"], "question");
    let question = &asked["payload"]["questions"][0];
    assert_eq!(
        (&question["question"], &question["options"][1]["label"]),
        (&json!("Which one?"), &json!("no"))
    );
    let decided =
        client.decide(&session, &asked, &json!({"decision": "allow", "answers": {"Which one?": "no"}})).await;
    assert_eq!(decided.status, 200, "{}", decided.body);
    let content = text(&caller.result().await["content"]);
    assert!(content.contains("\"Which one?\"=\"no\""), "{content}");

    for (answer, expected) in [
        (json!({"decision": "allow", "message": "neither"}), "\"Which one?\"=\"neither\""),
        (json!({"decision": "deny", "message": "ask my lawyer"}), "ask my lawyer"),
    ] {
        let content = answered(client, "claude", &session, "ask: Which one?", &answer).await;
        assert!(content.contains(expected), "{answer}: {content}");
    }
    deployment.end().await;
}

on!(silence_is_an_answer_too: Embedded);
async fn silence_is_an_answer_too(kind: Kind) {
    let env = vec![("ROUNDHOUSE_INTERACTION_TIMEOUT", "1s".to_owned())];
    let deployment = Deployment::with(kind, Options { env, ..options() }).await;
    let client = deployment.client();
    let session = client.session_with("claude-asking").await;
    for (message, told) in
        [(SAY, "nobody has allowed this call in time"), ("ask: Which one?", "nobody has answered in time")]
    {
        let mut stream = client.stream_with("claude-asking", Some(&session), message).await;
        let resolved = stream.until("interaction.resolved").await.data;
        assert_eq!((&resolved["state"], &resolved["decision"]), (&json!("expired"), &Value::Null));
        let content = text(&stream.until("done").await.data["content"]);
        assert!(content.contains(told), "{content}");
        assert!(client.items(&format!("/sessions/{session}/interactions")).await.is_empty());
    }
    deployment.end().await;
}

on!(a_plan_is_carried_out_once_it_is_approved: Embedded);
async fn a_plan_is_carried_out_once_it_is_approved(kind: Kind) {
    // Else the tool would have to be searched for first.
    let more = "permission_mode = \"plan\"\nenv.ENABLE_TOOL_SEARCH = \"false\"";
    let agents = claude_agent("planner", more);
    let deployment = Deployment::with(kind, Options { agents, ..options() }).await;
    let client = deployment.client();
    let session = client.session_with("planner").await;
    let caller = client.waiting_with("planner", &session, "plan: paint it blue");
    let asked = client.asked(&session).await;
    assert_eq!((&asked["kind"], &asked["payload"]), (&json!("plan"), &json!({"plan": "paint it blue"})));
    let refused = json!({"decision": "deny", "message": "paint it red"});
    assert_eq!(client.decide(&session, &asked, &refused).await.status, 200);
    let content = text(&caller.result().await["content"]);
    assert!(content.contains("paint it red") && !content.contains("approved"), "{content}");

    let approved = json!({"decision": "allow"});
    let content = answered(client, "planner", &session, "plan: paint it red", &approved).await;
    assert!(content.contains("approved"), "{content}");
    deployment.end().await;
}

on!(a_question_of_a_lost_worker_is_closed_and_nothing_runs_for_it: Embedded, Distributed);
async fn a_question_of_a_lost_worker_is_closed_and_nothing_runs_for_it(kind: Kind) {
    let mut deployment = Deployment::with(kind, options()).await;
    let session = deployment.client().session_with("claude-asking").await;
    let job = deployment.client().later_with("claude-asking", &session, SAY).await;
    let first = deployment.client().asked(&session).await;
    let mut events = deployment.client().follow(&session, None).await;

    deployment.replace_worker().await;
    let client = deployment.client().clone();
    if kind == Kind::Distributed {
        let closed = events.until("interaction.resolved").await.data;
        assert_eq!((&closed["interactionId"], &closed["state"]), (&first["id"], &json!("superseded")));
    }
    let ended = client.ended(&text(&job["jobId"])).await;

    // The CLI tells the model that nobody has answered; we tell it that the call has not run, and that it may go on.
    let told = deployment.oracle.requests().last().unwrap().json()["messages"].to_string();
    assert!(told.contains("permission stream was closed has not run"), "{told}");
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(2)), "{ended}");
    let calls = client.items(&format!("/sessions/{session}/messages")).await;
    let results: Vec<_> = calls.iter().filter(|row| row["role"] == "tool").collect();
    assert!(results.len() == 1 && !text(&results[0]["content"]).contains("yes"), "{calls:?}");
    let late = client.decide(&session, &first, &json!({"decision": "allow"})).await;
    assert_eq!(late.code(), "409 INTERACTION_RESOLVED");
    assert!(client.items(&format!("/sessions/{session}/interactions")).await.is_empty());
    // Asked anew, a person's answer counts, and it runs once.
    let gate = Gate::closed();
    gate.open();
    let answer = json!({"decision": "allow", "updatedInput": {"command": gate.command("at last")}});
    let content = answered(&client, "claude-asking", &session, SAY, &answer).await;
    assert_eq!((&*content, gate.begun()), ("at last", 1));
    deployment.end().await;
}
