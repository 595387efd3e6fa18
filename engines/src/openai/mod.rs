//! The `openai` engine: a loop over any server that speaks Chat Completions.
//!
//! It keeps nothing between turns: the worker replays the conversation with each. One [`OpenAi`] is one agent's
//! engine and shares its connections among all sessions.
//!
//! Servers differ, and most of what they do must work: fields that are missing, streams without `[DONE]`, errors
//! with status 200. What is read is therefore permissive (`protocol`, `lenient`, `sse`, `calls`, `arguments`); what it
//! meant, an answer, a part of one or a failure, is decided in one place (`verdict`). A call is tried again only as long
//! as nothing of its answer was passed on (`call`).
//!
//! What is sent is made of the conversation in one place as well (`replay`): what only this provider understands goes
//! back to it (`opaque`), what it cannot take is written otherwise (`needs`), what it refuses to read is left out from the
//! next turn on (`refusals`).
//!
//! # A turn
//!
//! A turn (`turn`) is one future that the session holds; it stands still at each event until the next one is asked
//! for (`host`), and dropping it closes the connection and ends the running tool. One *iteration* is a model call with
//! the tools that it calls, one after the other (`execution`); between two iterations is a boundary. Calls pass the
//! permissions first ([`crate::permissions`]); what goes wrong with a call is told to the model and fails nothing.
//!
//! `iterations`, usage and cost that are told are of this attempt alone; the limits count those of the attempts before it
//! too, so that a turn which goes on after a crash has no more than what is left. Calls that summarise, and those that
//! brought nothing, are no iterations, but what they cost is part of the turn's usage and counts towards its limit. It
//! stands in `Compacted` and `Spent` as well: a sum over a turn's events takes all kinds, one that takes `TurnDone` none.
//!
//! # Long conversations
//!
//! A context that nears the model's window, or that the server finds too long, has its older part replaced by a
//! summary (`compaction`).

mod answer;
mod arguments;
pub(crate) mod attachments;
mod call;
mod call_ids;
mod calls;
mod compaction;
mod conversation;
mod cuts;
mod execution;
mod failure;
mod host;
mod host_tools;
pub(crate) mod lenient;
mod message;
mod needs;
mod opaque;
mod overflow;
mod protocol;
mod provider;
mod refusals;
mod replay;
mod retry;
mod sent;
mod session;
mod settings;
mod spending;
mod sse;
mod stream;
mod toolbox;
mod turn;
pub(crate) mod usage;
mod verdict;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use self::needs::{CallIds, Compat, ReasoningReplay, RoleOrder, SystemPlace};
use self::provider::Provider;
pub(crate) use self::provider::is_loopback;
use self::session::Session;
pub use self::settings::{Prices, Secret, Settings};
pub(crate) use self::spending::dollars;
use self::turn::Place;
use crate::contract::{Capabilities, ContextKind, Engine, EngineError, EngineSession, Intake, OpenSession};
use crate::permissions::Gate;
pub use crate::permissions::{InvalidRule, Permissions, Rule, Verdict};
use crate::tools::LeftOut;

/// The engine of one agent.
pub struct OpenAi {
    provider: Arc<Provider>,
}

impl OpenAi {
    /// Checks the settings and prepares the client. Nothing is sent.
    ///
    /// A TLS provider must be installed in the process before
    /// (`rustls::crypto::ring::default_provider().install_default()`).
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with what is wrong with the settings.
    pub fn new(settings: Settings) -> Result<Self, EngineError> {
        Ok(Self { provider: Arc::new(Provider::new(settings)?) })
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi").field("model", &self.provider.settings.model).finish_non_exhaustive()
    }
}

#[async_trait]
impl Engine for OpenAi {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            context: ContextKind::Replayed,
            works_on_files: self.provider.settings.sources.iter().any(|source| source.works_on_files()),
            intake: Intake::Boundaries,
        }
    }

    fn permissions(&self) -> Permissions {
        self.provider.settings.permissions.clone()
    }

    async fn available(&self) -> Result<(), EngineError> {
        self.provider.probe().await
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.provider.settings.sources.iter().flat_map(|source| source.left_out()).collect()
    }

    async fn open(&self, spec: OpenSession) -> Result<Box<dyn EngineSession>, EngineError> {
        let model = spec.model.as_deref().unwrap_or(&self.provider.settings.model);
        if model.is_empty() {
            return Err(EngineError::Unavailable("no model is configured".to_owned()));
        }
        let settings = &self.provider.settings;
        let gate = Gate {
            own: settings.permissions.clone(),
            above: spec.above,
            cwd: spec.cwd.clone(),
            closed: settings.closed.clone(),
            engine_files: None,
        };
        let place = Place {
            model: model.into(),
            cwd: spec.cwd,
            owner: spec.owner.unwrap_or(spec.session),
            gate: Arc::new(gate),
        };
        Ok(Box::new(Session::new(Arc::clone(&self.provider), place)))
    }
}
