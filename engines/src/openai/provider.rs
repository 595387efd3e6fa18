//! What all sessions of one agent share: the connections, the address and how requests look.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};

use super::needs::Learned;
use super::opaque::Maker;
use super::protocol::OWN_MEMBERS;
use super::settings::Settings;
use super::usage::Rates;
use crate::contract::EngineError;

/// How long [`Provider::probe`] waits.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Values of extra headers below this length are settings, not secrets.
const SHORTEST_SECRET: usize = 8;

pub(super) struct Provider {
    pub(super) settings: Settings,
    pub(super) rates: Option<Rates>,
    client: Client,
    completions: Url,
    models: Url,
    headers: HeaderMap,
    /// The server has refused `stream_options`, by name.
    refuses_usage: AtomicBool,
    /// What it has turned out to need.
    pub(super) learned: Learned,
    /// The API's address, without what may be secret in it.
    origin: Arc<str>,
}

impl Provider {
    pub(super) fn new(settings: Settings) -> Result<Self, EngineError> {
        if let Some(name) = OWN_MEMBERS.iter().find(|name| settings.extra_body.contains_key(**name)) {
            return Err(unavailable(format!("extra_body may not set {name:?}")));
        }
        if settings.context_window == Some(0) {
            return Err(unavailable("context_window may not be 0"));
        }
        let base = base_url(&settings.base_url)?;
        Ok(Self {
            rates: settings.prices.map(Rates::new).transpose()?,
            client: client(&settings, &base)?,
            completions: below(&base, &["chat", "completions"])?,
            models: below(&base, &["models"])?,
            headers: headers(&settings)?,
            refuses_usage: AtomicBool::new(false),
            learned: Learned::default(),
            origin: origin(&base).into(),
            settings,
        })
    }

    pub(super) fn completion(&self, body: Bytes) -> RequestBuilder {
        self.client.post(self.completions.clone()).headers(self.headers.clone()).body(body)
    }

    /// Who makes the messages of a model here.
    pub(super) fn maker(&self, model: &Arc<str>) -> Maker {
        Maker { provider: Arc::clone(&self.origin), model: Arc::clone(model) }
    }

    pub(super) fn refuses_usage(&self) -> bool {
        self.refuses_usage.load(Ordering::Relaxed)
    }

    pub(super) fn remember_refused_usage(&self) {
        self.refuses_usage.store(true, Ordering::Relaxed);
    }

    /// Whether the server answers and takes our key. Whatever else it says, it is there: not all of them list models.
    pub(super) async fn probe(&self) -> Result<(), EngineError> {
        let asked = self.client.get(self.models.clone()).headers(self.headers.clone()).timeout(PROBE_TIMEOUT);
        let host = self.models.host_str().unwrap_or_default();
        match asked.send().await {
            Ok(response) if matches!(response.status().as_u16(), 401 | 403) => {
                Err(unavailable(format!("{host} refuses the key: HTTP {}", response.status().as_u16())))
            }
            Ok(_) => Ok(()),
            Err(error) if error.is_timeout() => Err(unavailable(format!("{host} does not answer"))),
            Err(error) => Err(unavailable(format!("cannot reach {host}: {}", error.without_url()))),
        }
    }

    /// A provider's text without the secrets that we sent it.
    pub(super) fn redacted(&self, text: &str) -> String {
        let Settings { api_key, extra_headers, .. } = &self.settings;
        let values = extra_headers.values().filter(|value| value.reveal().len() >= SHORTEST_SECRET);
        let secrets = api_key.iter().chain(values).map(super::Secret::reveal);
        let mut text = text.to_owned();
        for secret in secrets.filter(|secret| !secret.is_empty()) {
            if text.contains(secret) {
                text = text.replace(secret, "[secret]");
            }
        }
        text
    }
}

fn unavailable(reason: impl Into<String>) -> EngineError {
    EngineError::Unavailable(reason.into())
}

fn base_url(text: &str) -> Result<Url, EngineError> {
    if text.is_empty() {
        return Err(unavailable("no base_url is configured"));
    }
    // The URL itself is not repeated: it may carry a password or a key.
    let url = Url::parse(text).map_err(|error| unavailable(format!("base_url is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(unavailable("base_url must begin with http:// or https://"));
    }
    Ok(url)
}

fn origin(base: &Url) -> String {
    let (host, port) =
        (base.host_str().unwrap_or_default(), base.port_or_known_default().unwrap_or_default());
    format!("{}://{host}:{port}{}", base.scheme(), base.path().trim_end_matches('/'))
}

fn below(base: &Url, path: &[&str]) -> Result<Url, EngineError> {
    let mut url = base.clone();
    let Ok(mut segments) = url.path_segments_mut() else {
        return Err(unavailable("base_url has no path"));
    };
    segments.pop_if_empty().extend(path);
    drop(segments);
    Ok(url)
}

fn headers(settings: &Settings) -> Result<HeaderMap, EngineError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(key) = settings.api_key.as_ref().filter(|key| !key.reveal().is_empty()) {
        let bearer = HeaderValue::try_from(format!("Bearer {}", key.reveal()));
        headers.insert(AUTHORIZATION, secret(bearer, "the API key")?);
    }
    for (name, value) in &settings.extra_headers {
        let value = secret(HeaderValue::try_from(value.reveal()), name)?;
        let name =
            HeaderName::try_from(name).map_err(|_| unavailable(format!("{name:?} is no header's name")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn secret<E>(value: Result<HeaderValue, E>, name: &str) -> Result<HeaderValue, EngineError> {
    let mut value =
        value.map_err(|_| unavailable(format!("{name} has characters that no header can carry")))?;
    value.set_sensitive(true);
    Ok(value)
}

fn client(settings: &Settings, base: &Url) -> Result<Client, EngineError> {
    // reqwest would panic.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(unavailable("no TLS provider is installed in this process"));
    }
    let builder = Client::builder()
        .connect_timeout(settings.connect_timeout)
        .tcp_nodelay(true)
        // A redirect would carry extra headers, and so keys, to another host.
        .redirect(reqwest::redirect::Policy::none());
    let builder = if is_loopback(base) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| unavailable(format!("the HTTP client cannot be built: {error}")))
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host == "localhost" || host.ends_with(".localhost"), |address| address.is_loopback())
}
