//! The one module that starts processes.
//!
//! A [`Process`] leads a session and a process group of its own and sees an environment made from an allow-list.
//! It ends as a tree: [`Process::end`], or dropping it, kills the process and everything it started, also what has
//! left its group. What belongs to the tree is found by its session, by descent, by a random token in its environment,
//! and by a mark that it inherits whatever it does to its environment (`mark`). The token also finds what a crash of ours
//! has left behind ([`kill_leftovers`], [`kill_orphans`]).
//!
//! We are the subreaper of all that we start (`prctl(2)`, `PR_SET_CHILD_SUBREAPER`): a process whose parent has ended
//! becomes a child of ours, so it stays a descendant, and we reap it ([`reap_strays`]).
//!
//! What this cannot find: a process that has left the session, has emptied its environment *and* has changed its mark on
//! purpose; and after a crash of ours, one that has emptied its environment. Where there is no `/proc`, only the process
//! group is killed.

mod environment;
mod mark;
mod orphans;
mod tail;
mod tree;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Once;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use tokio::net::unix::pipe::Receiver;
pub use tokio::process::ChildStdin;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use uuid::Uuid;

pub use self::environment::Environment;
use self::mark::Mark;
pub use self::orphans::kill_orphans;
use self::tail::Tail;
use self::tree::Tree;
pub use self::tree::{Record, kill_leftovers, kill_owned};

/// The variable with the process's own token.
pub const TOKEN_VARIABLE: &str = "ROUNDHOUSE_PROCESS_TOKEN";

/// The variable that says for whom a process runs: see [`Spec::owner`].
pub const OWNER_VARIABLE: &str = "ROUNDHOUSE_PROCESS_OWNER";

/// The variable that says which process of ours has started a process.
pub const STARTER_VARIABLE: &str = "ROUNDHOUSE_PROCESS_STARTER";

/// How long the end of a tree is waited for once it is killed: longer only in uninterruptible sleep.
const DEATH_WAIT: Duration = Duration::from_secs(5);

/// How long the last of standard error is read after that. Longer only if something has escaped.
const LAST_READ: Duration = Duration::from_millis(500);

/// How long after a child's end we look for strays to reap.
const REAP_DELAY: Duration = Duration::from_secs(1);

/// What the process's standard output gives.
pub type Output = Receiver;

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program, looked up in the `PATH` that the process gets.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// What it gets beyond the allow-list.
    pub environment: Environment,
    /// For whom it runs, such as a session and its lease's token: a second name for [`kill_leftovers`], which does
    /// not have to be stored before the process starts. What several sessions share has no owner.
    pub owner: Option<String>,
    /// Its standard input.
    pub stdin: Stdin,
    /// Its standard output and error.
    pub streams: Streams,
}

impl Spec {
    /// A process without input, whose output and error are separate.
    pub fn new(program: impl Into<OsString>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            environment: Environment::default(),
            owner: None,
            stdin: Stdin::Null,
            streams: Streams::Separate,
        }
    }
}

/// The standard input of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// Empty.
    Null,
    /// Written through [`Process::take_stdin`].
    Piped,
}

/// Where standard output and error of a process go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Output is read through [`Process::take_output`]; error is drained here and its end kept.
    Separate,
    /// Both go into one pipe, in the order in which they are written.
    Merged,
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program is not there.
    #[error("the program {} was not found", .0.display())]
    ProgramMissing(OsString),
    /// The working directory is not there, or is none.
    #[error("the working directory {} is not a directory", .0.display())]
    NoWorkingDirectory(PathBuf),
    /// The system refused.
    #[error("the process did not start")]
    Refused(#[source] io::Error),
}

/// How a process and what it started have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The status of the process itself; `None` if even the kernel could not end it in time.
    pub status: Option<ExitStatus>,
    /// How many other processes of its tree still ran and were killed.
    pub others_killed: usize,
}

/// A running process and all that it starts. Dropping it kills them all; what is then left to reap, tokio reaps.
#[derive(Debug)]
pub struct Process {
    child: Box<dyn ChildWrapper>,
    tree: Tree,
    stdin: Option<ChildStdin>,
    output: Option<Output>,
    tail: Tail,
    /// The task that drains standard error; ends with this.
    drain: JoinSet<()>,
    has_ended: bool,
}

