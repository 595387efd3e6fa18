//! What a process of ours that is no more has left running: whether a run owned it, or several sessions shared it, or it was
//! only kept for the next run.

use std::fs;

use super::STARTER_VARIABLE;
use super::tree::{kill_marked, starts};

/// What names this process for what it starts: its namespace of process ids, its id and when it started. `None` where there
/// is no `/proc`.
pub(super) fn starter() -> Option<String> {
    let pid = std::process::id();
    Some(named(&namespace()?, pid, starts(pid)?))
}

/// Kills what processes of ours that are no more have started and left. Returns how many.
///
/// Blocks while it looks through `/proc`. Who is dead is told from here alone, so a process in another namespace, such as
/// another container, is never meant.
pub fn kill_orphans() -> usize {
    let Some(namespace) = namespace() else { return 0 };
    kill_marked(STARTER_VARIABLE, |mark| is_orphan(mark, &namespace))
}

fn named(namespace: &str, pid: u32, started: u64) -> String {
    format!("{namespace}/{pid}/{started}")
}

/// Whether a mark names a process of this namespace that does not run.
fn is_orphan(mark: &str, namespace: &str) -> bool {
    let mut parts = mark.split('/');
    if parts.next() != Some(namespace) {
        return false;
    }
    let (pid, started) = (parts.next().map(str::parse), parts.next().map(str::parse));
    let (Some(Ok(pid)), Some(Ok(started)), None) = (pid, started, parts.next()) else { return false };
    starts(pid) != Some(started)
}

/// What tells apart processes that have the same id in different containers (`pid_namespaces(7)`).
fn namespace() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_of_dead_processes_of_this_namespace_are_orphans() {
        let here = namespace().unwrap();
        let ours = starter().unwrap();
        assert!(!is_orphan(&ours, &here), "we live");
        let (pid, started) = (std::process::id(), starts(std::process::id()).unwrap());
        assert!(is_orphan(&named(&here, pid, started - 1), &here), "its id was given away");
        assert!(is_orphan(&named(&here, u32::MAX, started), &here));
        assert!(!is_orphan(&named("pid:[1]", u32::MAX, started), &here), "who knows");
        for other in ["", "process", "some-session/3", "/1/2", &here, &format!("{here}/x/1")] {
            assert!(!is_orphan(other, &here), "{other}");
        }
    }
}
