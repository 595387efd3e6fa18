//! Tools of MCP servers.
//!
//! A [`Server`] is one server of one agent, started as a process that speaks over its standard streams, or reached
//! over streamable HTTP. It is connected when a turn first needs it, and all sessions of the agent share it. Its
//! tools carry its name in front (`names`). A process outlives the turn that has started it, and where a crash of ours
//! leaves it running, it is ended with what it has started ([`crate::process::kill_orphans`]).
//!
//! A server that has died is started again once. If that does not last, or it cannot be reached at all, calls say
//! that it is unavailable until a back-off is over; nothing of it ever fails a turn. A call is sent at most once: where
//! the connection breaks before there is an answer, the model is told that the call may have been carried out.
//!
//! What a server says of its own tools (that they only read, for instance) grants nothing: permissions do.

mod connection;
mod http;
mod link;
mod listing;
mod names;
mod opening;
mod reasons;
mod rendering;
mod schema;
mod settings;

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Mutex;

use self::connection::{CallError, Connection};
use self::link::Link;
use self::listing::Listing;
use self::opening::Known;
pub use self::settings::{InvalidServer, Settings, Transport};
use crate::tools::{LeftOut, ToolContext, ToolOutcome, ToolSource, ToolSpec};

/// An MCP server of an agent. Dropping it ends the connection, and the process with all that it has started.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    /// Held while connecting, which has a deadline: whoever else needs the connection has to wait for it anyway.
    link: Mutex<Link>,
    /// How it is begun with.
    known: Known,
    /// What the server has listed last. It stays while the server is away, so that calls say so.
    listed: RwLock<Arc<Listing>>,
}

impl Server {
    /// Checks the settings. Nothing is started and nobody asked.
    pub fn new(settings: Settings) -> Result<Self, InvalidServer> {
        settings.check()?;
        Ok(Self { settings, link: Mutex::default(), known: Known::default(), listed: RwLock::default() })
    }

    /// The connection, made or made anew if need be; else why there is none.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut link = self.link.lock().await;
        if let Some(connection) = link.current(&self.settings)? {
            return Ok(connection);
        }
        match Connection::open(&self.settings, &self.known).await {
            Ok((connection, listed)) => {
                self.keep(listed);
                Ok(link.up(connection))
            }
            Err(reason) => {
                link.down(&self.settings, &reason);
                Err(reason)
            }
        }
    }

    fn keep(&self, listed: Listing) {
        *self.listed.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(listed);
    }

    fn listed(&self) -> Arc<Listing> {
        Arc::clone(&self.listed.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn try_call(&self, name: &str, input: Value) -> ToolOutcome {
        let mut was_sent_in_vain = false;
        loop {
            let connection = match self.connection().await {
                Ok(connection) => connection,
                Err(reason) => return self.unavailable(&reason),
            };
            let listed = self.listed();
            let Some(tool) = listed.tools.iter().find(|tool| tool.spec.name == name) else {
                return ToolOutcome::failure(format!(
                    "The MCP server `{}` has no tool `{name}` any more.",
                    self.settings.name
                ));
            };
            match connection.call(&tool.original, input.clone(), &self.settings).await {
                Ok(outcome) => return outcome,
                Err(CallError::NotSent(_)) if !was_sent_in_vain => was_sent_in_vain = true,
                Err(CallError::NotSent(reason)) => return self.unavailable(&reason),
                Err(CallError::Broken(reason)) => {
                    return ToolOutcome::failure(format!(
                        "The connection to the MCP server `{}` broke during the call, which may or may not have been \
                         carried out: {reason}",
                        self.settings.name
                    ));
                }
            }
        }
    }

    fn unavailable(&self, reason: &str) -> ToolOutcome {
        ToolOutcome::failure(format!("The MCP server `{}` is unavailable: {reason}", self.settings.name))
    }
}

#[async_trait]
impl ToolSource for Server {
    fn tools(&self) -> Vec<ToolSpec> {
        self.listed().tools.iter().map(|tool| tool.spec.clone()).collect()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.listed().left_out.clone()
    }

    /// Connects, and lists anew what the server says has changed. A server that is away has been written to the log.
    async fn prepare(&self) {
        let Ok(connection) = self.connection().await else { return };
        if let Some(listed) = connection.list_if_changed(&self.settings).await {
            self.keep(listed);
        }
    }

    async fn call(&self, name: &str, input: Value, context: &ToolContext) -> ToolOutcome {
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => ToolOutcome::failure("The call was cancelled."),
            outcome = self.try_call(name, input) => outcome,
        }
    }

    fn works_on_files(&self) -> bool {
        false
    }
}
