//! How a session gets its process.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use super::Session;
use crate::claude::command::{self, Begins, McpFile};
use crate::claude::link::{self, Link};
use crate::claude::proxy::Proxy;
use crate::claude::usage::Totals;
use crate::claude::{Agent, blocking, reading};
use crate::contract::{ContextMessage, EngineError, Native, OpenSession};

impl Session {
    /// Starts the process of a session that goes on; of another, it is not known yet how it begins.
    pub(in crate::claude) async fn open(agent: Arc<Agent>, spec: OpenSession) -> Result<Self, EngineError> {
        let id = spec.native_session.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        let native = Native { id, cwd: spec.cwd.clone() };
        let reading = agent.reading(&spec, &native);
        let mut session = Self {
            agent,
            spec,
            native,
            link: None,
            dying: None,
            reading,
            has_history: false,
            used: HashSet::new(),
            heard: Instant::now(),
            last: String::new(),
            odd: String::new(),
            ends_by: None,
            mcp: None,
        };
        if session.spec.native_session.is_some() {
            session.check().await?;
            session.start(Begins::Resumed).await?;
        }
        Ok(session)
    }

    /// Whether the transcript is there and has what is stored of it.
    pub(super) async fn check(&mut self) -> Result<(), EngineError> {
        let (agent, native, anchor) =
            (Arc::clone(&self.agent), self.native.clone(), self.spec.anchor.clone());
        blocking(move || agent.transcripts.check(&native, anchor.as_deref())).await
    }

    pub(super) async fn start(&mut self, begins: Begins) -> Result<(), EngineError> {
        let agent = Arc::clone(&self.agent);
        let mcp = blocking(move || {
            McpFile::write(&agent.settings).map_err(|error| {
                EngineError::Unavailable(format!("the MCP servers could not be written down: {error}"))
            })
        })
        .await?;
        let (settings, id) = (&self.agent.settings, &self.native.id);
        let proxy = Proxy::start(settings).await?;
        let path = mcp.as_ref().map(McpFile::path);
        let spec = command::spec(settings, &self.spec, id, begins, path, proxy.as_ref());
        let link = Link::start(spec, proxy)?;
        let has_transcript = begins != Begins::New;
        let mut initialize = json!({"subtype": "initialize"});
        if !self.agent.settings.instructions.is_empty() {
            // Not as an argument: those have a limit, and are seen by all users of the host.
            initialize["appendSystemPrompt"] = json!(self.agent.settings.instructions);
        }
        link.write(&link::request(reading::INITIALIZE, &initialize));
        self.reading = self.agent.reading(&self.spec, &self.native);
        if has_transcript {
            // A resumed process goes on from the totals of the one before.
            link.write(&link::request(reading::BASELINE, &json!({"subtype": "get_usage"})));
        } else {
            self.reading.set_baseline(Totals::default());
        }
        self.has_history = has_transcript;
        self.used.clear();
        self.odd.clear();
        self.mcp = mcp;
        self.link = Some(link);
        self.heard = Instant::now();
        Ok(())
    }

    /// Begins the native session with a conversation, and starts the process.
    pub(super) async fn seed(&mut self, context: Vec<ContextMessage>) -> Result<(), EngineError> {
        let (agent, native, model) = (Arc::clone(&self.agent), self.native.clone(), self.spec.model.clone());
        blocking(move || {
            let model = model.as_deref().or(agent.settings.model.as_deref()).unwrap_or_default();
            agent.transcripts.seed(&native, &context, model).map(drop)
        })
        .await?;
        self.start(Begins::Seeded).await
    }
}
