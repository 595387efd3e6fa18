//! However a run of Claude Code ends, none of its processes is left.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::{
    COUNTED, Deployment, Kind, LONG, Options, Sleepers, clis, nothing_runs_for, on, started_for, text, until,
};

fn options() -> Options {
    // A cancel must not take longer than a stop.
    let env = ["ROUNDHOUSE_SHUTDOWN_GRACE", "ROUNDHOUSE_CANCEL_GRACE"];
    let env = env.map(|variable| (variable, "1s".to_owned())).to_vec();
    Options { lease: "4s", claude: true, env, ..Options::default() }
}

/// A turn that runs a tool, which has started processes of its own. Returns its job.
async fn in_a_tool(deployment: &Deployment, session: &str, sleepers: &Sleepers) -> String {
    let client = deployment.client();
    assert_eq!(client.says("claude-asking", session, "X = 5").await, "X = 5");
    let job = client.later_with("claude-asking", session, "sleep 0 then say x").await;
    client.have_it_run(session, &sleepers.command()).await;
    sleepers.are(2).await;
    text(&job["jobId"])
}

/// The turn has gone on without the tool, and the session remembers.
async fn has_gone_on(deployment: &Deployment, session: &str, job: &str, attempt: u64) {
    let client = deployment.client();
    let ended = client.ended(job).await;
    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(attempt)), "{ended}");
    assert!(client.says("claude-asking", session, "what is x").await.ends_with("X = 5"));
}

on!(a_worker_that_is_killed_in_the_middle_of_a_tool_leaves_nothing: Embedded, Distributed);
async fn a_worker_that_is_killed_in_the_middle_of_a_tool_leaves_nothing(kind: Kind) {
    let mut deployment = Deployment::with(kind, options()).await;
    let session = deployment.client().session_with("claude-asking").await;
    let sleepers = Sleepers::new();
    let job = in_a_tool(&deployment, &session, &sleepers).await;
    let of_first = started_for(&session);

    deployment.kill_worker_of(&session).await;
    has_gone_on(&deployment, &session, &job, 2).await;

    sleepers.are(0).await;
    let now = started_for(&session);
    assert!(!of_first.iter().any(|pid| now.contains(pid)), "{of_first:?} {now:?}");
    assert_eq!(clis(&deployment.native_of(&session).await).len(), 1);
    deployment.end().await;
}

on!(a_worker_that_is_killed_between_two_turns_leaves_nothing: Embedded, Distributed);
async fn a_worker_that_is_killed_between_two_turns_leaves_nothing(kind: Kind) {
    let mut deployment = Deployment::with(kind, Options { workers: 1, ..options() }).await;
    let session = deployment.client().session_with("claude").await;
    deployment.client().says("claude", &session, "background 1000 then say never").await;
    let native = deployment.native_of(&session).await;
    let [kept] = clis(&native)[..] else { panic!("no process is kept") };
    // It does not end by itself.
    kill(Pid::from_raw(kept.cast_signed()), Signal::SIGSTOP).unwrap();

    deployment.replace_worker().await;

    nothing_runs_for(&session).await;
    assert_eq!(clis(&native).len(), 0);
    assert_eq!(deployment.client().says("claude", &session, "X = 1").await, "X = 1");
    deployment.end().await;
}

on!(a_worker_that_has_lost_its_lease_leaves_nothing: Distributed);
async fn a_worker_that_has_lost_its_lease_leaves_nothing(kind: Kind) {
    let deployment = Deployment::with(kind, options()).await;
    let session = deployment.client().session_with("claude-asking").await;
    let sleepers = Sleepers::new();
    let job = in_a_tool(&deployment, &session, &sleepers).await;
    let of_first = started_for(&session);
    let holder = deployment.worker_of(&session).await;

    holder.freeze().await;
    has_gone_on(&deployment, &session, &job, 2).await;
    sleepers.are(0).await;
    holder.thaw();
    holder.logged(&["lost the lease", &session]).await;

    // What it had started is gone, and what goes on is another's.
    until("the processes of the run that was lost to be gone", async || {
        let now = started_for(&session);
        (!of_first.iter().any(|pid| now.contains(pid))).then_some(())
    })
    .await;
    assert_eq!(deployment.client().says("claude-asking", &session, "add 1 to x").await, "X = 6");
    assert_eq!(clis(&deployment.native_of(&session).await).len(), 1);
    deployment.end().await;
}

