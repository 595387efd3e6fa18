//! A loopback proxy that adds the provider's key to the CLI's requests, so that no process of a tool finds the key: neither
//! in its own environment nor in the CLI's, which every process of the user can read in `/proc`.
//!
//! Each process of the CLI has a proxy of its own, on a port of its own, and in the place of each key a placeholder made for
//! it. The proxy puts the key where the placeholder is, and refuses what has none. A tool can use the placeholder as long as
//! the process lives; afterwards it is worth nothing.
//!
//! Everything else passes as it is: bodies are streamed, statuses and headers are the provider's, a connection that breaks
//! there breaks here.

use std::convert::Infallible;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use reqwest::{Certificate, Client, NoProxy, Url};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::settings::Settings;
use crate::contract::EngineError;

/// Where the CLI's requests go unless it is told.
const PROVIDER: &str = "https://api.anthropic.com";

/// The variable with the provider's address.
const BASE_URL: &str = "ANTHROPIC_BASE_URL";

/// Variables with a key.
const KEYS: [&str; 3] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];

/// The variable with further headers, which may be keys.
const HEADERS: &str = "ANTHROPIC_CUSTOM_HEADERS";

/// Variables by which the CLI talks to another kind of provider, with other keys.
const OTHER_PROVIDERS: [&str; 6] = [
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_MANTLE",
    "ANTHROPIC_UNIX_SOCKET",
];

/// The longest request: the provider takes 32 MB.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// The most connections at one time.
const CONNECTIONS: usize = 64;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may wait for its next request. Longer than the CLI keeps one, so that it is not closed under a request.
const HEADER_TIMEOUT: Duration = Duration::from_hours(1);

/// Headers about one connection, not about the message.
const fn of_connection() -> [HeaderName; 9] {
    [
        CONNECTION,
        HOST,
        HeaderName::from_static("keep-alive"),
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ]
}

type Body = UnsyncBoxBody<Bytes, reqwest::Error>;

/// A proxy that runs as long as this is held.
pub(super) struct Proxy {
    address: SocketAddr,
    placeholders: Vec<(&'static str, String)>,
    is_standard: bool,
    /// Ends with this, and all connections with it.
    _serving: JoinSet<()>,
}

/// What a request needs.
struct Upstream {
    client: Client,
    base: Url,
    /// The placeholder of each key, and the key.
    keys: Vec<(String, String)>,
    headers: HeaderMap,
}

impl Proxy {
    /// Starts a proxy where there is a key to be kept; `None` where there is none, or where the provider is of another kind.
    pub(super) async fn start(settings: &Settings) -> Result<Option<Self>, EngineError> {
        let set = |name: &str| {
            settings.env.get(name).map(crate::openai::Secret::reveal).filter(|value| !value.is_empty())
        };
        let has_key = KEYS.iter().any(|name| set(name).is_some());
        if !has_key || OTHER_PROVIDERS.iter().any(|name| set(name).is_some()) {
            return Ok(None);
        }
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            EngineError::Unavailable(format!("Claude Code: {what}: {error}"))
        };
        let base = set(BASE_URL).unwrap_or(PROVIDER);
        let url = Url::parse(base).map_err(|error| failed("ANTHROPIC_BASE_URL is no address", &error))?;
        let placeholders: Vec<_> = KEYS
            .into_iter()
            .filter(|name| set(name).is_some())
            .map(|name| (name, format!("placeholder-{}", Uuid::now_v7().simple())))
            .collect();
        let keys = placeholders
            .iter()
            .filter_map(|(name, placeholder)| Some((placeholder.clone(), set(name)?.to_owned())));
        let upstream = Upstream {
            client: client(&set, &url)?,
            base: url,
            keys: keys.collect(),
            headers: further(set(HEADERS).unwrap_or_default()),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(|error| failed("no port for its proxy", &error))?;
        let address = listener.local_addr().map_err(|error| failed("no port for its proxy", &error))?;
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::new(upstream)));
        Ok(Some(Self { address, placeholders, is_standard: base == PROVIDER, _serving: serving }))
    }

    /// What takes the place of the CLI's variables with keys in them. Names without a value are left out.
    pub(super) fn replaces(&self, set: &mut Vec<(OsString, OsString)>) {
        set.retain(|(name, _)| name != BASE_URL && name != HEADERS && KEYS.iter().all(|key| name != key));
        set.extend(self.placeholders.iter().map(|(name, value)| ((*name).into(), value.into())));
        set.push((BASE_URL.into(), format!("http://{}", self.address).into()));
        if self.is_standard {
            // What it does for its own provider only, it goes on doing.
            set.push(("_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL".into(), "1".into()));
        }
        // A proxy of the host's is none for this address.
        for name in ["NO_PROXY", "no_proxy"] {
            match set.iter_mut().find(|(known, _)| known == name) {
                Some((_, hosts)) => hosts.push(",127.0.0.1"),
                None => set.push((name.into(), "127.0.0.1".into())),
            }
        }
    }
}

