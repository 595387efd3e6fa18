//! How a connection comes about.
//!
//! Servers speak one of several protocols, and what they do with a request that they do not know is anything: an error, another
//! answer, silence, or their end. So nothing is asked that only new ones know before what all know: a server is begun with
//! `initialize`, and answers with the version that it speaks, older or the same. Where that comes to nothing, the other ways
//! are tried, each with a fresh process:
//!
//! | the server | is spoken to |
//! |---|---|
//! | answers `initialize`, with whatever version | with that version |
//! | knows only `server/discover` (2026-07-28), and refuses `initialize` or ends at it | as it says there |
//! | refuses a version that it does not know, or ends at it | with `initialize` of an older one, down to 2024-11-05 |
//! | is not reached, cannot be started, asks for a key (401, 403) or is overloaded (429, 502 to 504) | not at all: no other way would help |
//! | answers nothing | not at all, once its time is up |
//! | is of the time before streamable HTTP (`GET` brings an `endpoint` event) | not at all, and that is said |
//!
//! The way that was good once is the first one from then on.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, RunningService,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, RoleClient};
use tokio::time::timeout;

use super::http::{HttpClient, older_transport};
use super::reasons::{is_no_use, reason, transport_reason};
use super::settings::{Settings, Transport};
use crate::openai::Secret;
use crate::process::{Environment, Process, Spec, Stdin};

/// The longest message of a server, however it is reached. A longer line is dropped, and its call runs into its timeout.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A way to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// By the handshake of that version.
    Initialize(ProtocolVersion),
    /// Without one.
    Discover,
}

/// All ways, in the order in which they are tried.
const WAYS: [Way; 5] = [
    Way::Initialize(ProtocolVersion::V_2025_11_25),
    Way::Discover,
    Way::Initialize(ProtocolVersion::V_2025_06_18),
    Way::Initialize(ProtocolVersion::V_2025_03_26),
    Way::Initialize(ProtocolVersion::V_2024_11_05),
];

/// Which of the ways was good last: its place among all.
#[derive(Debug, Default)]
pub(super) struct Known(AtomicUsize);

/// Why one way came to nothing.
struct Failed {
    /// For the model.
    reason: String,
    /// No other way would help.
    is_final: bool,
}

/// Our side: what it can do, which is nothing beyond calling tools, and what it hears.
#[derive(Debug)]
pub(super) struct Client {
    version: ProtocolVersion,
    /// Whether the server has told of other tools than it has listed.
    pub(super) has_changed: AtomicBool,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("roundhouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us).with_protocol_version(self.version.clone())
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.has_changed.store(true, Ordering::Release);
    }
}

pub(super) type Opened = (RunningService<RoleClient, Client>, Option<Mutex<Process>>);

/// Starts or reaches a server. An error is for the model.
pub(super) async fn open(settings: &Settings, known: &Known) -> Result<Opened, String> {
    let good = known.0.load(Ordering::Relaxed);
    let ways = std::iter::once(good).chain((0..WAYS.len()).filter(|place| *place != good));
    // What the server made of the first way is its reason: the others are guesses.
    let mut first = None;
    for (place, way) in ways.filter_map(|place| Some((place, WAYS.get(place)?))) {
        match open_by(settings, way).await {
            Ok(opened) => {
                known.0.store(place, Ordering::Relaxed);
                return Ok(opened);
            }
            Err(Failed { reason, is_final }) => {
                tracing::debug!(
                    server = settings.name,
                    ?way,
                    reason,
                    "an MCP server does not begin like this"
                );
                let reason = first.get_or_insert(reason);
                if is_final {
                    return Err(std::mem::take(reason));
                }
            }
        }
    }
    let reason = first.unwrap_or_default();
    Err(older_transport(settings).await.unwrap_or(reason))
}

