//! One process of the binary.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{soon, until};

/// A process that runs. Killed with this, if it still does.
pub(crate) struct Process {
    pub(crate) role: &'static str,
    child: Child,
    ended: Option<ExitStatus>,
    out: PathBuf,
    err: PathBuf,
}

impl Process {
    pub(crate) fn start(role: &'static str, n: usize, dir: &Path, env: &[(String, String)]) -> Self {
        let (out, err) = (dir.join(format!("{role}{n}.out")), dir.join(format!("{role}{n}.err")));
        let child = Command::new(env!("CARGO_BIN_EXE_roundhouse"))
            .arg(role)
            .current_dir(dir)
            .env_clear()
            .env("PATH", super::services::variable("PATH").unwrap_or_default())
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .expect("the binary starts");
        Self { role, child, ended: None, out, err }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether nobody has seen it end.
    pub(crate) fn runs(&self) -> bool {
        self.ended.is_none()
    }

    /// What it has written to its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits until its log has a line with all of these words.
    pub(crate) async fn logged(&self, words: &[&str]) {
        until("a line of a log", async || {
            self.log().lines().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
        })
        .await;
    }

    /// The address that it says it listens on.
    pub(crate) async fn url(&mut self) -> String {
        let (out, role) = (self.out.clone(), self.role);
        for _ in 0..3_000 {
            let text = std::fs::read_to_string(&out).unwrap_or_default();
            let found = text.split_whitespace().find(|word| word.starts_with("http://"));
            // A whole line: the word is complete.
            if let Some(url) = found.filter(|_| text.ends_with('\n')) {
                return url.trim_end_matches(['/', '.', ',']).to_owned();
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{role} ended with {status} at its start:\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!(
            "{role} does not say where it listens:\n{text}\n{}",
            self.log(),
            text = std::fs::read_to_string(&out).unwrap_or_default()
        );
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// `kill -9`, and what the kernel needs to be done with it.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait().await;
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        if let Some(status) = self.ended {
            return status;
        }
        let status = {
            let child = &mut self.child;
            soon("a process to end", async {
                loop {
                    if let Some(status) = child.try_wait().unwrap() {
                        return status;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await
        };
        self.ended = Some(status);
        status
    }

    /// Stops it as an operator would, and asserts that it ended well.
    pub(crate) async fn stop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.signal(Signal::SIGTERM);
        let status = self.wait().await;
        assert!(status.success(), "{} ended with {status}:\n{}", self.role, self.log());
    }

    /// Waits until it has frozen: a stop signal takes a moment.
    pub(crate) async fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.pid());
        until("a process to freeze", async || {
            let text = std::fs::read_to_string(&stat).ok()?;
            text.rsplit(')').next()?.trim_start().starts_with('T').then_some(())
        })
        .await;
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