/// The client for the provider, through the proxy and with the certificates that the CLI would use.
fn client<'a>(set: &impl Fn(&str) -> Option<&'a str>, base: &Url) -> Result<Client, EngineError> {
    let failed = |error: &dyn std::fmt::Display| {
        EngineError::Unavailable(format!("Claude Code: no client for its provider: {error}"))
    };
    // reqwest would panic without one. Whoever has installed another keeps it.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let either = |name: &str| set(name).or_else(|| set(&name.to_ascii_lowercase()));
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    let direct = NoProxy::from_string(either("NO_PROXY").unwrap_or_default());
    if !crate::openai::is_loopback(base) {
        if let Some(url) = either("HTTPS_PROXY") {
            let proxy = reqwest::Proxy::https(url).map_err(|error| failed(&error))?;
            builder = builder.proxy(proxy.no_proxy(direct.clone()));
        }
        if let Some(url) = either("HTTP_PROXY") {
            let proxy = reqwest::Proxy::http(url).map_err(|error| failed(&error))?;
            builder = builder.proxy(proxy.no_proxy(direct));
        }
    }
    if let Some(file) = set("NODE_EXTRA_CA_CERTS") {
        let bundle = std::fs::read(file).map_err(|error| failed(&format!("{file}: {error}")))?;
        for certificate in Certificate::from_pem_bundle(&bundle).map_err(|error| failed(&error))? {
            builder = builder.add_root_certificate(certificate);
        }
    }
    builder.build().map_err(|error| failed(&error))
}

/// Headers as the CLI's variable has them, a line each. What is no header is left out.
fn further(lines: &str) -> HeaderMap {
    let parsed = lines.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::try_from(name.trim()).ok()?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    parsed.collect()
}

async fn serve(listener: TcpListener, upstream: Arc<Upstream>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let upstream = Arc::clone(&upstream);
                connections.spawn(async move {
                    connection(stream, upstream).await;
                    drop(permit);
                });
            }
            // Such as too many open files: there may be room in a moment.
            Err(error) => {
                tracing::warn!(%error, "the proxy of a CLI takes no connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, upstream: Arc<Upstream>) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request| {
        let upstream = Arc::clone(&upstream);
        async move { forward(request, &upstream).await }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!(%error, "a connection of the CLI has ended");
    }
}

/// Sends a request on. An error ends the connection without an answer, as the provider's would.
async fn forward(request: Request<Incoming>, upstream: &Upstream) -> Result<Response<Body>, reqwest::Error> {
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    if !authorize(&mut headers, upstream) {
        return Ok(refused(StatusCode::UNAUTHORIZED, "this is the proxy of another process"));
    }
    let Ok(body) = Limited::new(body, REQUEST_BYTES).collect().await else {
        return Ok(refused(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long, or was cut"));
    };
    for name in of_connection() {
        headers.remove(name);
    }
    headers.remove(CONTENT_LENGTH);
    headers.extend(upstream.headers.clone());
    let mut url = upstream.base.clone();
    url.set_path(&format!("{}{}", upstream.base.path().trim_end_matches('/'), parts.uri.path()));
    url.set_query(parts.uri.query());
    let sent =
        upstream.client.request(parts.method, url).headers(headers).body(body.to_bytes()).send().await?;
    let mut answer = Response::builder().status(sent.status());
    if let Some(headers) = answer.headers_mut() {
        *headers = sent.headers().clone();
        for name in of_connection() {
            headers.remove(name);
        }
    }
    let stream = StreamBody::new(sent.bytes_stream().map_ok(Frame::data));
    Ok(answer
        .body(BodyExt::boxed_unsync(stream))
        .unwrap_or_else(|_| refused(StatusCode::BAD_GATEWAY, "an odd answer")))
}

/// Puts the keys where their placeholders are. Whether there was one.
fn authorize(headers: &mut HeaderMap, upstream: &Upstream) -> bool {
    let mut found = false;
    for (placeholder, key) in &upstream.keys {
        for name in [HeaderName::from_static("x-api-key"), AUTHORIZATION] {
            let Some(value) = headers.get(&name).and_then(|value| value.to_str().ok()) else { continue };
            if !value.ends_with(placeholder.as_str()) {
                continue;
            }
            if let Ok(mut value) = HeaderValue::from_str(&value.replace(placeholder.as_str(), key)) {
                value.set_sensitive(true);
                headers.insert(name, value);
                found = true;
            }
        }
    }
    found
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    let body = serde_json::json!({"type": "error", "error": {"type": "api_error", "message": why}});
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never: Infallible| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    answer
}
