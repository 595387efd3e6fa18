//! How a connection comes about.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, RunningService,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, RoleClient};

use super::http::HttpClient;
use super::reasons::{reason, transport_reason};
use super::settings::{Settings, Transport};
use crate::openai::Secret;
use crate::process::{Environment, Process, Spec, Stdin};

/// The longest message of a server, however it is reached. A longer line is dropped, and its call runs into its timeout.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Our side: what it can do, which is nothing beyond calling tools, and what it hears.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Whether the server has told of other tools than it has listed.
    pub(super) has_changed: AtomicBool,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("roundhouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.has_changed.store(true, Ordering::Release);
    }
}

pub(super) type Opened = (RunningService<RoleClient, Client>, Option<Mutex<Process>>);

/// Starts or reaches a server. An error is for the model.
pub(super) async fn open(settings: &Settings) -> Result<Opened, String> {
    match &settings.transport {
        Transport::Command { program, args, cwd, environment } => {
            let set = environment.iter().map(|(name, value)| (name.into(), value.reveal().into())).collect();
            let spec = Spec {
                args: args.iter().map(Into::into).collect(),
                environment: Environment { pass: Vec::new(), set }.with_safe_git(),
                stdin: Stdin::Piped,
                ..Spec::new(program, cwd)
            };
            start(settings, spec).await
        }
        Transport::Http { url, headers } => Ok((reach(settings, url, headers).await?, None)),
    }
}

/// Starts the process and connects to it.
async fn start(settings: &Settings, spec: Spec) -> Result<Opened, String> {
    let mut process = Process::spawn(spec).map_err(|error| reason(&error, settings))?;
    let (Some(stdin), Some(output)) = (process.take_stdin(), process.take_output()) else {
        return Err("its streams are missing".to_owned());
    };
    let transport = AsyncRwTransport::new_client(output, stdin).with_max_line_length(MESSAGE_BYTES);
    let process = Mutex::new(process);
    match serve(transport, settings).await {
        Ok(client) => Ok((client, Some(process))),
        Err(reason) => {
            let said = stderr_tail(&process);
            tracing::warn!(server = settings.name, reason, said, "an MCP server does not start");
            Err(format!("it was started, and did not answer as an MCP server does: {reason}"))
        }
    }
}

/// Connects over HTTP.
async fn reach(
    settings: &Settings,
    url: &str,
    headers: &BTreeMap<String, Secret>,
) -> Result<RunningService<RoleClient, Client>, String> {
    let client = HttpClient::new(settings, url, headers)?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(MESSAGE_BYTES)
        .max_json_response_size(MESSAGE_BYTES);
    serve(StreamableHttpClientTransport::with_client(client, config), settings).await
}

/// Agrees with the server on how to speak.
async fn serve<T, E, A>(
    transport: T,
    settings: &Settings,
) -> Result<RunningService<RoleClient, Client>, String>
where
    T: IntoTransport<RoleClient, E, A>,
    E: Error + Send + Sync + 'static,
{
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    // Large, so not a part of our own futures.
    let serving = Box::pin(Client::default().serve_with_lifecycle(transport, lifecycle));
    serving.await.map_err(|error| beginning_reason(&error, settings))
}

/// Why a server and we did not agree.
fn beginning_reason(error: &ClientInitializeError, settings: &Settings) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport_reason(error, settings),
        // The newer way of beginning was no good either, as with most servers.
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => beginning_reason(fallback, settings),
        error => reason(error, settings),
    }
}

/// The last of what a server has said.
pub(super) fn stderr_tail(process: &Mutex<Process>) -> String {
    process.lock().unwrap_or_else(PoisonError::into_inner).stderr_tail()
}