impl Process {
    /// Starts a process. Needs a tokio runtime.
    pub fn spawn(spec: Spec) -> Result<Self, SpawnError> {
        // Both cases fail with `NotFound`, and nothing else tells them apart.
        if !spec.cwd.is_dir() {
            return Err(SpawnError::NoWorkingDirectory(spec.cwd));
        }
        adopt_orphans();
        let (token, mark) = (Uuid::now_v7(), Mark::random());
        let (output, writer) = pipe()?;
        let (error, mut command) = command(&spec, token, writer)?;
        let child = mark::spawn(mark, || command.spawn(), |child| child.id());
        let child = child.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => SpawnError::ProgramMissing(spec.program),
            _ => SpawnError::Refused(error),
        });
        // It holds the writing ends: the pipes end with the process only without it.
        drop(command);
        // Its own handling of the group is not used: as process 1 it would wait for what the shell left behind.
        let mut child = child?.into_inner();
        let tree = Tree::new(child.id().unwrap_or_default(), token, mark);

        let tail = Tail::default();
        let mut drain = JoinSet::new();
        if let Some(error) = error {
            drain.spawn(tail.clone().follow(error));
        }
        let stdin = child.stdin().take();
        Ok(Self { stdin, child, tree, output: Some(output), tail, drain, has_ended: false })
    }

    /// By what the process can be found again after a crash.
    pub fn record(&self) -> &Record {
        &self.tree.record
    }

    /// The standard input; once, and only of a process that was started with [`Stdin::Piped`].
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The standard output; once. It has to be read all the while: a full pipe stops the process.
    pub fn take_output(&mut self) -> Option<Output> {
        self.output.take()
    }

    /// The end of what it has written to standard error so far (16 KiB at most).
    pub fn stderr_tail(&self) -> String {
        self.tail.text()
    }

    /// Waits for the process itself, not for what it started. Safe to drop and call again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Whether the process itself has ended. What it started may go on.
    pub fn has_exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the process and everything it started: asks the group to end, waits at most `grace` for the process
    /// itself, then kills what is left, and reaps. With no grace it is killed at once.
    pub async fn end(&mut self, grace: Duration) -> Ended {
        let tree = self.tree.clone();
        let found = on_blocking_thread(move || tree.members()).await;
        if !grace.is_zero() && matches!(self.child.try_wait(), Ok(None)) {
            self.tree.signal_group(Signal::SIGTERM);
            let _ = tokio::time::timeout(grace, self.child.wait()).await;
        }
        let tree = self.tree.clone();
        let killed = on_blocking_thread(move || tree.kill(&found)).await;

        let status = tokio::time::timeout(DEATH_WAIT, self.child.wait()).await.ok().and_then(Result::ok);
        if tokio::time::timeout(DEATH_WAIT, tree::gone(&killed)).await.is_err() {
            tracing::warn!(pid = self.tree.record.pid, "killed processes are still there");
        }
        self.has_ended = true;
        let _ = tokio::task::spawn_blocking(tree::reap_strays).await;
        let _ = tokio::time::timeout(LAST_READ, self.drain.join_next()).await;
        let leader = self.tree.record.pid;
        Ended { status, others_killed: killed.iter().filter(|process| process.pid != leader).count() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended {
            self.tree.kill(&[]);
        }
    }
}

/// Makes us the parent of everything that we start and that loses its own parent.
fn adopt_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(error) = prctl::set_child_subreaper(true) {
            tracing::warn!(%error, "what leaves its session cannot be held together with its run");
        }
    });
}

/// Reaps, as long as it is polled, processes that were handed to us because their parent ended, and have ended since.
/// Without it they stay as zombies until the next [`Process`] ends.
pub async fn reap_strays() {
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    while ended.recv().await.is_some() {
        // One look for all that end together.
        tokio::time::sleep(REAP_DELAY).await;
        let _ = tokio::task::spawn_blocking(tree::reap_strays).await;
    }
}

/// The command, with the reading end of its standard error where that is separate.
fn command(
    spec: &Spec,
    token: Uuid,
    output: io::PipeWriter,
) -> Result<(Option<Receiver>, CommandWrap), SpawnError> {
    #[expect(clippy::disallowed_methods, reason = "this is the module that spawns")]
    let mut command = Command::new(&spec.program);
    let (reader, writer) = match spec.streams {
        Streams::Separate => pipe().map(|(reader, writer)| (Some(reader), writer))?,
        Streams::Merged => (None, output.try_clone().map_err(SpawnError::Refused)?),
    };
    command
        .args(&spec.args)
        .current_dir(&spec.cwd)
        .env_clear()
        .envs(spec.environment.variables())
        .env(TOKEN_VARIABLE, token.to_string())
        .stdin(match spec.stdin {
            Stdin::Null => Stdio::null(),
            Stdin::Piped => Stdio::piped(),
        })
        .stdout(output)
        .stderr(writer);
    if let Some(owner) = &spec.owner {
        command.env(OWNER_VARIABLE, owner);
    }
    if let Some(starter) = orphans::starter() {
        command.env(STARTER_VARIABLE, starter);
    }
    let mut command = CommandWrap::from(command);
    command.wrap(ProcessSession);
    Ok((reader, command))
}

fn pipe() -> Result<(Receiver, io::PipeWriter), SpawnError> {
    let (reader, writer) = io::pipe().map_err(SpawnError::Refused)?;
    let reader = Receiver::from_owned_fd(reader.into()).map_err(SpawnError::Refused)?;
    Ok((reader, writer))
}

/// Looks through `/proc` where it blocks nobody; in place, should the runtime be going down.
async fn on_blocking_thread(work: impl Fn() -> Vec<tree::Seen> + Send + Clone + 'static) -> Vec<tree::Seen> {
    match tokio::task::spawn_blocking(work.clone()).await {
        Ok(found) => found,
        Err(_) => work(),
    }
}
