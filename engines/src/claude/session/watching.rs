//! What is heard of the process, and what is done where nothing is heard.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::Session;
use crate::claude::failure;
use crate::claude::lines::Read;
use crate::claude::protocol::Line;
use crate::claude::turn::Ending;
use crate::contract::{EngineError, EngineEvent};

/// How long a process may take to be ready: a long conversation on a busy host needs most of a minute.
const STARTUP: Duration = Duration::from_mins(2);

/// Within which time of one another the CLI tells of messages that the model is given together.
pub(super) const TOGETHER: Duration = Duration::from_millis(50);

/// How long a turn may take to end after an interrupt; then the process is killed.
pub(super) const ENDING: Duration = Duration::from_secs(10);

impl Session {
    pub(super) fn heard(&mut self, read: Read) {
        self.heard = Instant::now();
        match read {
            Read::Json(value) => {
                let kind = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
                self.last = format!("{} {}", kind("type"), kind("subtype"));
                self.reading.read(Line::read(&value));
                if self.reading.is_ready() {
                    self.mcp = None;
                }
            }
            Read::Odd(text) => {
                tracing::warn!(session = self.spec.session, text, "the CLI said something that is no JSON");
                self.odd = text;
            }
            Read::TooLong(bytes) => {
                tracing::warn!(
                    session = self.spec.session,
                    bytes,
                    "a line of the CLI was too long and is dropped"
                );
            }
        }
    }

    /// By when something has to happen.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.ends_by.is_some() || !self.reading.is_running() {
            return self.ends_by;
        }
        if !self.reading.is_ready() {
            return Some(self.heard + STARTUP);
        }
        // A person may take any time, and so may a tool.
        let is_waiting = self.reading.is_asking() || self.reading.has_open_calls();
        (!is_waiting).then(|| self.heard + self.agent.settings.no_progress)
    }

    /// Nothing has happened for too long.
    pub(super) fn overdue(&mut self) {
        if self.ends_by.is_some() || !self.reading.is_ready() {
            self.kill(false);
            return;
        }
        let limit = self.agent.settings.no_progress;
        let last = self.last.trim().to_owned();
        tracing::warn!(session = self.spec.session, last, ?limit, "the CLI is silent");
        self.stop(Ending::NoProgress { after: limit, last });
    }

    pub(super) fn stop(&mut self, ending: Ending) {
        if self.reading.is_running() && !self.reading.is_ending() {
            self.reading.stop(ending);
            self.ends_by = Some(Instant::now() + ENDING);
        }
        self.flush();
    }

    /// Ends the process, which has ended itself or has to; then the turn ends.
    pub(super) fn kill(&mut self, has_ended: bool) {
        let Some(link) = self.link.take() else { return };
        let (was_ready, odd) = (self.reading.is_ready(), std::mem::take(&mut self.odd));
        self.dying = Some(
            async move {
                let (status, stderr) = link.end(has_ended).await;
                EngineEvent::Failed(if was_ready || has_ended {
                    failure::of_exit(status, &stderr, &odd)
                } else {
                    EngineError::Unavailable(format!(
                        "Claude Code was not ready within {STARTUP:?}: {}",
                        stderr.trim()
                    ))
                })
            }
            .boxed(),
        );
    }
}
