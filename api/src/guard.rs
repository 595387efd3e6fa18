//! Checks `Host` and `Origin` against web pages that reach for this server through a visitor's browser.
//!
//! A page of another site can make a browser send requests here (its `Origin` shows that), and it can make its own name
//! resolve to this server's address (DNS rebinding; the `Host` shows that). Every listener checks both, whatever address it
//! is bound to. Programs outside of a browser send neither by accident.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, ORIGIN, RETRY_AFTER};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use roundhouse_shared::code::Code;
use roundhouse_shared::problem::Problem;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::problem::ApiProblem;
use crate::settings::{Settings, is_loopback};

/// How long a browser may cache a preflight answer.
const CORS_AGE: std::time::Duration = std::time::Duration::from_hours(1);

const HOST_REFUSED: &str =
    "this `Host` is not allowed; add it to `server.public_hosts` where this server is meant by it";
const ORIGIN_REFUSED: &str = "this `Origin` is not allowed; see `server.public_origins`";

/// The hosts and origins that requests may name.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Only this machine reaches the listener.
    loopback: bool,
    /// `host`, or `host:port`.
    hosts: Arc<[String]>,
    origins: Arc<[String]>,
}

impl Rules {
    pub(crate) fn new(settings: &Settings) -> Self {
        let origins = settings.public_origins.iter().map(|origin| origin.trim_end_matches('/').to_owned());
        let hosts = settings.public_hosts.iter().cloned();
        Self { loopback: settings.is_loopback(), hosts: hosts.collect(), origins: origins.collect() }
    }

    /// Whether a request may come in.
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), &'static str> {
        let host = named_host(uri, headers)?;
        if !self.allows(&host) {
            return Err(HOST_REFUSED);
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let same = origin.split_once("://").is_some_and(|(scheme, rest)| {
                matches!(scheme, "http" | "https") && host.eq_ignore_ascii_case(rest)
            });
            if !same && !self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
                return Err(ORIGIN_REFUSED);
            }
        }
        Ok(())
    }

    fn allows(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        is_loopback(name)
            || (!self.loopback && is_address(name))
            || self
                .hosts
                .iter()
                .any(|allowed| host.eq_ignore_ascii_case(allowed) || name.eq_ignore_ascii_case(allowed))
    }
}

/// The host that a request names: `Host`, or in HTTP/2 and in absolute request targets the target's authority.
fn named_host(uri: &Uri, headers: &HeaderMap) -> Result<String, &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    let header = hosts.next().map(|host| host.to_str().map_err(|_| HOST_REFUSED)).transpose()?;
    if hosts.next().is_some() {
        return Err("more than one `Host`");
    }
    match (uri.authority().map(Authority::as_str), header) {
        (Some(authority), Some(header)) if !authority.eq_ignore_ascii_case(header) => {
            Err("`Host` and the request's target name different hosts")
        }
        (Some(host), _) | (None, Some(host)) => Ok(host.to_owned()),
        (None, None) => Err("the request names no `Host`"),
    }
}

/// Whether a host is an address of a machine. Rebinding needs a name that an attacker controls, so an address cannot be
/// rebound; the unspecified address is refused, because browsers connect it to their own machine.
fn is_address(name: &str) -> bool {
    let plain = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    plain.parse::<IpAddr>().is_ok_and(|ip| !ip.is_unspecified())
}

/// The host without its port; `None` where it is malformed.
fn name_of(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, rest) = host.split_at(end);
    let port = rest.strip_prefix(':').unwrap_or(rest);
    (rest.is_empty() || port.len() < rest.len() && port.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(name)
}

/// Refuses requests that may not come in.
pub(crate) async fn guard(State(rules): State<Rules>, request: Request, next: Next) -> Response {
    match rules.check(request.uri(), request.headers()) {
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
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn check(rules: &Rules, host: &str) -> Result<(), &'static str> {
        rules.check(&Uri::from_static("/"), &headers(&[(HOST, host)]))
    }

    #[test]
    fn on_loopback_the_host_must_be_this_one() {
        let rules = Rules::new(&Settings::default());
        for host in ["localhost", "LOCALHOST:7700", "127.0.0.1:1", "127.8.9.1", "[::1]", "[::1]:7700"] {
            assert_eq!(check(&rules, host), Ok(()), "{host}");
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
            assert!(check(&rules, host).is_err(), "{host}");
        }
        assert!(rules.check(&Uri::from_static("/"), &HeaderMap::new()).is_err());
    }

    #[test]
    fn an_open_listener_refuses_names_that_are_not_its_own() {
        let public_hosts = ["agents.example", "other.example:8443"].map(str::to_owned).into();
        let open = Settings { listen: "0.0.0.0:7700".to_owned(), public_hosts, ..Settings::default() };
        let rules = Rules::new(&open);
        for host in [
            "localhost:7700",
            "127.0.0.1",
            "10.0.0.1:7700",
            "[2001:db8::1]:7700",
            "Agents.Example",
            "agents.example:443",
            "other.example:8443",
        ] {
            assert_eq!(check(&rules, host), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "other.example", "other.example:80", "x.agents.example", "0.0.0.0:7700", "[::]"]
        {
            assert_eq!(check(&rules, host), Err(HOST_REFUSED), "{host}");
        }
    }

    #[test]
    fn the_target_names_the_host_where_there_is_no_header() {
        let rules = Rules::new(&Settings::default());
        let of = |uri: &str, host: &[(HeaderName, &str)]| rules.check(&uri.parse().unwrap(), &headers(host));
        assert_eq!(of("http://localhost:7700/", &[]), Ok(()));
        assert_eq!(of("http://localhost:7700/", &[(HOST, "localhost:7700")]), Ok(()));
        assert!(of("http://evil.example/", &[]).is_err());
        assert!(of("http://evil.example/", &[(HOST, "localhost")]).is_err());
        assert!(of("http://localhost/", &[(HOST, "evil.example")]).is_err());
        assert!(of("/", &[(HOST, "localhost"), (HOST, "localhost")]).is_err());
    }

    #[test]
    fn an_origin_must_be_the_hosts_or_public() {
        let settings =
            Settings { public_origins: vec!["https://app.example/".to_owned()], ..Settings::default() };
        let rules = Rules::new(&settings);
        let check = |origin| {
            rules.check(&Uri::from_static("/"), &headers(&[(HOST, "localhost:7700"), (ORIGIN, origin)]))
        };
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
