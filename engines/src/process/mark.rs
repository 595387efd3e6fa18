//! A mark that a process cannot lose by accident: it stays when the process leaves its session, clears its environment and
//! outlives its parent.
//!
//! The mark is the soft limit `RLIMIT_LOCKS`. Linux has not enforced that limit since 2.4.25, every process inherits it over
//! `fork` and `execve`, and `/proc/PID/limits` shows it to everybody. [`spawn`] sets it on ourselves for the moment in which
//! a child is made, so the child has it from its first instruction on. A process that changes the limit on purpose escapes.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use uuid::Uuid;

use super::tree::{Status, look};

/// How `/proc/PID/limits` names the limit.
const LINE: &str = "Max file locks";

/// The upper bits of every mark, by which it is told from a limit that somebody has set for other reasons.
const PREFIX: u64 = 0x2d07 << PREFIX_SHIFT;
const PREFIX_SHIFT: u32 = 46;

/// What all processes of one [`Process`](super::Process) carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Mark(u64);

impl Mark {
    /// One that no other process of this host has.
    pub(super) fn random() -> Self {
        let random = Uuid::now_v7().as_u64_pair().1;
        Self(PREFIX | (random & ((1 << PREFIX_SHIFT) - 1)))
    }

    /// The mark of a process; `None` if it has none, or if it is gone.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix(LINE))?;
        let soft: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
        (soft >> PREFIX_SHIFT == PREFIX >> PREFIX_SHIFT).then_some(Self(soft))
    }
}

/// The children that somebody waits for, by their ids, with when they started. Locked while a child is made: so nobody takes
/// a child that is not listed yet for one that was handed to us.
static AWAITED: Mutex<Option<HashMap<u32, u64>>> = Mutex::new(None);

/// Makes a child that carries the mark. `spawn` returns its id.
pub(super) fn spawn<T, E>(
    mark: Mark,
    spawn: impl FnOnce() -> Result<T, E>,
    id: impl FnOnce(&T) -> Option<u32>,
) -> Result<T, E> {
    let mut awaited = awaited();
    let before = getrlimit(Resource::RLIMIT_LOCKS).ok().filter(|(_, hard)| mark.0 <= *hard);
    if let Some((_, hard)) = before {
        let _ = setrlimit(Resource::RLIMIT_LOCKS, mark.0, hard);
    }
    let spawned = spawn();
    if let Some((soft, hard)) = before {
        let _ = setrlimit(Resource::RLIMIT_LOCKS, soft, hard);
    }
    let spawned = spawned?;
    if let Some(pid) = id(&spawned)
        && let Some((seen, _)) = look(pid)
    {
        awaited.get_or_insert_default().insert(pid, seen.start_time);
    }
    Ok(spawned)
}

/// Calls `reap` for each of these dead children that nobody waits for, while no child is being made.
///
/// Only marked ones: a child without a mark is not of this module's making, and whoever made it waits for it.
pub(super) fn reap_strays(dead: impl FnOnce() -> Vec<u32>, reap: impl Fn(u32)) {
    let mut awaited = awaited();
    let known = awaited.get_or_insert_default();
    // Whoever is no longer there was waited for, and its id may be another's by now.
    known.retain(|pid, start| look(*pid).is_some_and(|(seen, _): (_, Status)| seen.start_time == *start));
    for pid in dead() {
        if !known.contains_key(&pid) && Mark::of(pid).is_some() {
            reap(pid);
        }
    }
}

fn awaited() -> MutexGuard<'static, Option<HashMap<u32, u64>>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_inherited_and_not_kept_by_us() {
        let mark = Mark::random();
        let start = || std::process::Command::new("sleep").arg("60").spawn();
        let mut child = spawn(mark, start, |child| Some(child.id())).unwrap();
        assert_eq!(Mark::of(child.id()), Some(mark));
        assert_eq!(Mark::of(std::process::id()), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Mark::of(child.id()), None);
    }
}
