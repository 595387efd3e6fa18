//! A worker that dies in the middle of a turn with tools: another goes on from the last thing that was stored.

use serde_json::{Value, json};

use crate::support::{Deployment, Gate, Kind, Options, Sleepers, on, text, until};
use crate::tools::counted;

fn one_worker() -> Options {
    Options { workers: 1, lease: "2s", ..Options::default() }
}

impl Deployment {
    /// Kills the process that runs turns, and starts another.
    async fn replace_worker(&mut self) {
        if self.kind == Kind::Distributed {
            self.workers[0].kill().await;
            self.add_worker();
        } else {
            self.apis[0].kill().await;
            self.restart(0).await;
        }
    }
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
