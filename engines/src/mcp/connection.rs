//! A connection to a server: used, watched, ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RunningService, ServiceError};
use serde_json::Value;
use tokio::time::timeout;

use super::listing::{self, Listing};
use super::opening::{self, Client, Known};
use super::reasons::{cut, is_refused, is_unreached, reason, transport_reason};
use super::rendering;
use super::settings::Settings;
use crate::process::Process;
use crate::tools::ToolOutcome;

/// Why there is no result.
#[derive(Debug)]
pub(super) enum CallError {
    /// The server has not got the call.
    NotSent(String),
    /// It may have got it.
    Broken(String),
}

/// A connection. Fields are dropped in order: nobody speaks to a process that is being killed.
#[derive(Debug)]
pub(super) struct Connection {
    client: RunningService<RoleClient, Client>,
    process: Option<Mutex<Process>>,
    is_broken: AtomicBool,
}

impl Connection {
    /// Starts or reaches the server, and lists its tools. An error is for the model.
    pub(super) async fn open(settings: &Settings, known: &Known) -> Result<(Self, Listing), String> {
        let opening = async {
            let (client, process) = opening::open(settings, known).await?;
            let connection = Self { client, process, is_broken: AtomicBool::new(false) };
            let listed = connection.list(settings).await?;
            Ok((connection, listed))
        };
        match timeout(settings.connect_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(format!("it did not answer within {:?}", settings.connect_timeout)),
        }
    }

    /// Whether calls can be sent, as far as we know.
    pub(super) fn is_alive(&self) -> bool {
        let has_exited =
            |process: &Mutex<Process>| process.lock().unwrap_or_else(PoisonError::into_inner).has_exited();
        !self.is_broken.load(Ordering::Acquire)
            && !self.client.is_transport_closed()
            && !self.process.as_ref().is_some_and(has_exited)
    }

    /// Says that the server has ended, and what it has said last.
    pub(super) fn log_end(&self, settings: &Settings) {
        let said = self.process.as_ref().map(opening::stderr_tail).unwrap_or_default();
        tracing::warn!(server = settings.name, said, "an MCP server has ended");
    }

    /// The tools, if the server has said since the last time that they have changed.
    pub(super) async fn list_if_changed(&self, settings: &Settings) -> Option<Listing> {
        if !self.client.service().has_changed.swap(false, Ordering::AcqRel) {
            return None;
        }
        let reason = match timeout(settings.connect_timeout, self.list(settings)).await {
            Ok(Ok(listed)) => return Some(listed),
            Ok(Err(reason)) => reason,
            Err(_) => format!("no answer within {:?}", settings.connect_timeout),
        };
        tracing::warn!(server = settings.name, reason, "an MCP server does not list its changed tools");
        self.client.service().has_changed.store(true, Ordering::Release);
        None
    }

    async fn list(&self, settings: &Settings) -> Result<Listing, String> {
        listing::list(self.client.peer(), settings).await
    }

    /// Calls a tool. Dropping the future tells the server that the call is cancelled.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: Value,
        settings: &Settings,
    ) -> Result<ToolOutcome, CallError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        if let Value::Object(arguments) = input {
            params = params.with_arguments(arguments);
        }
        let error = match timeout(settings.call_timeout, self.client.call_tool(params)).await {
            Ok(Ok(result)) => return Ok(rendering::outcome(result)),
            Ok(Err(error)) => error,
            Err(_) => {
                return Ok(ToolOutcome::failure(format!(
                    "The tool did not answer within {:?}, and the call was cancelled.",
                    settings.call_timeout
                )));
            }
        };
        match error {
            ServiceError::McpError(error) => Ok(ToolOutcome::failure(cut(&error.message))),
            ServiceError::TransportSend(error) if is_refused(&error) => Ok(ToolOutcome::failure(format!(
                "The MCP server `{}` has refused the call: {}",
                settings.name,
                transport_reason(&error, settings)
            ))),
            ServiceError::TransportSend(error) => {
                self.is_broken.store(true, Ordering::Release);
                // A process that takes no whole line has got no call. Over HTTP only who is not reached has not.
                let is_unsent = self.process.is_some() || is_unreached(&error);
                let reason = transport_reason(&error, settings);
                Err(if is_unsent { CallError::NotSent(reason) } else { CallError::Broken(reason) })
            }
            ServiceError::TransportClosed => {
                self.is_broken.store(true, Ordering::Release);
                Err(CallError::Broken("it has closed the connection".to_owned()))
            }
            ServiceError::UnexpectedResponse => {
                Ok(ToolOutcome::failure("The tool asks for something that is not supported here."))
            }
            error => Ok(ToolOutcome::failure(format!("The call failed: {}", reason(&error, settings)))),
        }
    }
}
