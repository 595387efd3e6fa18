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
#[expect(clippy::struct_excessive_bools, reason = "any of these facts may stand beside any other")]
pub(super) struct Failure {
    pub(super) error: EngineError,
    /// Whether another try may help, given that nothing of the answer was passed on.
    pub(super) may_retry: bool,
    /// The context was too long for the model.
    pub(super) overflows: bool,
    /// The server names what asks for usage, so it is likely what it refuses.
    pub(super) names_usage: bool,
    /// The answer was empty: another try may help, but hardly a third.
    pub(super) is_empty: bool,
    /// The failure is the provider's word, and not our reading of what it sent.
    pub(super) is_reported: bool,
    /// All that the provider says against the request, in lower case, to find out what it objects to.
    pub(super) objection: String,
}

impl Failure {
    /// Another try would not help.
    pub(super) fn lasting(error: EngineError) -> Self {
        Self {
            error,
            may_retry: false,
            overflows: false,
            names_usage: false,
            is_empty: false,
            is_reported: false,
            objection: String::new(),
        }
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

    /// Nothing of the answer came for so long; perhaps other things did.
    pub(super) fn no_progress(limit: Duration, was_heard: bool) -> Self {
        let last = if was_heard { "only signs of life, and nothing of an answer" } else { "" };
        Self::lasting(EngineError::NoProgress { after: limit, last: last.to_owned() })
    }

    /// The body is a web page.
    pub(super) fn page() -> Self {
        Self::last("the answer is a web page: is base_url right?")
    }

    /// The stream ended, and the answer had not.
    pub(super) fn truncated(unread: &[u8], provider: &Provider) -> Self {
        let detail = "the answer was cut off: the stream ended without [DONE] and without a finish_reason";
        let beside = if unread.is_empty() {
            String::new()
        } else {
            format!("; what came beside it: {}", shown(unread, provider))
        };
        Self::passing(provider_error(None, format!("{detail}{beside}")))
    }

    /// The server was done, and there was nothing in the answer.
    pub(super) fn empty(how: &str) -> Self {
        let error = provider_error(None, format!("the answer was empty: {how}"));
        Self { is_empty: true, ..Self::passing(error) }
    }

    /// The answer ended for a reason that is not known to be good.
    pub(super) fn bad_end(reason: &str, provider: &Provider) -> Self {
        let reason = bounded(&provider.redacted(reason));
        Self::passing(provider_error(
            None,
            format!("the provider ended its answer with finish_reason {reason:?}"),
        ))
    }

    /// The answer was cut at its longest length, and had not come to its text.
    pub(super) fn cut_before_text() -> Self {
        Self::last("the answer was cut off by its length limit (max_tokens) before there was any text")
    }

    /// A filter of the provider left nothing of the answer.
    pub(super) fn withheld() -> Self {
        Self::last("the provider's content filter has withheld the answer")
    }

    /// The context has left no room for an answer.
    pub(super) fn context_full(reason: &str) -> Self {
        let error = provider_error(None, format!("the answer ended at once with finish_reason {reason:?}"));
        Self { overflows: true, ..Self::lasting(error) }
    }

    /// An error that came in the body of an answer with status 200.
    pub(super) fn reported(error: &Value, provider: &Provider) -> Self {
        let status = status_within(error);
        let words = message(error);
        Self {
            may_retry: status.is_some_and(is_temporary),
            overflows: status != Some(429) && overflow::is_meant(error, words.as_deref()),
            is_reported: true,
            objection: objection(error.to_string().as_bytes()),
            ..Self::lasting(provider_error(
                status,
                bounded(&provider.redacted(&words.unwrap_or_else(|| error.to_string()))),
            ))
        }
    }

    /// What is neither an answer nor a known form of error.
    pub(super) fn unreadable(data: &[u8], provider: &Provider) -> Self {
        Self::last(format!("the answer cannot be read: {}", shown(data, provider)))
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
            is_empty: false,
            is_reported: true,
            objection: objection(&body),
            error: EngineError::Provider { status: Some(status.as_u16()), retry_after, detail },
        }
    }

    /// The same failure with other words of the provider's.
    pub(super) fn saying(mut self, say: impl FnOnce(&str) -> String) -> Self {
        if let EngineError::Provider { detail, .. } = &mut self.error {
            *detail = say(detail);
        }
        self
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

/// What an error says in words. Who passes on another's error has that one's words inside.
fn message(error: &Value) -> Option<String> {
    const NAMES: [&str; 8] = [
        "message",
        "msg",
        "detail",
        "error_msg",
        "error_message",
        "status_msg",
        "error_description",
        "error",
    ];
    let text = |value: &Value| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    let own = text(error).or_else(|| NAMES.iter().find_map(|key| text(error.get(key)?)));
    let own = own.or_else(|| error.get("error").filter(|inner| inner.is_object()).and_then(message));
    let passed_on =
        error.get("metadata").and_then(|metadata| metadata.get("raw")).and_then(text).map(|raw| {
            let inner = serde_json::from_str::<Value>(&raw).ok();
            let inner = inner.as_ref().map(|inner| inner.get("error").unwrap_or(inner));
            inner.and_then(message).unwrap_or(raw)
        });
    match (own, passed_on) {
        (Some(own), Some(passed_on)) => Some(format!("{own}: {passed_on}")),
        (own, passed_on) => own.or(passed_on),
    }
}

/// What a provider sent, as an error repeats it.
fn shown(data: &[u8], provider: &Provider) -> String {
    bounded(&provider.redacted(&String::from_utf8_lossy(&data[..data.len().min(MAX_BODY_BYTES)])))
}

fn objection(body: &[u8]) -> String {
    String::from_utf8_lossy(body).to_lowercase()
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
