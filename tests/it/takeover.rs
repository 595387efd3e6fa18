//! A worker that dies in the middle of a turn with tools: another goes on from the last thing that was stored.

use serde_json::{Value, json};

use crate::support::{
    COUNTED, Deployment, Gate, Kind, LONG, ORACLE, Options, Sleepers, agent, on, text, until,
};
use crate::tools::{cancel, counted};

fn one_worker() -> Options {
    Options { workers: 1, lease: "2s", ..Options::default() }
}

on!(a_tool_that_ran_when_its_worker_died_is_not_run_again: Embedded, Distributed);
async fn a_tool_that_ran_when_its_worker_died_is_not_run_again(kind: Kind) {
    let mut deployment = Deployment::with(kind, one_worker()).await;
    let client = deployment.client();
    let session = client.session_with("asking").await;
    let (gate, sleepers) = (Gate::closed(), Sleepers::new());
    let job = text(&client.later_with("asking", &session, "sleep 0 then say x").await["jobId"]);
    let command = format!("{} & {}", sleepers.command(), gate.command("never said"));
    client.have_it_run(&session, &command).await;
    sleepers.are(2).await;
    until("the command to begin", async || (gate.begun() == 1).then_some(())).await;

    deployment.replace_worker().await;
    let job = deployment.client().ended(&job).await;

    let result = &job["result"];
    assert_eq!((&job["attempt"], &job["state"]), (&json!(2), &json!("succeeded")), "{job}");
    assert!(text(&result["content"]).starts_with("(outcome unknown"), "{result}");
    sleepers.are(0).await;
    gate.open();
    assert_eq!(gate.begun(), 1);
    is_whole(&deployment, &session, result).await;
    let next = deployment.client().chat_with("asking", Some(&session), "say next").await.json();
    assert_eq!(next["content"], "next");
    deployment.end().await;
}

on!(a_tool_that_had_ended_is_not_run_again: Embedded, Distributed);
async fn a_tool_that_had_ended_is_not_run_again(kind: Kind) {
    let mut deployment = Deployment::with(kind, one_worker()).await;
    let client = deployment.client();
    let session = client.session_with("asking").await;
    let gate = Gate::closed();
    gate.open();
    let mut events = client.follow(&session, None).await;
    // The model calls the tool at once, and takes its time to say what that has brought.
    let job = client.later_with("asking", &session, "slow 600 sleep 0 then say x").await;
    client.have_it_run(&session, &gate.command("said once")).await;
    events.until("tool.completed").await;

    deployment.replace_worker().await;
    let job = deployment.hurried(&text(&job["jobId"])).await;

    let result = &job["result"];
    assert_eq!((&job["attempt"], &job["state"]), (&json!(2), &json!("succeeded")), "{job}");
    assert!(text(&result["content"]).contains("said once"), "{result}");
    assert_eq!(gate.begun(), 1);
    is_whole(&deployment, &session, result).await;
    deployment.end().await;
}

on!(a_cancel_between_two_workers_ends_the_child_too: Distributed);
async fn a_cancel_between_two_workers_ends_the_child_too(kind: Kind) {
    let options = Options { workers: 1, lease: "4s", ..Options::default() };
    let mut deployment = Deployment::with(kind, options).await;
    let client = deployment.client().clone();
    let parent = client.session_with("foreman").await;
    let job = client.later_with("foreman", &parent, &format!("spawn oracle: {LONG}")).await;
    let child = until("a child", async || client.children_of(&parent).await.pop()).await;
    deployment.worker_of(&child).await;

    deployment.workers[0].kill().await;
    cancel(deployment.other(), &parent).await;
    deployment.add_worker();

    assert_eq!(client.ended(&text(&job["jobId"])).await["state"], "cancelled");
    let of_child = client.items(&format!("/jobs?sessionId={child}")).await;
    assert_eq!(client.ended(&text(&of_child[0]["id"])).await["state"], "cancelled");
    deployment.end().await;
}

on!(a_spawn_that_a_person_has_allowed_is_not_asked_about_again: Distributed);
async fn a_spawn_that_a_person_has_allowed_is_not_asked_about_again(kind: Kind) {
    let asks = "tools = [\"spawn_agent\"]\nspawn = [\"oracle\"]\npermissions = { ask = [\"spawn_agent\"] }";
    let agents = agent("careful", &format!("{ORACLE}/v1"), asks);
    let options = Options { workers: 1, lease: "4s", agents, ..Options::default() };
    let mut deployment = Deployment::with(kind, options).await;
    let client = deployment.client().clone();
    let parent = client.session_with("careful").await;
    let job = text(&client.later_with("careful", &parent, &format!("spawn oracle: {LONG}")).await["jobId"]);
    let question = client.asked(&parent).await;
    client.decide(&parent, &question, &json!({"decision": "allow"})).await;
    let child = until("a child", async || client.children_of(&parent).await.pop()).await;
    deployment.worker_of(&child).await;

    deployment.replace_worker().await;
    let job = deployment.hurried(&job).await;

    assert_eq!((&job["attempt"], &job["state"]), (&json!(2), &json!("succeeded")), "{job}");
    assert!(text(&job["result"]["content"]).contains(COUNTED), "{job}");
    has_one_child(&deployment, &parent, 2).await;
    deployment.end().await;
}

