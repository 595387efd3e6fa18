//! What goes wrong in one try of a model call, and whether another try may help.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::overflow;
use super::protocol::USAGE_MEMBERS;
use super::provider::Provider;
use super::retry;
use crate::contract::EngineError;

/// The longest text of a provider that an error repeats.
const MAX_DETAIL_BYTES: usize = 2 * 1024;

/// How much of an error's body is read, and how long.
const MAX_BODY_BYTES: usize = 64 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a try failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: EngineError,
    /// Whether another try may help, given that nothing of the answer was passed on.
    pub(super) may_retry: bool,
    /// The context was too long for the model.
    pub(super) overflows: bool,
    /// The server names what asks for usage, so it is likely what it refuses.
    pub(super) names_usage: bool,
}

impl Failure {
    /// Another try would not help.
    pub(super) fn lasting(error: EngineError) -> Self {
        Self { error, may_retry: false, overflows: false, names_usage: false }
    }

    /// Another try may help.
    fn passing(error: EngineError) -> Self {
        Self { may_retry: true, ..Self::lasting(error) }
    }

    /// The provider's answer makes no sense: another try would not help.
    pub(super) fn last(detail: impl Into<String>) -> Self {
        Self::lasting(provider_error(None, detail))
    }

    /// The provider could not be reached, or the connection was lost.
    pub(super) fn connection(doing: &str, error: reqwest::Error) -> Self {
        // The URL may carry a key in its query.
        let error = error.without_url();
        let mut detail = format!("{doing}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            detail = format!("{detail}: {cause}");
            source = cause.source();
        }
        Self { may_retry: !error.is_builder(), ..Self::lasting(provider_error(None, detail)) }
    }

    pub(super) fn no_progress(limit: Duration) -> Self {
        Self::lasting(EngineError::NoProgress { after: limit, last: String::new() })
    }

    /// The stream ended, and the answer had not.
    pub(super) fn truncated() -> Self {
        let detail = "the answer was cut off: the stream ended without [DONE] and without a finish_reason";
        Self::passing(provider_error(None, detail))
    }

    /// The server was done, and had not even begun an answer.
    pub(super) fn empty() -> Self {
        Self::passing(provider_error(
            None,
            "the answer was empty: the stream ended with [DONE] before any choice",
        ))
    }

    /// An error that came in the body of an answer with status 200.
    pub(super) fn reported(error: &Value, provider: &Provider) -> Self {
        let status = status_within(error);
        let words = message(error);
        Self {
            may_retry: status.is_some_and(is_temporary),
            overflows: status != Some(429) && overflow::is_meant(error, words.as_deref()),
            ..Self::lasting(provider_error(
                status,
                bounded(&provider.redacted(&words.unwrap_or_else(|| error.to_string()))),
            ))
        }
    }

    /// An event that is neither an answer nor a known form of error.
    pub(super) fn unreadable(data: &[u8], provider: &Provider) -> Self {
        let text = provider.redacted(&String::from_utf8_lossy(&data[..data.len().min(MAX_BODY_BYTES)]));
        Self::last(bounded(&format!("an event of the answer cannot be read: {text}")))
    }

    /// An answer with a status other than 2xx; its body is read for what it says.
    pub(super) async fn rejected(mut response: Response, provider: &Provider) -> Self {
        let status = response.status();
        let retry_after = retry::retry_after(response.headers());
        let mut body = Vec::new();
        // What has come until then is enough: the status alone says what matters.
        let _ = tokio::time::timeout(BODY_TIMEOUT, async {
            while body.len() < MAX_BODY_BYTES
                && let Ok(Some(piece)) = response.chunk().await
            {
                body.extend_from_slice(&piece);
            }
        })
        .await;
        body.truncate(MAX_BODY_BYTES);
        let (error, said) = said(status, response.headers(), &body);
        let detail = bounded(&provider.redacted(&said));
        Self {
            may_retry: is_temporary(status.as_u16()),
            overflows: status.as_u16() != 429 && overflow::is_meant(&error, message(&error).as_deref()),
            names_usage: names_usage(&body),
            error: EngineError::Provider { status: Some(status.as_u16()), retry_after, detail },
        }
    }

    pub(super) fn status(&self) -> Option<u16> {
        match &self.error {
            EngineError::Provider { status, .. } => *status,
            _ => None,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match &self.error {
            EngineError::Provider { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn provider_error(status: Option<u16>, detail: impl Into<String>) -> EngineError {
    EngineError::Provider { status, retry_after: None, detail: detail.into() }
}

const fn is_temporary(status: u16) -> bool {
    status == 429 || status >= 500
}

/// Whether a rejection names one of the members by which usage is asked for. All of it is looked at: servers say which
/// member they mean in many places.
fn names_usage(body: &[u8]) -> bool {
    let body = String::from_utf8_lossy(body);
    USAGE_MEMBERS.iter().any(|member| body.contains(member))
}

/// What a rejection says, in whichever of the usual shapes: its error, and that in words.
fn said(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> (Value, String) {
    if status.is_redirection() {
        let target = headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
        let said = format!(
            "redirected to {target}: redirects are not followed, since they would carry the key along"
        );
        return (Value::Null, said);
    }
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    let mut body = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    // Gemini puts its error into a list.
    if let Value::Array(list) = &mut body
        && list.len() == 1
    {
        body = list.remove(0);
    }
    let error = match body.get_mut("error").map(Value::take) {
        None | Some(Value::Null) => body,
        Some(error) => error,
    };
    let said = message(&error)
        .unwrap_or_else(|| if text.is_empty() { "without a reason".to_owned() } else { text.to_owned() });
    (error, said)
}

fn message(error: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    text(error).or_else(|| ["message", "msg", "detail"].iter().find_map(|key| text(error.get(key)?)))
}

/// Some put an HTTP status into the error that they send in a stream.
fn status_within(error: &Value) -> Option<u16> {
    ["code", "status"].iter().find_map(|key| {
        let code = error.get(key)?;
        let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
        u16::try_from(code).ok().filter(|code| (400..600).contains(code))
    })
}

fn bounded(text: &str) -> String {
    // Without NUL, as all that leaves the engine.
    let text = text.replace('\0', "\u{FFFD}");
    if text.len() <= MAX_DETAIL_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_DETAIL_BYTES);
    format!("{}…", &text[..end])
}
