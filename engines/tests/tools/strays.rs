//! Processes that have left their session, cleared their environment and lost their parent.

use std::time::Duration;

use roundhouse_engines::process::{Process, Spec, reap_strays};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

use super::support::{pids, runs, stat, until, until_gone};

/// Starts a process that has a stray and lives on; gives the stray.
async fn with_stray(stray: &str) -> (Process, u32) {
    let script = format!("(env -i setsid {stray} & echo $!); exec sleep 1000");
    let spec = Spec { args: vec!["-c".into(), script.into()], ..Spec::new("sh", "/") };
    let mut process = Process::spawn(spec).unwrap();
    let mut line = String::new();
    BufReader::new(process.take_output().unwrap()).read_line(&mut line).await.unwrap();
    (process, pids(line.trim())[0])
}

/// The parent of a process, as `/proc` has it.
fn parent(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat(&text).get(1)?.parse().ok()
}

#[tokio::test]
async fn a_stray_is_ended_with_its_own_process_and_not_with_another() {
    let (mut one, first) = with_stray("sleep 1000").await;
    let (mut other, second) = with_stray("sleep 1000").await;
    let us = std::process::id();
    until("strays to be ours", || parent(first) == Some(us) && parent(second) == Some(us)).await;

    let ended = one.end(Duration::ZERO).await;

    assert_eq!(ended.others_killed, 1);
    until_gone(&[first]).await;
    assert!(runs(second), "the other process still runs");
    other.end(Duration::ZERO).await;
    until_gone(&[second]).await;
}

#[tokio::test]
async fn a_stray_of_a_dropped_process_is_ended_too() {
    let (process, stray) = with_stray("sleep 1000").await;
    drop(process);
    until_gone(&[stray]).await;
}

#[tokio::test]
async fn a_stray_that_ends_by_itself_is_reaped_and_nobody_elses_status_is_taken() {
    let mut reaping = JoinSet::new();
    reaping.spawn(reap_strays());
    let (mut process, stray) = with_stray("sleep 0.2").await;
    until("the stray to be reaped", || parent(stray).is_none()).await;

    let spec = Spec { args: vec!["-c".into(), "exit 7".into()], ..Spec::new("sh", "/") };
    let mut short = Process::spawn(spec).unwrap();
    // Long enough for the reaper to look while the status waits for us.
    let (_second, other) = with_stray("sleep 0.2").await;
    until("the other stray to be reaped", || parent(other).is_none()).await;
    assert_eq!(short.wait().await.unwrap().code(), Some(7));
    process.end(Duration::ZERO).await;
}
