//! What Postgres and Redis have in common: a folder, a free port, a log, the wait until they answer, the end.

use std::ffi::OsStr;
use std::fs::{File, Permissions, read_to_string, set_permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::sh::{self, Group};

const START: Duration = Duration::from_mins(1);
const STOP: Duration = Duration::from_secs(10);

/// A port can be taken between its choice and its use.
const TRIES: u32 = 5;

/// A new folder that other users may pass through, since Postgres runs as one.
pub(crate) fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("roundhouse-services-").tempdir()?;
    set_permissions(folder.path(), Permissions::from_mode(0o711))?;
    Ok(folder)
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    group: Group,
    stop: Signal,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.group.end_leader(self.stop, STOP);
    }
}

/// How to start a server and to see that it answers.
pub(crate) struct Recipe<'a> {
    pub(crate) name: &'static str,
    /// The signal on which it ends at once and takes its children with it.
    pub(crate) stop: Signal,
    pub(crate) log: &'a Path,
    /// The command that starts it on a port.
    pub(crate) command: &'a dyn Fn(u16) -> Result<Command>,
    /// Whether it answers on that port.
    pub(crate) answers: &'a dyn Fn(u16) -> bool,
}

impl Recipe<'_> {
    /// Starts the server on a free port and waits until it answers.
    pub(crate) fn start(&self) -> Result<(Server, u16)> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_start() {
                Ok(started) => return Ok(started),
                Err(error) if tries == TRIES => return Err(error),
                Err(_) => sh::check_interrupted()?,
            }
        }
    }

    fn try_start(&self) -> Result<(Server, u16)> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log = File::create(self.log)?;
        let mut command = (self.command)(port)?;
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        let mut server = Server { group: Group::spawn(&mut command)?, stop: self.stop };
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = server.group.ended()? {
                bail!("{} ended at its start: {status}\n{}", self.name, self.log_text());
            }
            if (self.answers)(port) {
                return Ok((server, port));
            }
            if Instant::now() > deadline {
                bail!("{} does not answer after {START:?}\n{}", self.name, self.log_text());
            }
            sh::pause().with_context(|| format!("while {} was starting", self.name))?;
        }
    }

    fn log_text(&self) -> String {
        read_to_string(self.log).unwrap_or_default()
    }
}

/// A command that the kernel ends with `signal` when we die without a chance to end it, and that runs as another user
/// if one is given. Where util-linux is missing it is the bare program.
pub(crate) fn tied(program: &Path, signal: Signal, user: Option<&str>) -> Result<Command> {
    let Some(setpriv) = sh::find("setpriv") else {
        if let Some(user) = user {
            bail!(
                "setpriv (util-linux) is missing, and root needs it to run {} as {user}",
                program.display()
            );
        }
        return Ok(sh::command(program));
    };
    let mut command = sh::command(setpriv);
    if let Some(user) = user {
        command.args([format!("--reuid={user}"), format!("--regid={user}")]).arg("--init-groups");
    }
    let name = signal.as_str().trim_start_matches("SIG");
    command.arg("--pdeathsig").arg(name).args([OsStr::new("--"), program.as_os_str()]);
    Ok(command)
}
