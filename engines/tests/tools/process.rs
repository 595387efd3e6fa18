//! Processes: what they get, and that nothing of them is left.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use roundhouse_engines::process::{
    Environment, Output, Process, SpawnError, Spec, Stdin, Streams, TOKEN_VARIABLE, kill_leftovers,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::support::{pids, runs, stat, until, until_gone};

/// Trees that a tool can leave behind: each starts one process that says its id, and then waits.
const TREES: &[(&str, &str)] = &[
    ("a child", "sleep 1000 & echo $!; wait"),
    ("a child in a session of its own", "setsid sleep 1000 & echo $!; wait"),
    ("a child that ignores signals", "(trap '' TERM HUP INT; exec sleep 1000) & echo $!; wait"),
    ("a child without an environment", "env -i setsid sleep 1000 & echo $!; wait"),
    ("an orphan", "(sleep 1000 & echo $!); exec sleep 1000"),
    ("an orphan in a session of its own", "(setsid sleep 1000 & echo $!); exec sleep 1000"),
    ("an orphan without an environment", "(env -i sleep 1000 & echo $!); exec sleep 1000"),
    ("an orphan that has left all of that", "(env -i setsid sleep 1000 & echo $!); exec sleep 1000"),
    (
        "a stopped child",
        "sleep 1000 & until grep -qx sleep /proc/$!/comm; do :; done; kill -STOP $!; echo $!; wait",
    ),
];

fn spec(script: &str) -> Spec {
    Spec { args: vec!["-c".into(), script.into()], ..Spec::new("sh", "/") }
}

