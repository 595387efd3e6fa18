//! `shell`: a command, with all that it starts.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::bounded::Bounded;
use super::files::Problem;
use super::live::Live;
use super::text::Decoder;
use super::{Settings, ToolContext, ToolOutcome, input};
use crate::process::{Ended, Output, Process, SpawnError, Spec, Streams};

/// How long the output may stay open after the command's end before what holds it is killed.
const LINGER: Duration = Duration::from_millis(500);

/// How long what is left in the pipe is read after everything was killed. Longer only if something escaped.
const LAST_READ: Duration = Duration::from_millis(200);

/// How long a reader that is slow is waited for at the end.
const LAST_SHOWN: Duration = Duration::from_millis(200);

#[derive(Debug, Deserialize)]
struct Input {
    command: String,
    timeout_ms: Option<u64>,
}

pub(super) fn describe(settings: &Settings) -> (String, Value) {
    let (default, most) = (settings.shell_timeout, settings.shell_timeout_max);
    let description = format!(
        "Runs a command with bash (sh where there is none) in the workspace and returns its output, standard error \
         included. Standard input is empty. Fails if the exit status is not 0. After {} s (or `timeout_ms`) the \
         command is killed. Nothing goes on after the call: background processes are killed when the command ends. \
         Long output is cut in the middle.",
        default.as_secs()
    );
    let properties = json!({
        "command": { "type": "string", "description": "The command line." },
        "timeout_ms": {
            "type": "integer", "minimum": 1, "maximum": most.as_millis(),
            "description": format!("How long it may run, in milliseconds; {} unless given.", default.as_millis()),
        },
    });
    (description, input::schema(&properties, &["command"]))
}

pub(super) async fn call(input: Value, context: &ToolContext, settings: &Settings) -> ToolOutcome {
    match start(input, context, settings) {
        Ok((process, timeout)) => Run::new(process, context).finish(timeout, context).await,
        Err(problem) => ToolOutcome::failure(problem.text()),
    }
}

fn start(input: Value, context: &ToolContext, settings: &Settings) -> Result<(Process, Duration), Problem> {
    let input: Input = input::read(input)?;
    let timeout = input.timeout_ms.map_or(settings.shell_timeout, Duration::from_millis);
    if timeout.is_zero() || timeout > settings.shell_timeout_max {
        return Err(Problem::new(format!(
            "The input is not valid: `timeout_ms`: has to be from 1 to {}.",
            settings.shell_timeout_max.as_millis()
        )));
    }
    if input.command.trim().is_empty() || input.command.contains('\0') {
        return Err(Problem::new("The input is not valid: `command`: has to be a command, without NUL."));
    }
    let spawn = |shell: &str| {
        Process::spawn(Spec {
            args: vec!["-c".into(), input.command.clone().into()],
            environment: settings.environment.clone().with_safe_git(),
            owner: context.owner.clone(),
            streams: Streams::Merged,
            ..Spec::new(shell, &context.cwd)
        })
    };
    let process = match spawn("bash") {
        Err(SpawnError::ProgramMissing(_)) => spawn("sh"),
        other => other,
    };
    process.map(|process| (process, timeout)).map_err(|error| match error {
        SpawnError::Refused(cause) => Problem::new(format!("The command did not start: {cause}.")),
        other => Problem::new(format!("The command did not start: {other}.")),
    })
}

/// A command that runs.
struct Run {
    process: Process,
    output: Option<Output>,
    decoder: Decoder,
    live: Live,
    kept: Bounded,
}

/// Why a command is no longer waited for.
enum Stop {
    Exited(ExitStatus),
    TimedOut(Duration),
    Cancelled,
    /// We cannot wait for it.
    Lost(std::io::Error),
}

impl Run {
    fn new(mut process: Process, context: &ToolContext) -> Self {
        let output = process.take_output();
        let live = Live::new(context.output.clone());
        Self { process, output, decoder: Decoder::default(), live, kept: Bounded::default() }
    }

    async fn finish(mut self, limit: Duration, context: &ToolContext) -> ToolOutcome {
        let stop = self.follow(limit, context).await;
        let ended = self.process.end(Duration::ZERO).await;
        if !matches!(stop, Stop::Cancelled) {
            let _ = timeout(LAST_READ, self.read_to_end()).await;
        }
        let rest = std::mem::take(&mut self.decoder).finish();
        self.take(&rest);
        if self.live.waits() && !matches!(stop, Stop::Cancelled) {
            let _ = timeout(LAST_SHOWN, self.live.room()).await;
            self.live.offer();
        }
        outcome(self.kept.finish(), &stop, ended)
    }

    /// Reads until the command has ended and its output too, or until it may run no longer.
    async fn follow(&mut self, limit: Duration, context: &ToolContext) -> Stop {
        let mut buffer = vec![0; 64 * 1024];
        let mut exited = None;
        let mut deadline = Instant::now() + limit;
        loop {
            if let (Some(status), None) = (exited, &self.output) {
                return Stop::Exited(status);
            }
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => return Stop::Cancelled,
                () = sleep_until(deadline) => return exited.map_or(Stop::TimedOut(limit), Stop::Exited),
                () = self.live.room() => self.live.offer(),
                status = self.process.wait(), if exited.is_none() => match status {
                    Ok(status) => {
                        exited = Some(status);
                        deadline = deadline.min(Instant::now() + LINGER);
                    }
                    Err(error) => return Stop::Lost(error),
                },
                read = read(&mut self.output, &mut buffer) => self.took(read, &buffer),
            }
        }
    }

    fn took(&mut self, read: usize, buffer: &[u8]) {
        if read == 0 {
            self.output = None;
        } else {
            let piece = self.decoder.push(&buffer[..read]);
            self.take(&piece);
        }
    }

    fn take(&mut self, piece: &str) {
        self.kept.push(piece);
        self.live.push(piece);
    }

    async fn read_to_end(&mut self) {
        let mut buffer = vec![0; 64 * 1024];
        while self.output.is_some() {
            let read = read(&mut self.output, &mut buffer).await;
            self.took(read, &buffer);
        }
    }
}

/// 0 at the end; pending once the end was reached. Safe to drop.
async fn read(output: &mut Option<Output>, buffer: &mut [u8]) -> usize {
    match output {
        // A pipe that cannot be read has ended.
        Some(output) => output.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn outcome(mut text: String, stop: &Stop, ended: Ended) -> ToolOutcome {
    let mut note = match stop {
        Stop::Exited(status) if status.success() => String::new(),
        Stop::Exited(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("[exit status {code}]"),
            (None, Some(signal)) => format!("[killed by signal {signal}]"),
            (None, None) => "[ended without a status]".to_owned(),
        },
        Stop::TimedOut(limit) => {
            format!(
                "[timed out after {} ms: the command and all it had started were killed]",
                limit.as_millis()
            )
        }
        Stop::Cancelled => "[cancelled: the command and all it had started were killed]".to_owned(),
        Stop::Lost(error) => format!("[the command could not be waited for and was killed: {error}]"),
    };
    if let (Stop::Exited(_), 1..) = (stop, ended.others_killed) {
        let gap = if note.is_empty() { "" } else { "\n" };
        let _ =
            write!(note, "{gap}[{} left running in the background and killed]", plural(ended.others_killed));
    }
    let success = matches!(stop, Stop::Exited(status) if status.success());
    if text.is_empty() && note.is_empty() {
        "(no output)".clone_into(&mut text);
    }
    if !note.is_empty() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&note);
    }
    ToolOutcome { success, text }
}

fn plural(count: usize) -> String {
    if count == 1 { "1 process was".to_owned() } else { format!("{count} processes were") }
}
