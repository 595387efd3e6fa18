//! Who may call from where: `Host` and `Origin`, against pages that reach for this host through a browser.
//!
//! A page of another site can make a browser send requests here (its `Origin` tells), and can make its own name mean
//! this host (DNS rebinding; the `Host` tells). Programs outside of a browser send neither by accident.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use roundhouse_shared::code::Code;
use roundhouse_shared::problem::Problem;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::problem::ApiProblem;
use crate::settings::{Settings, is_loopback};

/// How long a browser may remember what is allowed.
const CORS_AGE: std::time::Duration = std::time::Duration::from_hours(1);

/// What is allowed.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    loopback: bool,
    origins: Arc<[String]>,
}

impl Rules {
    pub(crate) fn new(settings: &Settings) -> Self {
        let origins = settings.public_origins.iter().map(|origin| origin.trim_end_matches('/').to_owned());
        Self { loopback: settings.is_loopback(), origins: origins.collect() }
    }

    /// Whether a request with these headers may come in.
    fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        if hosts.next().is_some() {
            return Err("more than one `Host`");
        }
        if self.loopback && !host.is_some_and(|host| name_of(host).is_some_and(is_loopback)) {
            return Err("`Host` must name this host: localhost, 127.0.0.1 or [::1]");
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let same = origin.split_once("://").is_some_and(|(scheme, rest)| {
                matches!(scheme, "http" | "https") && host.is_some_and(|host| host.eq_ignore_ascii_case(rest))
            });
            if !same && !self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
                return Err("this `Origin` is not allowed; see `server.public_origins`");
            }
        }
        Ok(())
    }
}

/// The name in a `Host` header, without the port.
fn name_of(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, rest) = host.split_at(end);
    let port = rest.strip_prefix(':').unwrap_or(rest);
    (rest.is_empty() || port.len() < rest.len() && port.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(name)
}

/// Refuses requests that may not come in.
pub(crate) async fn guard(State(rules): State<Rules>, request: Request, next: Next) -> Response {
    match rules.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => ApiProblem::from(Problem::with_detail(Code::Forbidden, why)).into_response(),
    }
}

/// What browsers are told; nothing where no origin is public.
pub(crate) fn cors(settings: &Settings) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = settings
        .public_origins
        .iter()
        .filter(|origin| *origin != "*")
        .filter_map(|origin| HeaderValue::from_str(origin.trim_end_matches('/')).ok())
        .collect();
    if origins.is_empty() {
        return None;
    }
    let named = HeaderName::from_static;
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
        .allow_headers([
            ACCEPT,
            AUTHORIZATION,
            CONTENT_TYPE,
            named("idempotency-key"),
            named("last-event-id"),
            named("prefer"),
            named("x-request-id"),
        ])
        .expose_headers([LOCATION, RETRY_AFTER, named("preference-applied"), named("x-request-id")])
        .max_age(CORS_AGE);
    Some(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn on_loopback_the_host_must_be_this_one() {
        let rules = Rules::new(&Settings::default());
        for host in ["localhost", "LOCALHOST:7700", "127.0.0.1:1", "127.8.9.1", "[::1]", "[::1]:7700"] {
            assert_eq!(rules.check(&headers(&[(HOST, host)])), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evil@localhost",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "[::2]",
            "::1",
            "[::1",
            "[::1]x",
            "localhost:80:80",
            "localhost:x",
            "",
            "0.0.0.0",
        ] {
            assert!(rules.check(&headers(&[(HOST, host)])).is_err(), "{host}");
        }
        assert!(rules.check(&HeaderMap::new()).is_err());
        let open = Rules::new(&Settings { listen: "0.0.0.0:7700".to_owned(), ..Settings::default() });
        assert_eq!(open.check(&headers(&[(HOST, "a.example")])), Ok(()));
    }

    #[test]
    fn an_origin_must_be_the_hosts_or_public() {
        let settings =
            Settings { public_origins: vec!["https://app.example/".to_owned()], ..Settings::default() };
        let rules = Rules::new(&settings);
        let check = |origin| rules.check(&headers(&[(HOST, "localhost:7700"), (ORIGIN, origin)]));
        for origin in ["http://localhost:7700", "https://localhost:7700", "https://app.example"] {
            assert_eq!(check(origin), Ok(()), "{origin}");
        }
        for origin in [
            "http://localhost",
            "http://127.0.0.1:7700",
            "null",
            "",
            "http://app.example",
            "https://app.example.evil",
            "file://localhost:7700",
            "http://evil.example",
        ] {
            assert!(check(origin).is_err(), "{origin}");
        }
    }

    #[test]
    fn loopback_addresses() {
        for (listen, expected) in [
            ("127.0.0.1:7700", true),
            ("localhost:1", true),
            ("[::1]:7700", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
        ] {
            let settings = Settings { listen: listen.to_owned(), ..Settings::default() };
            assert_eq!(settings.is_loopback(), expected, "{listen}");
        }
    }
}