on!(a_worker_that_is_stopped_in_the_middle_of_a_tool_leaves_nothing: Embedded, Distributed);
async fn a_worker_that_is_stopped_in_the_middle_of_a_tool_leaves_nothing(kind: Kind) {
    let mut deployment = Deployment::with(kind, Options { workers: 1, ..options() }).await;
    let session = deployment.client().session_with("claude-asking").await;
    let sleepers = Sleepers::new();
    let job = in_a_tool(&deployment, &session, &sleepers).await;

    let runner = if kind == Kind::Distributed { &mut deployment.workers[0] } else { &mut deployment.apis[0] };
    runner.stop().await;
    // Without another worker, so nobody but itself can have ended them.
    assert_eq!(started_for(&session), [0; 0]);
    sleepers.are(0).await;
    if kind == Kind::Distributed {
        deployment.add_worker();
    } else {
        deployment.restart(0).await;
    }

    has_gone_on(&deployment, &session, &job, 1).await;
    deployment.end().await;
}

on!(a_turn_that_is_cancelled_in_the_middle_of_a_tool_leaves_nothing: Embedded, Distributed);
async fn a_turn_that_is_cancelled_in_the_middle_of_a_tool_leaves_nothing(kind: Kind) {
    // No process goes only because nobody uses it.
    let mut options = options();
    options.env.push(("ROUNDHOUSE_ENGINE_IDLE", "10m".to_owned()));
    let deployment = Deployment::with(kind, options).await;
    let client = deployment.client();
    let session = client.session_with("claude-asking").await;
    let (background, tool) = (Sleepers::new(), Sleepers::new());
    assert_eq!(client.says("claude-asking", &session, "X = 5").await, "X = 5");
    let job = text(&client.later_with("claude-asking", &session, "sleep 0 then say x").await["jobId"]);
    // What the first starts has left the tool when that is ended.
    let command = format!("({}) & {}", background.command(), tool.command());
    client.have_it_run(&session, &command).await;
    background.are(2).await;
    tool.are(2).await;

    client.post(&format!("/sessions/{session}/cancel"), &json!({})).await;

    assert_eq!(client.ended(&job).await["state"], "cancelled");
    assert_eq!(started_for(&session), [0; 0]);
    background.are(0).await;
    tool.are(0).await;
    assert!(client.says("claude-asking", &session, "what is x").await.ends_with("X = 5"));
    deployment.end().await;
}

on!(a_worker_that_is_stopped_while_the_model_speaks_hands_the_turn_on: Distributed);
async fn a_worker_that_is_stopped_while_the_model_speaks_hands_the_turn_on(kind: Kind) {
    let mut deployment = Deployment::with(kind, options()).await;
    let client = deployment.client().clone();
    let session = client.session_with("claude").await;
    let mut events = client.follow(&session, None).await;
    let job = text(&client.later_with("claude", &session, LONG).await["jobId"]);
    events.until_it_speaks(1).await;
    let holder = deployment.holder(&session).await;

    deployment.workers[holder].stop().await;
    events.until("turn.started").await;
    assert_ne!(deployment.holder(&session).await, holder);
    let ended = deployment.hurried(&job).await;

    assert_eq!((&ended["state"], &ended["attempt"]), (&json!("succeeded"), &json!(1)), "{ended}");
    assert!(text(&ended["result"]["content"]).contains(COUNTED), "{ended}");
    // What the model had been asked, it was not asked a second time: it was told to go on.
    let told = deployment.told_last();
    assert_eq!(told.iter().filter(|text| *text == LONG).count(), 1, "{told:?}");
    assert!(told.iter().any(|text| text.contains("Go on with what was asked")), "{told:?}");
    assert_eq!(clis(&deployment.native_of(&session).await).len(), 1);
    deployment.end().await;
}
