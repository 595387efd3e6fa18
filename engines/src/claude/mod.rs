//! The `claude-cli` engine: the real Claude Code CLI, one process for each session, driven over its stream of JSON lines.
//!
//! The CLI keeps the conversation, as a native session on disk ([`transcript`]); a process that is lost is started again
//! with it. All facts about the CLI were found by experiment with version 2.1.332, and what is read of it is read
//! leniently (`protocol`, `lines`).
//!
//! # A turn
//!
//! The session (`session`) owns the process and the tasks at its pipes (`link`), writes messages (`input`), and reads lines
//! only while a turn runs: what the CLI does in between waits in the pipe. What the lines mean is decided without a
//! process (`reading`): which message of ours they are about, what is a message of the model (`chain`, `message`), how a
//! turn ends (`turn`, `failure`), what it has used (`usage`).
//!
//! The CLI asks about each call of a tool (`asks`), and is answered only once the message that makes the call was taken:
//! so tools run only after whoever keeps messages has kept it.
//!
//! # After a crash
//!
//! A turn that goes on is looked up in the transcript (`earlier`): nothing that the model has is sent a second time.

mod asks;
mod chain;
mod command;
mod earlier;
mod failure;
mod input;
mod lines;
mod link;
mod message;
mod protocol;
mod proxy;
mod reading;
mod session;
mod settings;
pub mod transcript;
mod turn;
mod usage;
mod version;

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use self::reading::Reading;
use self::session::Session;
pub use self::settings::Settings;
use self::transcript::Transcripts;
use self::usage::Meter;
use crate::contract::{
    Capabilities, ContextKind, Engine, EngineError, EngineSession, Fork, Forked, Intake, Native, OpenSession,
};
use crate::openai::usage::Rates;
use crate::permissions::{Gate, Permissions};

/// The mode in which the CLI denies what it would ask about, and it asks us about everything.
const DONT_ASK: &str = "dontAsk";

/// The engine of one agent.
pub struct ClaudeCli {
    agent: Arc<Agent>,
}

/// What the sessions of one agent share.
struct Agent {
    settings: Settings,
    transcripts: Transcripts,
    rates: Option<Rates>,
}

impl Agent {
    fn meter(&self) -> Meter {
        Meter { before: None, rates: self.rates, max_cost_nanos: self.settings.max_cost_nanos }
    }

    /// What decides about the calls of a session.
    fn gate(&self, session: &OpenSession, native: &Native) -> Gate {
        Gate {
            own: self.settings.permissions.clone(),
            above: session.above.clone(),
            cwd: session.cwd.clone(),
            closed: self.settings.closed.clone(),
            engine_files: Some((self.settings.config_dir.clone(), native.id.clone())),
        }
    }

    fn reading(&self, session: &OpenSession, native: &Native) -> Reading {
        Reading::new(self.gate(session, native), self.meter())
    }
}

impl ClaudeCli {
    /// Checks the settings. Nothing is started.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with what is wrong with the settings.
    pub fn new(settings: Settings) -> Result<Self, EngineError> {
        let unavailable = |reason: &str| EngineError::Unavailable(reason.to_owned());
        if settings.command.first().is_none_or(String::is_empty) {
            return Err(unavailable("the command of Claude Code is empty"));
        }
        if !settings.config_dir.is_absolute() {
            return Err(unavailable("the configuration folder of Claude Code has to be an absolute path"));
        }
        if settings.permission_mode.as_deref() == Some(DONT_ASK) {
            return Err(unavailable(
                "permission_mode = \"dontAsk\" denies every call; permissions deny some of them",
            ));
        }
        for server in &settings.mcp {
            server.check().map_err(|error| unavailable(&error.to_string()))?;
        }
        let rates = settings.prices.map(Rates::new).transpose()?;
        let transcripts = Transcripts::new(&settings.config_dir);
        Ok(Self { agent: Arc::new(Agent { settings, transcripts, rates }) })
    }
}

impl fmt::Debug for ClaudeCli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaudeCli").field("command", &self.agent.settings.command).finish_non_exhaustive()
    }
}

#[async_trait]
impl Engine for ClaudeCli {
    fn capabilities(&self) -> Capabilities {
        Capabilities { context: ContextKind::Native, works_on_files: true, intake: Intake::AnyTime }
    }

    fn permissions(&self) -> Permissions {
        self.agent.settings.permissions.clone()
    }

    async fn available(&self) -> Result<(), EngineError> {
        let Some((program, args)) = self.agent.settings.command.split_first() else { return Ok(()) };
        let args: Vec<_> = args.iter().map(OsString::from).collect();
        version::check(&program.into(), &args, &std::env::temp_dir()).await
    }

    async fn open(&self, spec: OpenSession) -> Result<Box<dyn EngineSession>, EngineError> {
        Ok(Box::new(Session::open(Arc::clone(&self.agent), spec).await?))
    }

    async fn fork(&self, fork: Fork) -> Result<Forked, EngineError> {
        let agent = Arc::clone(&self.agent);
        let failed = |error: EngineError| match error {
            EngineError::ForkFailed(_) | EngineError::ResumeDropped(_) | EngineError::Behind(_) => error,
            other => EngineError::ForkFailed(other.to_string()),
        };
        blocking(move || agent.transcripts.fork(&fork)).await.map_err(failed)
    }

    async fn delete(&self, native: Native) -> Result<(), EngineError> {
        let agent = Arc::clone(&self.agent);
        blocking(move || agent.transcripts.delete(&native)).await
    }
}

/// Runs work on files where it blocks nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let lost =
        |error: tokio::task::JoinError| EngineError::Unavailable(format!("work on files was lost: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}
