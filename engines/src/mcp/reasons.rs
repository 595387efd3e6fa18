//! Errors in the words that a model gets.

use std::error::Error;

use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::settings::{self, Settings, Transport};

/// The longest reason.
const REASON_BYTES: usize = 500;

/// An error and what it comes from.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Whether no connection came about.
pub(super) fn is_unreached(error: &DynamicTransportError) -> bool {
    http_error(error).is_some_and(reqwest::Error::is_connect)
}

/// Whether the server is there and has refused the call: with a status, as one that is busy does, or with a redirect that is
/// not followed.
pub(super) fn is_refused(error: &DynamicTransportError) -> bool {
    matches!(error.error.downcast_ref(), Some(StreamableHttpError::<reqwest::Error>::HttpStatus(_)))
        || http_error(error).is_some_and(reqwest::Error::is_redirect)
}

/// Whether a server that could not be begun with is not to be tried in another way: it is not reached, asks for a key, or is
/// overloaded.
pub(super) fn is_no_use(error: &DynamicTransportError) -> bool {
    let status = match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) if error.is_connect() || error.is_redirect() => return true,
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)) => {
            return true;
        }
        Some(StreamableHttpError::Client(error)) => error.status().map(|status| status.as_u16()),
        Some(StreamableHttpError::HttpStatus(error)) => Some(error.status),
        // `HTTP 401 Unauthorized: …`
        Some(StreamableHttpError::UnexpectedServerResponse(text)) => {
            text.strip_prefix("HTTP ").and_then(|text| text.get(..3)?.parse().ok())
        }
        _ => None,
    };
    matches!(status, Some(401 | 403 | 407 | 429 | 502..=504))
}

/// What HTTP says. The transport does not name it as its cause.
fn http_error(error: &DynamicTransportError) -> Option<&reqwest::Error> {
    match error.error.downcast_ref()? {
        StreamableHttpError::Client(error) => Some(error),
        _ => None,
    }
}

/// Why nothing could be sent.
pub(super) fn transport_reason(error: &DynamicTransportError, settings: &Settings) -> String {
    match http_error(error) {
        // The address that it names is another's.
        Some(error) if error.is_redirect() => {
            causes(error).last().map(ToString::to_string).unwrap_or_default()
        }
        Some(error) => reason(error, settings),
        None => reason(&*error.error, settings),
    }
}

/// An error with its causes, without the address, which may hold a key.
pub(super) fn reason(error: &(dyn Error + 'static), settings: &Settings) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if let Transport::Http { url, .. } = &settings.transport
        && let Ok(parsed) = settings::address(&settings.name, url)
    {
        text = text.replace(parsed.as_str(), "its url").replace(url, "its url");
    }
    cut(&text)
}

/// At most as much as a model needs of it.
pub(super) fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(REASON_BYTES)].to_owned()
}