async fn first_line(output: &mut BufReader<Output>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

async fn all(mut output: Output) -> String {
    let mut text = String::new();
    output.read_to_string(&mut text).await.unwrap();
    text
}

/// Starts one of [`TREES`]; returns it with the processes of it that run.
async fn tree(name: &str, script: &str) -> (Process, BufReader<Output>, Vec<u32>) {
    let mut process = Process::spawn(spec(script)).unwrap();
    let mut output = BufReader::new(process.take_output().unwrap());
    let mut tree = pids(&first_line(&mut output).await);
    assert_eq!(tree.len(), 1, "{name}");
    // `setsid` and `env` become the program that they start.
    let cmdline = format!("/proc/{}/cmdline", tree[0]);
    until(name, || std::fs::read(&cmdline).is_ok_and(|line| line.starts_with(b"sleep\0"))).await;
    tree.push(process.record().pid);
    assert!(tree.iter().all(|pid| runs(*pid)), "{name}");
    (process, output, tree)
}

#[tokio::test]
async fn a_process_leads_a_session_and_a_group_of_its_own() {
    let mut process = Process::spawn(spec("cat /proc/self/stat; cat")).unwrap();
    let line = all(process.take_output().unwrap()).await;
    let (fields, leader) = (stat(&line), process.record().pid.to_string());
    assert_eq!((&fields[2], &fields[3]), (&leader, &leader));
    assert!(process.wait().await.unwrap().success());
}

#[tokio::test]
async fn the_record_names_the_process() {
    let process = Process::spawn(spec("exec sleep 1000")).unwrap();
    let record = process.record();
    let line = std::fs::read_to_string(format!("/proc/{}/stat", record.pid)).unwrap();
    assert_eq!(stat(&line)[19], record.start_time.unwrap().to_string());
    let mark = format!("{TOKEN_VARIABLE}={}", record.token);
    until("the environment to be there", || {
        let environment = std::fs::read(format!("/proc/{}/environ", record.pid)).unwrap();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    })
    .await;
}

#[tokio::test]
async fn input_and_output_are_separate_from_what_is_said_on_standard_error() {
    let mut process = Process::spawn(Spec {
        stdin: Stdin::Piped,
        ..spec("while read -r line; do echo \"got $line\"; done; echo over >&2")
    })
    .unwrap();
    let mut stdin = process.take_stdin().unwrap();
    stdin.write_all(b"one\ntwo\n").await.unwrap();
    drop(stdin);
    assert_eq!(all(process.take_output().unwrap()).await, "got one\ngot two\n");
    let ended = process.end(Duration::from_mins(1)).await;
    assert!(ended.status.unwrap().success());
    assert_eq!(process.stderr_tail(), "over\n");
}

#[tokio::test]
async fn standard_error_is_drained_and_only_its_end_kept() {
    let script = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo end >&2; echo out";
    let mut process = Process::spawn(spec(script)).unwrap();
    assert_eq!(all(process.take_output().unwrap()).await, "out\n");
    process.wait().await.unwrap();
    process.end(Duration::ZERO).await;
    let tail = process.stderr_tail();
    assert!(tail.len() <= 16 * 1024 && tail.ends_with("xxxend\n"));
}

#[tokio::test]
async fn merged_streams_keep_their_order() {
    let script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let mut process = Process::spawn(Spec { streams: Streams::Merged, ..spec(script) }).unwrap();
    let text = all(process.take_output().unwrap()).await;
    assert_eq!(text, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
}

#[tokio::test]
async fn only_listed_variables_reach_a_process() {
    let name = std::env::vars_os().map(|(name, _)| name).find(|name| name == "CARGO_MANIFEST_DIR");
    assert!(name.is_some(), "cargo sets it");
    let mut process = Process::spawn(Spec {
        environment: Environment {
            pass: vec!["CARGO_PKG_NAME".into()],
            set: vec![("GIVEN".into(), "value".into()), (TOKEN_VARIABLE.into(), "mine".into())],
        },
        owner: Some("somebody".to_owned()),
        ..spec("exec env")
    })
    .unwrap();
    let text = all(process.take_output().unwrap()).await;
    let variables: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let token = process.record().token.to_string();
    for expected in [
        ("CARGO_PKG_NAME", "roundhouse-engines"),
        ("GIVEN", "value"),
        (TOKEN_VARIABLE, token.as_str()),
        ("ROUNDHOUSE_PROCESS_OWNER", "somebody"),
    ] {
        assert!(variables.contains(&expected), "{expected:?} in {text}");
    }
    let listed = [
        "PATH",
        "HOME",
        "LANG",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "SHELL",
        "CARGO_PKG_NAME",
        "GIVEN",
        TOKEN_VARIABLE,
        "ROUNDHOUSE_PROCESS_OWNER",
        "ROUNDHOUSE_PROCESS_STARTER",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    for (name, _) in variables {
        assert!(listed.contains(&name) || name.starts_with("LC_"), "{name} has come through");
    }
}

#[tokio::test]
async fn a_process_that_does_not_start_says_why() {
    let missing = Process::spawn(Spec::new("no-such-program", "/")).unwrap_err();
    assert!(matches!(missing, SpawnError::ProgramMissing(_)), "{missing}");
    let nowhere = Process::spawn(Spec::new("sh", "/no/such/directory")).unwrap_err();
    assert!(matches!(nowhere, SpawnError::NoWorkingDirectory(_)), "{nowhere}");
}

#[tokio::test]
async fn a_process_may_end_by_itself_when_asked() {
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = Process::spawn(spec(script)).unwrap();
    let mut output = BufReader::new(process.take_output().unwrap());
    assert_eq!(first_line(&mut output).await, "ready");
    let ended = process.end(Duration::from_mins(1)).await;
    assert_eq!(ended.status.unwrap().code(), Some(7));
    assert!(!runs(process.record().pid));
}

#[tokio::test]
async fn a_process_that_does_not_listen_is_killed() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = Process::spawn(spec(script)).unwrap();
    let mut output = BufReader::new(process.take_output().unwrap());
    assert_eq!(first_line(&mut output).await, "ready");
    let ended = process.end(Duration::from_millis(50)).await;
    assert_eq!(ended.status.unwrap().signal(), Some(9));
}

#[tokio::test]
async fn ending_a_process_ends_all_it_has_started() {
    for (name, script) in TREES {
        let (mut process, _output, tree) = tree(name, script).await;
        let ended = process.end(Duration::ZERO).await;
        assert_eq!(ended.status.unwrap().signal(), Some(9), "{name}");
        assert_eq!(ended.others_killed, 1, "{name}");
        assert!(!tree.iter().any(|pid| runs(*pid)), "{name}");
    }
}

#[tokio::test]
async fn a_graceful_end_ends_all_it_has_started() {
    for (name, script) in TREES {
        let (mut process, _output, tree) = tree(name, script).await;
        process.end(Duration::from_mins(1)).await;
        assert!(!tree.iter().any(|pid| runs(*pid)), "{name}");
    }
}

#[tokio::test]
async fn dropping_a_process_ends_all_it_has_started() {
    for (name, script) in TREES {
        let (process, _output, tree) = tree(name, script).await;
        let leader = process.record().pid;
        drop(process);
        until_gone(&tree).await;
        until(name, || !std::path::Path::new(&format!("/proc/{leader}")).exists()).await;
    }
}

#[tokio::test]
async fn what_outlives_its_leader_is_ended_too() {
    let mut process = Process::spawn(spec("setsid sleep 1000 & echo $!; sleep 1000 & echo $!")).unwrap();
    let mut output = BufReader::new(process.take_output().unwrap());
    let left = [first_line(&mut output).await, first_line(&mut output).await].map(|pid| pid.parse().unwrap());
    assert!(process.wait().await.unwrap().success());
    assert!(left.iter().all(|pid| runs(*pid)));
    assert_eq!(process.end(Duration::ZERO).await.others_killed, 2);
    assert!(!left.iter().any(|pid| runs(*pid)));
}

#[tokio::test]
async fn a_crash_leaves_what_token_and_owner_find() {
    let owner = uuid::Uuid::now_v7().to_string();
    for by_owner in [false, true] {
        let script = "setsid sleep 1000 & echo $!; (sleep 1000 & echo $!); wait";
        let mut process = Process::spawn(Spec { owner: Some(owner.clone()), ..spec(script) }).unwrap();
        let mut output = BufReader::new(process.take_output().unwrap());
        let mut tree = pids(&format!("{} {}", first_line(&mut output).await, first_line(&mut output).await));
        tree.push(process.record().pid);
        let bystander = Process::spawn(spec("exec sleep 1000")).unwrap();
        let mark = if by_owner { owner.clone() } else { process.record().token.to_string() };
        // As after a crash: nobody holds it any more.
        std::mem::forget(process);

        assert_eq!(kill_leftovers(&mark), 3);
        until_gone(&tree).await;
        assert!(runs(bystander.record().pid));
        assert_eq!(kill_leftovers(&mark), 0);
    }
}
