//! Processes of Claude Code that are kept after their turn: used again, few, and not for ever.

use std::time::Instant;

use crate::support::{Deployment, Kind, Options, clis, note, nothing_runs_for, on, until};

fn options(idle: &str) -> Options {
    let env = vec![("ROUNDHOUSE_ENGINE_IDLE", idle.to_owned())];
    Options { workers: 1, slots: 2, claude: true, env, ..Options::default() }
}

on!(a_second_turn_runs_in_the_process_of_the_first: Embedded, Distributed);
async fn a_second_turn_runs_in_the_process_of_the_first(kind: Kind) {
    let deployment = Deployment::with(kind, options("10m")).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    let began = Instant::now();
    assert_eq!(client.says("claude", &session, "X = 5").await, "X = 5");
    let first = began.elapsed();
    let native = deployment.native_of(&session).await;
    let kept = clis(&native);
    assert_eq!(kept.len(), 1, "{kept:?}");

    let mut warm = Vec::new();
    for n in 6..=10 {
        let began = Instant::now();
        assert_eq!(client.says("claude", &session, "add 1 to x").await, format!("X = {n}"));
        warm.push(began.elapsed());
        assert_eq!(clis(&native), kept, "turn {n}");
    }

    warm.sort_unstable();
    note(&format!("first turn {first:?}, a turn of the process that was kept {:?} (median of 5)", warm[2]));
    deployment.end().await;
}

on!(a_process_that_nobody_uses_is_ended: Embedded);
async fn a_process_that_nobody_uses_is_ended(kind: Kind) {
    let deployment = Deployment::with(kind, options("500ms")).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    client.says("claude", &session, "X = 5").await;
    let native = deployment.native_of(&session).await;

    until("the process to be ended", async || clis(&native).is_empty().then_some(())).await;

    nothing_runs_for(&session).await;
    assert_eq!(client.says("claude", &session, "add 1 to x").await, "X = 6");
    assert_eq!(deployment.native_of(&session).await, native);
    deployment.end().await;
}

on!(as_many_processes_are_kept_as_there_are_slots: Embedded);
async fn as_many_processes_are_kept_as_there_are_slots(kind: Kind) {
    let deployment = Deployment::with(kind, options("10m")).await;
    let client = deployment.client();
    let (mut sessions, mut natives) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let session = client.session_with("claude").await;
        client.says("claude", &session, &format!("X = {n}")).await;
        natives.push(deployment.native_of(&session).await);
        sessions.push(session);
    }
    // The first one is used again, so the second is the one that was not used for longest.
    client.says("claude", &sessions[0], "what is x").await;
    let kept = clis(&natives[0]);

    let third = client.session_with("claude").await;
    client.says("claude", &third, "X = 2").await;
    natives.push(deployment.native_of(&third).await);

    until("the process that was not used for longest to go", async || {
        clis(&natives[1]).is_empty().then_some(())
    })
    .await;
    assert_eq!((clis(&natives[0]), clis(&natives[2]).len()), (kept, 1));
    assert_eq!(client.says("claude", &sessions[1], "add 1 to x").await, "X = 2");
    deployment.end().await;
}
