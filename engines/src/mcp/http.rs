//! The HTTP client, and what servers do that it has to know.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, redirect};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use tokio::time::timeout;

use super::reasons::reason;
use super::settings::{self, Settings, Transport};
use crate::openai::{Secret, is_loopback};

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// A server that moves in circles is left.
const REDIRECTS: usize = 5;

/// How long a server of old may take to greet, and how much of what it says is looked at.
const GREETING: Duration = Duration::from_secs(2);
const GREETING_BYTES: usize = 4096;

type Stream = BoxStream<'static, Result<Sse, sse_stream::Error>>;
type Error = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// Why a redirect is not followed.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Redirected {
    #[error("it redirects to another server, and its keys are not for that")]
    Elsewhere,
    #[error("it redirects again and again")]
    InCircles,
}

/// A client that notices a session which the server has forgotten.
///
/// The specification wants status 404 for that. Servers made after the official examples answer 400 with an error that
/// belongs to no request, for which a call would wait until its timeout.
#[derive(Debug, Clone)]
pub(super) struct HttpClient(Client);

impl HttpClient {
    pub(super) fn new(
        settings: &Settings,
        url: &str,
        headers: &BTreeMap<String, Secret>,
    ) -> Result<Self, String> {
        // reqwest would panic.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err("no TLS provider is installed in this process".to_owned());
        }
        let address = settings::address(&settings.name, url).map_err(|error| error.to_string())?;
        let headers = settings::header_map(&settings.name, headers).map_err(|error| error.to_string())?;
        // Servers move their own path by a slash; to another host a redirect would carry the headers, and so keys.
        let origin = address.origin();
        let same_origin = redirect::Policy::custom(move |attempt| {
            if attempt.url().origin() != origin {
                attempt.error(Redirected::Elsewhere)
            } else if REDIRECTS <= attempt.previous().len() {
                attempt.error(Redirected::InCircles)
            } else {
                attempt.follow()
            }
        });
        let builder = Client::builder()
            .connect_timeout(settings.connect_timeout.min(CONNECT))
            .default_headers(headers)
            .redirect(same_origin);
        let builder = if is_loopback(&address) { builder.no_proxy() } else { builder };
        builder.build().map(Self).map_err(|error| reason(&error, settings))
    }
}

/// What is said of a server of the time before streamable HTTP, which greets whoever asks for its events; `None`: it is none.
pub(super) async fn older_transport(settings: &Settings) -> Option<String> {
    let Transport::Http { url, headers } = &settings.transport else { return None };
    let HttpClient(client) = HttpClient::new(settings, url, headers).ok()?;
    let greeting = async {
        let mut response = client.get(url).header("accept", "text/event-stream").send().await.ok()?;
        let mut greeting = Vec::new();
        while greeting.len() < GREETING_BYTES
            && let Some(piece) = response.chunk().await.ok()?
        {
            greeting.extend_from_slice(&piece);
            let text = String::from_utf8_lossy(&greeting);
            if text.contains("event: endpoint") || text.contains("event:endpoint") {
                return Some(());
            }
        }
        None
    };
    timeout(GREETING, greeting).await.ok()??;
    Some(
        "it speaks only HTTP+SSE of 2024-11-05, which is not supported: it needs an address for streamable HTTP, or to be \
         started as a command"
            .to_owned(),
    )
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Error> {
        self.0.post_message(uri, message, session_id, auth_header, custom_headers).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let has_session = session_id.is_some();
        let posted = self.0.post_message_with_response_limits(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            limits,
        );
        match posted.await? {
            StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _)
                if has_session && error.id.is_none() =>
            {
                Err(StreamableHttpError::SessionExpired)
            }
            response => Ok(response),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Error> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<Stream, Error> {
        self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        bytes: usize,
    ) -> Result<Stream, Error> {
        let stream = self.0.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            bytes,
        );
        stream.await
    }
}
