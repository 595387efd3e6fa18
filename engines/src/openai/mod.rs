//! The `openai` engine: a loop over any server that speaks Chat Completions.
//!
//! It keeps nothing between turns: the worker replays the conversation with each. One [`OpenAi`] is one agent's
//! engine and shares its connections among all sessions.
//!
//! Servers differ, and most of what they do must work: fields that are missing, streams without `[DONE]`, errors
//! with status 200. What is read is therefore permissive (`protocol`, `lenient`), and an answer is whole once the
//! server has said so in one of the usual ways (`answer`). A call is tried again only as long as nothing of its
//! answer was passed on (`call`).

mod answer;
mod call;
mod failure;
mod lenient;
mod protocol;
mod provider;
mod retry;
mod session;
mod settings;
mod sse;
mod stream;
mod usage;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use self::provider::Provider;
use self::session::Session;
pub use self::settings::{Prices, Secret, Settings};
use crate::contract::{Capabilities, ContextKind, Engine, EngineError, EngineSession, OpenSession};

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
        Capabilities { context: ContextKind::Replayed }
    }

    async fn available(&self) -> Result<(), EngineError> {
        self.provider.probe().await
    }

    async fn open(&self, spec: OpenSession) -> Result<Box<dyn EngineSession>, EngineError> {
        let model = spec.model.as_deref().unwrap_or(&self.provider.settings.model);
        if model.is_empty() {
            return Err(EngineError::Unavailable("no model is configured".to_owned()));
        }
        Ok(Box::new(Session::new(Arc::clone(&self.provider), model.into())))
    }
}
