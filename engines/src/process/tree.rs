//! Finding and killing processes that belong together, through `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use uuid::Uuid;

use super::mark::{self, Mark};
use super::{OWNER_VARIABLE, TOKEN_VARIABLE};

/// How often we look again for processes that were started while we killed.
const ROUNDS: usize = 64;

/// How often an empty environment is read again.
const EXEC_TRIES: usize = 3;

/// The parent of the kernel's threads, where they are seen.
const KERNEL_THREADS: u32 = 2;

/// By what a process can be found again after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its process id.
    pub pid: u32,
    /// When it started, in ticks since boot: with the pid it names one process until the next boot. `None` where
    /// there is no `/proc`.
    pub start_time: Option<u64>,
    /// The value of [`TOKEN_VARIABLE`] in its environment and in that of what it starts: see [`kill_leftovers`].
    pub token: Uuid,
}

/// Kills every process of this host whose environment carries `mark` as its token or its owner
/// ([`Spec::owner`](super::Spec::owner)), and all that they have started. Returns how many.
///
/// Blocks while it looks through `/proc`. The processes are not waited for: they are somebody else's children.
pub fn kill_leftovers(mark: &str) -> usize {
    if mark.is_empty() {
        return 0;
    }
    let marks = [format!("{TOKEN_VARIABLE}={mark}"), format!("{OWNER_VARIABLE}={mark}")];
    let marked = |seen: &Seen| carries(seen, &marks);
    kill_all(&[], || members(&scan(), marked)).len()
}

/// The same for every process whose owner is one of those that `owns` knows.
pub fn kill_owned(owns: impl Fn(&str) -> bool) -> usize {
    kill_marked(OWNER_VARIABLE, owns)
}

/// The same for every process with such a mark in this variable.
pub(super) fn kill_marked(variable: &str, owns: impl Fn(&str) -> bool) -> usize {
    let name = format!("{variable}=");
    let is_owned = |entry: &[u8]| {
        str::from_utf8(entry).ok().and_then(|entry| entry.strip_prefix(&name)).is_some_and(&owns)
    };
    kill_all(&[], || members(&scan(), |seen| environment_has(seen, is_owned))).len()
}

/// When a process that runs was started, in ticks since boot.
pub(super) fn starts(pid: u32) -> Option<u64> {
    look(pid).filter(|(_, state)| *state == Status::Alive).map(|(seen, _)| seen.start_time)
}

/// A process, as `/proc` showed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub(super) pid: u32,
    parent: u32,
    group: u32,
    session: u32,
    pub(super) start_time: u64,
}

/// A process that we have started, and all that it starts.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) record: Record,
    mark: Mark,
}

impl Tree {
    /// To be called before the process is reaped.
    pub(super) fn new(pid: u32, token: Uuid, mark: Mark) -> Self {
        let start_time = look(pid).map(|(seen, _)| seen.start_time);
        Self { record: Record { pid, start_time, token }, mark }
    }

    /// Who of the tree lives.
    pub(super) fn members(&self) -> Vec<Seen> {
        let leader = self.record.pid;
        let mark = [format!("{TOKEN_VARIABLE}={}", self.record.token)];
        let all = scan();
        // Whoever has lost its parent is a child of ours: we are the subreaper of all that we start.
        let below_us: HashSet<u32> = below(&all, std::process::id());
        // A pid is not given away while a group or a session has its number: if it is another process by now, the
        // session is gone, and what has its number is none of ours.
        let reused =
            all.iter().any(|seen| seen.pid == leader && Some(seen.start_time) != self.record.start_time);
        members(&all, |seen| {
            let is_older = Some(seen.start_time) < self.record.start_time;
            let is_near = !reused && (seen.session == leader || seen.group == leader);
            let is_marked = || below_us.contains(&seen.pid) && Mark::of(seen.pid) == Some(self.mark);
            is_near || (!is_older && (carries(seen, &mark) || is_marked()))
        })
    }

    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(pid) = to_pid(self.record.pid) {
            let _ = killpg(pid, signal);
        }
    }

    /// Kills the tree and what of it was `found` before. Says whom.
    pub(super) fn kill(&self, found: &[Seen]) -> Vec<Seen> {
        if self.record.start_time.is_none() {
            self.signal_group(Signal::SIGKILL);
        }
        kill_all(found, || self.members())
    }
}