async fn open_by(settings: &Settings, way: &Way) -> Result<Opened, Failed> {
    match &settings.transport {
        Transport::Command { program, args, cwd, environment } => {
            let set = environment.iter().map(|(name, value)| (name.into(), value.reveal().into())).collect();
            let spec = Spec {
                args: args.iter().map(Into::into).collect(),
                environment: Environment { pass: Vec::new(), set },
                stdin: Stdin::Piped,
                ..Spec::new(program, cwd)
            };
            start(settings, spec, way).await
        }
        Transport::Http { url, headers } => Ok((reach(settings, url, headers, way).await?, None)),
    }
}

/// Starts the process and connects to it.
async fn start(settings: &Settings, spec: Spec, way: &Way) -> Result<Opened, Failed> {
    let cannot = |reason: String| Failed { reason, is_final: true };
    let mut process = Process::spawn(spec).map_err(|error| cannot(reason(&error, settings)))?;
    let (Some(stdin), Some(output)) = (process.take_stdin(), process.take_output()) else {
        return Err(cannot("its streams are missing".to_owned()));
    };
    let transport = AsyncRwTransport::new_client(output, stdin).with_max_line_length(MESSAGE_BYTES);
    let process = Mutex::new(process);
    match serve(transport, settings, way).await {
        Ok(client) => Ok((client, Some(process))),
        Err(Failed { reason, is_final }) => {
            let said = stderr_tail(&process);
            tracing::warn!(server = settings.name, ?way, reason, said, "an MCP server does not start");
            let reason = format!("it was started, and did not answer as an MCP server does: {reason}");
            // It has to be gone before another is started: two may want the same file or port.
            process.into_inner().unwrap_or_else(PoisonError::into_inner).end(Duration::ZERO).await;
            Err(Failed { reason, is_final })
        }
    }
}

/// Connects over HTTP.
async fn reach(
    settings: &Settings,
    url: &str,
    headers: &BTreeMap<String, Secret>,
    way: &Way,
) -> Result<RunningService<RoleClient, Client>, Failed> {
    let client =
        HttpClient::new(settings, url, headers).map_err(|reason| Failed { reason, is_final: true })?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(MESSAGE_BYTES)
        .max_json_response_size(MESSAGE_BYTES);
    serve(StreamableHttpClientTransport::with_client(client, config), settings, way).await
}

/// Agrees with the server on how to speak.
async fn serve<T, E, A>(
    transport: T,
    settings: &Settings,
    way: &Way,
) -> Result<RunningService<RoleClient, Client>, Failed>
where
    T: IntoTransport<RoleClient, E, A>,
    E: Error + Send + Sync + 'static,
{
    let (version, lifecycle) = match way {
        Way::Initialize(version) => (version.clone(), ClientLifecycleMode::Initialize),
        Way::Discover => {
            let preferred_versions = vec![ProtocolVersion::LATEST];
            (ProtocolVersion::LATEST, ClientLifecycleMode::Discover { preferred_versions })
        }
    };
    let client = Client { version, has_changed: AtomicBool::new(false) };
    // Large, so not a part of our own futures.
    let serving = Box::pin(client.serve_with_lifecycle(transport, lifecycle));
    // Who does not know this request may keep silent, and another way needs time too.
    let patience =
        if *way == Way::Discover { settings.connect_timeout / 4 } else { settings.connect_timeout };
    match timeout(patience, serving).await {
        Ok(served) => served.map_err(|error| Failed {
            reason: beginning_reason(&error, settings),
            is_final: matches!(&error, ClientInitializeError::TransportError { error, .. } if is_no_use(error)),
        }),
        Err(_) => Err(Failed { reason: format!("no answer within {patience:?}"), is_final: false }),
    }
}

/// Why a server and we did not agree.
fn beginning_reason(error: &ClientInitializeError, settings: &Settings) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport_reason(error, settings),
        error => reason(error, settings),
    }
}

/// The last of what a server has said.
pub(super) fn stderr_tail(process: &Mutex<Process>) -> String {
    process.lock().unwrap_or_else(PoisonError::into_inner).stderr_tail()
}
