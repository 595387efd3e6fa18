//! A running CLI: its process, and the tasks that read from it and write to it.

use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::lines::{self, Read, Waiting};
use super::proxy::Proxy;
use crate::contract::EngineError;
use crate::process::{ChildStdin, Process, Spec};

/// How many lines may wait to be written. A CLI that reads none of so many hangs.
const UNWRITTEN_LINES: usize = 256;

const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How long a process that has closed its output may take to be gone.
const EXIT_WAIT: Duration = Duration::from_secs(5);

/// Dropping it kills the process and all that it has started.
pub(super) struct Link {
    process: Process,
    lines: mpsc::Receiver<Waiting>,
    /// `None` once its input is closed.
    writer: Option<mpsc::Sender<String>>,
    /// What it reaches its provider through.
    _proxy: Option<Proxy>,
    /// Reader and writer; they end with this.
    _tasks: JoinSet<()>,
}

impl Link {
    /// Starts a process.
    pub(super) fn start(spec: Spec, proxy: Option<Proxy>) -> Result<Self, EngineError> {
        let unavailable = |reason: String| EngineError::Unavailable(format!("Claude Code: {reason}"));
        let mut process = Process::spawn(spec).map_err(|error| unavailable(error.to_string()))?;
        let (Some(stdin), Some(output)) = (process.take_stdin(), process.take_output()) else {
            return Err(unavailable("its pipes are missing".to_owned()));
        };
        let mut tasks = JoinSet::new();
        let (read, lines) = lines::channel();
        tasks.spawn(lines::follow(BufReader::with_capacity(READ_BUFFER_BYTES, output), read));
        let (writer, unwritten) = mpsc::channel(UNWRITTEN_LINES);
        tasks.spawn(write_all(stdin, unwritten));
        Ok(Self { process, lines, writer: Some(writer), _proxy: proxy, _tasks: tasks })
    }

    /// Writes a line. It is lost if the process does not read it: then the process is as good as dead, and its silence
    /// tells.
    pub(super) fn write(&self, line: &Value) {
        if let Some(writer) = &self.writer
            && writer.try_send(format!("{line}\n")).is_err()
        {
            tracing::warn!(pid = self.process.record().pid, "the CLI takes no more input");
        }
    }

    /// The next line, `None` at the end of its output. Safe to drop and call again.
    pub(super) async fn read(&mut self) -> Option<Read> {
        self.lines.recv().await.map(|waiting| waiting.read)
    }

    /// Whether it has closed its output, or is about to.
    pub(super) fn has_ended(&self) -> bool {
        self.lines.is_closed()
    }

    /// Ends what is left of a process that has closed its output, or that is no longer wanted. Says how it ended, and the
    /// last that it said on its standard error.
    pub(super) async fn end(mut self, wait_for_exit: bool) -> (Option<ExitStatus>, String) {
        if wait_for_exit {
            let _ = timeout(EXIT_WAIT, self.process.wait()).await;
        }
        let ended = self.process.end(Duration::ZERO).await;
        (ended.status, self.process.stderr_tail())
    }

    /// Ends it gracefully: its input is closed, by which it ends once it is idle; after half of `grace` it is asked to end,
    /// after the whole it is killed with all that it has started.
    pub(super) async fn close(mut self, grace: Duration) {
        let half = grace / 2;
        let until = Instant::now() + half;
        self.writer = None;
        if !half.is_zero() {
            // Its output is read to the end, so that it does not wait for that.
            while let Ok(Some(_)) = timeout_at(until, self.lines.recv()).await {}
            let _ = timeout_at(until, self.process.wait()).await;
        }
        self.process.end(half).await;
    }
}

async fn write_all(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        let _ = stdin.flush().await;
    }
}

/// A control request of ours.
pub(super) fn request(id: &str, request: &Value) -> Value {
    json!({"type": "control_request", "request_id": id, "request": request})
}

/// Stops what runs, and drops what waits.
pub(super) fn interrupt(id: &str) -> Value {
    request(id, &json!({"subtype": "interrupt", "cancel_queued": true}))
}