/// Waits until killed processes are gone, and reaps those that were handed to us: as process 1 of a container we are
/// everybody's parent.
pub(super) async fn gone(killed: &[Seen]) {
    let (us, mut pause) = (std::process::id(), Duration::from_millis(1));
    loop {
        let mut left = false;
        for seen in killed {
            match look(seen.pid) {
                Some((now, state)) if now.start_time == seen.start_time => {
                    if state == Status::Dead && now.parent == us {
                        let _ = to_pid(seen.pid).map(|pid| waitpid(pid, Some(WaitPidFlag::WNOHANG)));
                    }
                    left |= state == Status::Alive;
                }
                _ => {}
            }
        }
        if !left {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Kills `found`, then what `members` finds, until it finds nobody new.
fn kill_all(found: &[Seen], members: impl Fn() -> Vec<Seen>) -> Vec<Seen> {
    let mut known: HashSet<Seen> = HashSet::new();
    let mut killed = Vec::new();
    let mut fresh = found.to_vec();
    for _ in 0..ROUNDS {
        fresh.extend(members());
        // Who has moved to another parent or session meanwhile is killed again, which does no harm.
        fresh.retain(|seen| known.insert(*seen));
        if fresh.is_empty() {
            break;
        }
        for seen in fresh.drain(..) {
            if slay(&seen) && !killed.iter().any(|other: &Seen| other.is(&seen)) {
                killed.push(seen);
            }
        }
    }
    killed
}

impl Seen {
    fn is(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start_time == other.start_time
    }
}

/// Kills exactly this process: not one that has got its pid since, and not one that is dead already.
fn slay(seen: &Seen) -> bool {
    let is_same = look(seen.pid).is_some_and(|(now, state)| now.is(seen) && state == Status::Alive);
    is_same && to_pid(seen.pid).is_some_and(|pid| kill(pid, Signal::SIGKILL) != Err(Errno::ESRCH))
}

/// Those that `belongs` names and all their descendants; never ourselves.
fn members(all: &[Seen], belongs: impl Fn(&Seen) -> bool) -> Vec<Seen> {
    let us = std::process::id();
    let (mut inside, mut outside): (Vec<Seen>, Vec<Seen>) =
        all.iter().filter(|seen| seen.pid != us && seen.pid > 1).partition(|seen| belongs(seen));
    let mut next = 0;
    while next < inside.len() {
        let parent = inside[next].pid;
        inside.extend(outside.extract_if(.., |seen| seen.parent == parent));
        next += 1;
    }
    inside
}

/// The descendants of a process.
fn below(all: &[Seen], pid: u32) -> HashSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen.pid);
    }
    let (mut found, mut next) = (HashSet::new(), vec![pid]);
    while let Some(parent) = next.pop() {
        // `/proc` is not read in one moment, so a circle is possible.
        next.extend(
            children.remove(&parent).unwrap_or_default().into_iter().filter(|pid| found.insert(*pid)),
        );
    }
    found
}

/// Reaps the dead that were handed to us when their parent ended, and nobody else's children.
pub(super) fn reap_strays() {
    let us = std::process::id();
    let dead = || {
        let is_ours = |(seen, status): &(Seen, Status)| seen.parent == us && *status == Status::Dead;
        entries().filter(is_ours).map(|(seen, _)| seen.pid).collect()
    };
    mark::reap_strays(dead, |pid| {
        let _ = to_pid(pid).map(|pid| waitpid(pid, Some(WaitPidFlag::WNOHANG)));
    });
}

/// All living processes.
fn scan() -> Vec<Seen> {
    entries().filter(|(_, status)| *status == Status::Alive).map(|(seen, _)| seen).collect()
}

fn entries() -> impl Iterator<Item = (Seen, Status)> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(look)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Alive,
    /// Ended, and perhaps not yet reaped.
    Dead,
}

/// What `/proc` shows of a process.
pub(super) fn look(pid: u32) -> Option<(Seen, Status)> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads a line of `/proc/PID/stat` (`proc_pid_stat(5)`). The name may contain anything, also `)`.
fn parse(pid: u32, stat: &[u8]) -> Option<(Seen, Status)> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields: Vec<&str> = str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect();
    // The first of them is field 3 of the manual's list.
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    let id = |field: usize| number(field).and_then(|value| u32::try_from(value).ok());
    let state = if matches!(*fields.first()?, "Z" | "X" | "x") { Status::Dead } else { Status::Alive };
    let seen = Seen { pid, parent: id(4)?, group: id(5)?, session: id(6)?, start_time: number(22)? };
    Some((seen, state))
}

/// Whether the environment with which the process started has one of these `NAME=value`.
fn carries(seen: &Seen, marks: &[String]) -> bool {
    environment_has(seen, |entry| marks.iter().any(|mark| mark.as_bytes() == entry))
}

fn environment_has(seen: &Seen, is_meant: impl Fn(&[u8]) -> bool) -> bool {
    let path = format!("/proc/{}/environ", seen.pid);
    for _ in 0..EXEC_TRIES {
        let Ok(environment) = fs::read(&path) else { return false };
        // For a moment of `execve` a process has no environment. Threads of the kernel never have one.
        if environment.is_empty() && seen.parent != KERNEL_THREADS {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        return environment.split(|byte| *byte == 0).any(is_meant);
    }
    false
}

fn to_pid(pid: u32) -> Option<Pid> {
    // 0 would be our own group, 1 is never ours to end.
    i32::try_from(pid).ok().filter(|pid| *pid > 1).map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = b"42 (a) b) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2 3\n";
        let (seen, state) = parse(42, stat).unwrap();
        assert_eq!(seen, Seen { pid: 42, parent: 7, group: 8, session: 9, start_time: 12_345 });
        assert_eq!(state, Status::Alive);
        assert_eq!(parse(42, b"42 (a) Z 7"), None);
    }

    #[test]
    fn members_are_those_named_and_all_below_them() {
        let seen = |pid, parent| Seen { pid, parent, group: pid, session: pid, start_time: 1 };
        let all = [seen(12, 11), seen(10, 2), seen(11, 10), seen(20, 2), seen(13, 12)];
        let mut found: Vec<u32> =
            members(&all, |seen| seen.pid == 10).into_iter().map(|seen| seen.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [10, 11, 12, 13]);
    }

    #[test]
    fn an_empty_mark_names_nobody() {
        assert_eq!(kill_leftovers(""), 0);
    }
}
