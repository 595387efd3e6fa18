//! Runs programs, and ends them when we are told to end.
//!
//! A signal only sets a flag ([`catch_signals`]); whoever waits looks at it, ends what it waits for, and returns an
//! error, so that the guards on the stack do the rest.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, stdin};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// How long a program may take to end by itself; nextest gives its tests ten seconds.
const GRACE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

/// The last signal that arrived, or zero.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// From here on SIGINT, SIGTERM and SIGHUP set a flag instead of ending us.
pub(crate) fn catch_signals() -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let number = signal as i32;
        signal_hook::flag::register_usize(number, Arc::clone(&SIGNAL), usize::try_from(number)?)
            .with_context(|| format!("cannot catch {signal}"))?;
    }
    Ok(())
}

/// The signal that told us to end, if one did.
pub(crate) fn interrupted() -> Option<Signal> {
    let number = i32::try_from(SIGNAL.load(Ordering::SeqCst)).ok()?;
    Signal::try_from(number).ok()
}

/// Fails once a signal has told us to end.
pub(crate) fn check_interrupted() -> Result<()> {
    match interrupted() {
        Some(signal) => bail!("ended by {signal}"),
        None => Ok(()),
    }
}

/// Sleeps between two looks at something that is waited for; fails when a signal has told us to end.
pub(crate) fn pause() -> Result<()> {
    std::thread::sleep(POLL);
    check_interrupted()
}

/// What a shell reports for a program that a signal ended.
pub(crate) fn exit_code_of_signal(signal: Signal) -> ExitCode {
    ExitCode::from(128 + u8::try_from(signal as i32).unwrap_or_default())
}

/// The exit code that passes on how a program ended.
pub(crate) fn exit_code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the checkout")
}

/// Where tools are installed that the machine does not have: inside the checkout, so that nothing stays elsewhere.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// The value of an environment variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Finds a program on the PATH, or in the folders that only root has there.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    search_path().iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn search_path() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    folders.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders
}

/// A program to run in the root of the checkout, with nothing of the cargo in its environment that runs us.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    if let Ok(path) = std::env::join_paths(search_path()) {
        command.env("PATH", path);
    }
    // `cargo run` sets these for us. Build scripts watch some of them (ring does), and would run again each time.
    for (name, _) in std::env::vars_os() {
        let ours = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "OUT_DIR"
        });
        if ours {
            command.env_remove(name);
        }
    }
    command
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    command(variable("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a program without input in a process group of its own, and leaves nothing of that group behind.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    check_interrupted()?;
    Group::spawn(command.stdin(Stdio::null()))?.wait()
}

/// Runs a program that has to succeed.
pub(crate) fn run_ok(command: &mut Command) -> Result<()> {
    let status = run(command)?;
    ensure!(status.success(), "`{}` failed: {status}", shown(command));
    Ok(())
}

/// Runs a program for a person: at a terminal it stays in our process group, so that it can read its input and gets
/// the terminal's signals itself; elsewhere it is run like any other.
pub(crate) fn run_attached(command: &mut Command) -> Result<ExitStatus> {
    if !stdin().is_terminal() {
        return run(command);
    }
    let mut child = command.spawn().with_context(|| format!("cannot start `{}`", shown(command)))?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a program")? {
            return Ok(status);
        }
        std::thread::sleep(POLL);
        // The terminal sends SIGINT to the program as well, which decides what to do; other signals came to us alone.
        if let Some(signal) = interrupted().filter(|signal| *signal != Signal::SIGINT && !told) {
            told = true;
            _ = kill(pid, signal);
        }
    }
}

/// The output of a short program that has to succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    ensure!(output.status.success(), "`{}` failed: {}", shown(command), output.status);
    String::from_utf8(output.stdout).with_context(|| format!("`{}` did not print text", shown(command)))
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A program and all that it starts, as one process group. Dropping it kills the group.
pub(crate) struct Group {
    child: Child,
    pid: Pid,
    what: String,
    killed: bool,
}

impl Group {
    /// Starts the program as the leader of a new process group.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let what = shown(command);
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start `{what}`"))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        Ok(Self { child, pid, what, killed: false })
    }

    /// How the program ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for `{}`", self.what))
    }

    fn wait(mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                // A program that a signal of ours ended counts as interrupted, even if it says that all is well.
                check_interrupted()?;
                return Ok(status);
            }
            if let Err(interrupted) = pause() {
                self.end(Signal::SIGTERM, GRACE);
                return Err(interrupted.context(format!("`{}` was stopped", self.what)));
            }
        }
    }

    /// Asks the whole group to end, waits for the leader, and kills what is left.
    pub(crate) fn end(&mut self, signal: Signal, grace: Duration) {
        // A failure means that the group is gone already, here and below.
        _ = killpg(self.pid, signal);
        self.wait_and_kill(grace);
    }

    /// Asks the leader alone to end and gives it time to end the others; then kills what is left.
    pub(crate) fn end_leader(&mut self, signal: Signal, grace: Duration) {
        _ = kill(self.pid, signal);
        self.wait_and_kill(grace);
    }

    fn wait_and_kill(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        self.kill();
    }

    fn kill(&mut self) {
        // Once only: later the number may be another group's.
        if !std::mem::replace(&mut self.killed, true) {
            _ = killpg(self.pid, Signal::SIGKILL);
            _ = self.child.wait();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
