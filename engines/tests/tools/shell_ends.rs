//! `shell`: however a call ends, nothing that it started goes on.

use std::time::Duration;

use roundhouse_engines::process::kill_leftovers;
use roundhouse_engines::tools::ToolSource;
use serde_json::json;

use super::support::{Workspace, builtins, pids, runs, until_gone};

/// Commands that start one process, say its id, and wait.
const WAITING: &[&str] = &[
    "sleep 1000 & echo $!; wait",
    "setsid sleep 1000 & echo $!; wait",
    "(setsid sleep 1000 & echo $!); sleep 1000",
    "trap '' TERM INT HUP; sleep 1000 & echo $!; wait",
];

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_and_its_output_kept() {
    let workspace = Workspace::new();
    let calls = WAITING.iter().map(async |command| {
        // On a slow machine a command may not even have begun: then it gets more time.
        for limit in [1_000, 5_000, 25_000, 125_000] {
            let text = workspace.refused("shell", json!({ "command": command, "timeout_ms": limit })).await;
            let note =
                format!("[timed out after {limit} ms: the command and all it had started were killed]");
            let said = text.strip_suffix(&note);
            let started = pids(said.unwrap_or_else(|| panic!("{command}: {text}")));
            assert!(!started.iter().any(|pid| runs(*pid)), "{command}");
            if !started.is_empty() {
                return;
            }
        }
        panic!("{command} has never begun");
    });
    futures::future::join_all(calls).await;
}

#[tokio::test]
async fn a_cancelled_command_is_killed() {
    let workspace = Workspace::new();
    for command in WAITING {
        let (context, mut shown) = workspace.context();
        let (cancel, tools) = (context.cancel.clone(), builtins());
        let call = tools.call("shell", json!({ "command": command }), &context);
        let cancelled = async {
            let started = pids(&shown.recv().await.unwrap());
            assert!(started.len() == 1 && runs(started[0]), "{command}");
            cancel.cancel();
            started
        };
        let (outcome, started) = tokio::join!(call, cancelled);
        assert!(!outcome.success && outcome.text.contains("[cancelled: "), "{}", outcome.text);
        assert!(!runs(started[0]), "{command}");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing() {
    let workspace = Workspace::new();
    for command in WAITING {
        let (context, mut shown) = workspace.context();
        let tools = builtins();
        let call = tools.call("shell", json!({ "command": command }), &context);
        let started = tokio::select! {
            outcome = call => panic!("{command}: {}", outcome.text),
            piece = shown.recv() => pids(&piece.unwrap()),
        };
        assert_eq!(started.len(), 1, "{command}");
        until_gone(&started).await;
    }
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_is_killed_and_said() {
    let workspace = Workspace::new();
    for command in [
        "sleep 1000 & echo $!",
        "sleep 1000 >/dev/null 2>&1 & echo $!",
        "setsid sleep 1000 & echo $!",
        "nohup setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!",
        "(sleep 1000 & echo $!)",
    ] {
        let text = workspace.done("shell", json!({ "command": command })).await;
        let started = pids(text.lines().next().unwrap());
        assert!(started.len() == 1 && !runs(started[0]), "{command}: {text}");
        assert!(text.ends_with("\n[1 process was left running in the background and killed]"), "{text}");
    }
}

#[tokio::test]
async fn a_background_process_that_floods_does_not_keep_the_call() {
    let workspace = Workspace::new();
    let text = workspace.done("shell", json!({ "command": "echo $$; yes & exit 0" })).await;
    assert!(text.contains("bytes left out") || text.contains("y\ny\n"), "{text}");
    assert!(text.ends_with("left running in the background and killed]"));
}

#[tokio::test]
async fn a_call_that_was_cancelled_before_starts_nothing() {
    let workspace = Workspace::new();
    let (context, _shown) = workspace.context();
    context.cancel.cancel();
    for (tool, input) in [
        ("shell", json!({ "command": "touch made" })),
        ("write_file", json!({ "path": "made", "content": "" })),
    ] {
        let outcome = builtins().call(tool, input, &context).await;
        assert!(!outcome.success && outcome.text.contains("cancelled"), "{}", outcome.text);
    }
    assert!(!workspace.path.join("made").exists());
}

#[tokio::test]
async fn after_a_crash_commands_are_found_by_their_owner() {
    let workspace = Workspace::new();
    let (mut context, mut shown) = workspace.context();
    let owner = format!("session-{}/7", uuid::Uuid::now_v7());
    context.owner = Some(owner.clone());
    let tools = builtins();
    let call = tools.call("shell", json!({ "command": "setsid sleep 1000 & echo $!; wait" }), &context);
    let killed = async {
        let started = pids(&shown.recv().await.unwrap());
        let killed = tokio::task::spawn_blocking(move || kill_leftovers(&owner)).await.unwrap();
        (started, killed)
    };
    let joined = tokio::time::timeout(Duration::from_mins(1), async { tokio::join!(call, killed) });
    let (outcome, (started, killed)) = joined.await.unwrap();
    assert_eq!(killed, 2);
    assert!(!runs(started[0]));
    assert!(outcome.text.contains("[killed by signal 9]"), "{}", outcome.text);
}
