//! The processes of this host, as anybody sees them.

use std::fs;

use super::until;

/// The processes of this host that run, with one of the files in which the system tells of each.
fn processes(file: &str) -> Vec<(u32, Vec<u8>)> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let running = pids.filter(|pid| crate::served::runs(*pid));
    running.filter_map(|pid| Some((pid, fs::read(format!("/proc/{pid}/{file}")).ok()?))).collect()
}

/// Those of which a part of this file, between two zero bytes, is such.
fn with(file: &str, is_such: impl Fn(&str) -> bool) -> Vec<u32> {
    let has = |content: &[u8]| {
        content.split(|byte| *byte == 0).any(|part| str::from_utf8(part).is_ok_and(&is_such))
    };
    processes(file).into_iter().filter(|(_, content)| has(content)).map(|(pid, _)| pid).collect()
}

/// The processes that began with such a variable in their environment: ours, or whatever those have started.
pub(crate) fn started_with(is_such: impl Fn(&str) -> bool) -> Vec<u32> {
    with("environ", is_such)
}

/// The processes that were started for a session, by the mark that they all carry.
pub(crate) fn started_for(session: &str) -> Vec<u32> {
    let mark = format!("ROUNDHOUSE_PROCESS_OWNER={session}/");
    started_with(|variable| variable.starts_with(&mark))
}

/// Waits until nothing runs for a session any more.
pub(crate) async fn nothing_runs_for(session: &str) {
    until("the processes of a session to be gone", async || started_for(session).is_empty().then_some(()))
        .await;
}

/// The processes of Claude Code that have a native session open.
pub(crate) fn clis(native: &str) -> Vec<u32> {
    with("cmdline", |argument| argument == native)
}

/// The command lines of all processes.
pub(crate) fn command_lines() -> Vec<String> {
    processes("cmdline").into_iter().map(|(_, line)| String::from_utf8_lossy(&line).into_owned()).collect()
}

/// The processes that a process has started, with whichever of its threads, and that run.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let all: Vec<u32> =
        lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    all.into_iter().filter(|pid| crate::served::runs(*pid)).collect()
}
