//! Requests that this binary makes by itself: to a Roundhouse server, and to a model's server for its list of models.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Client, Url};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest silence within an answer; a server of ours breaks it every 15 seconds.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A request could not be made or was not answered well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The address cannot be used. It is not repeated: it may carry a password.
    #[error("the address is not one that begins with http:// or https://")]
    BadUrl,
    /// The request failed.
    #[error(transparent)]
    Request(reqwest::Error),
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        Self::Request(error.without_url())
    }
}

/// The address that a text is.
pub(crate) fn url(text: &str) -> Result<Url, HttpError> {
    let url = Url::parse(text).map_err(|_| HttpError::BadUrl)?;
    if matches!(url.scheme(), "http" | "https") { Ok(url) } else { Err(HttpError::BadUrl) }
}

/// The address of something below another.
pub(crate) fn below(base: &Url, path: &[&str]) -> Result<Url, HttpError> {
    let mut url = base.clone();
    url.path_segments_mut().map_err(|()| HttpError::BadUrl)?.pop_if_empty().extend(path);
    Ok(url)
}

/// A client for requests to that address.
pub(crate) fn client(url: &Url) -> Result<Client, HttpError> {
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none());
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    Ok(builder.build()?)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_added_and_escaped() {
        let base = url("http://h:1/v1/?a=b").unwrap();
        assert_eq!(below(&base, &["agents", "a/b"]).unwrap().as_str(), "http://h:1/v1/agents/a%2Fb?a=b");
        assert!(url("file:///etc/passwd").is_err() && url("h:1").is_err());
    }
}