on!(what_is_said_while_a_turn_asks_anew_is_in_its_next_model_call: Embedded, Distributed);
async fn what_is_said_while_a_turn_asks_anew_is_in_its_next_model_call(kind: Kind) {
    let mut deployment = Deployment::with(kind, one_worker()).await;
    let client = deployment.client();
    let session = client.session_with("asking").await;
    let first = client.later_with("asking", &session, "sleep 0 then say x").await;
    let lost = client.asked(&session).await;

    deployment.replace_worker().await;
    let client = deployment.client();
    let questions = format!("/sessions/{session}/interactions");
    let question = until("the question to be asked anew", async || {
        client.items(&questions).await.into_iter().find(|question| question["id"] != lost["id"])
    })
    .await;
    let injected = client.later_with("asking", &session, "X = 7").await;
    let allowed = client.decide(&session, &question, &json!({"decision": "allow"})).await;
    assert_eq!(allowed.status, 200, "{}", allowed.body);

    let first = client.ended(&text(&first["jobId"])).await["result"].clone();
    let injected = client.ended(&text(&injected["jobId"])).await["result"].clone();
    assert_eq!((&injected["turnId"], &injected["injected"]), (&first["turnId"], &json!(true)));
    assert_eq!((&first["content"], &first["iterations"]), (&json!("x\nX = 7"), &json!(2)));
    assert_eq!(deployment.oracle.requests().len(), 2);
    assert_eq!(client.roles(&session).await, ["user", "assistant", "user", "tool", "assistant"]);
    deployment.end().await;
}

on!(a_parent_whose_worker_died_finds_the_child_that_works_for_it: Distributed);
async fn a_parent_whose_worker_died_finds_the_child_that_works_for_it(kind: Kind) {
    let mut deployment = Deployment::with(kind, Options { slots: 1, ..one_worker() }).await;
    let client = deployment.client().clone();
    let parent = client.session_with("foreman").await;
    let message = format!("sleep 0 then say x\nspawn oracle: {LONG}");
    let job = text(&client.later_with("foreman", &parent, &message).await["jobId"]);
    let gate = Gate::closed();
    client.have_it_run(&parent, &gate.command("go on")).await;
    until("the command to begin", async || (gate.begun() == 1).then_some(())).await;
    // Another session waits for the only slot. It comes before the child, whom only a second worker can take then.
    let other = client.new_session().await;
    let caller = client.chat_waiting(&other, "slow 600 count to 3");
    until("the other session to wait", async || {
        let jobs = client.items(&format!("/jobs?sessionId={other}")).await;
        (!jobs.is_empty()).then_some(())
    })
    .await;
    gate.open();
    let child = until("a child", async || client.children_of(&parent).await.pop()).await;
    deployment.worker_of(&other).await;
    deployment.add_worker();
    assert_eq!(deployment.holder(&child).await, 1);
    assert_eq!(deployment.holder(&parent).await, 0);
    cancel(&client, &other).await;
    assert_eq!(caller.result().await["cancelled"], true);

    let mut events = client.follow(&parent, None).await;
    deployment.workers[0].kill().await;
    deployment.add_worker();
    while events.until("tool.started").await.data["attempt"] != 2 {}
    let job = deployment.hurried(&job).await;

    assert_eq!((&job["attempt"], &job["state"]), (&json!(2), &json!("succeeded")), "{job}");
    assert!(text(&job["result"]["content"]).contains(COUNTED), "{job}");
    has_one_child(&deployment, &parent, 1).await;
    deployment.end().await;
}

on!(a_parent_that_died_with_its_child_finds_it_again: Embedded, Distributed);
async fn a_parent_that_died_with_its_child_finds_it_again(kind: Kind) {
    let mut deployment = Deployment::with(kind, one_worker()).await;
    let client = deployment.client().clone();
    let parent = client.session_with("manager").await;
    let job = text(&client.later_with("manager", &parent, &format!("spawn oracle: {LONG}")).await["jobId"]);
    let child = until("a child", async || client.children_of(&parent).await.pop()).await;
    let mut events = client.follow(&child, Some("0-0")).await;
    events.until_it_speaks(1).await;

    deployment.replace_worker().await;
    let job = deployment.hurried(&job).await;

    assert_eq!((&job["attempt"], &job["state"]), (&json!(2), &json!("succeeded")), "{job}");
    assert!(text(&job["result"]["content"]).contains(COUNTED), "{job}");
    has_one_child(&deployment, &parent, 2).await;
    deployment.end().await;
}

/// The parent's call has one child, which has ended with this attempt, and the child's words are the call's result.
async fn has_one_child(deployment: &Deployment, parent: &str, attempt: u64) {
    let client = deployment.client();
    let [child] = &client.children_of(parent).await[..] else { panic!("not one child") };
    let jobs = client.items(&format!("/jobs?sessionId={child}")).await;
    let ends: Vec<_> = jobs.iter().map(|job| (&job["attempt"], &job["state"])).collect();
    assert_eq!(ends, [(&json!(attempt), &json!("succeeded"))]);
    let messages = client.messages(parent).await;
    let results: Vec<_> = messages.iter().filter(|message| message.starts_with("tool: ")).collect();
    assert_eq!(**results.last().unwrap(), format!("tool: {COUNTED}"), "{messages:?}");
    assert!(!messages.iter().any(|message| message.contains("outcome unknown")), "{messages:?}");
}

/// One call, one result, one answer; and what it took is what the provider has counted for what was kept.
async fn is_whole(deployment: &Deployment, session: &str, result: &Value) {
    let client = deployment.client();
    assert_eq!(client.roles(session).await, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(result["iterations"], 2);
    let answered: Vec<_> =
        deployment.oracle.requests().into_iter().filter(|request| !request.client_gone).collect();
    assert_eq!(result["tokenUsage"], counted(&answered));
    assert_eq!(client.session(session).await["usage"], result["tokenUsage"]);
    let newest = deployment.oracle.requests().pop().unwrap().json();
    let roles: Vec<_> =
        newest["messages"].as_array().unwrap().iter().map(|message| text(&message["role"])).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
}
