//! What the values have to fulfil beyond their form, and what a command needs.

use std::fmt;

use roundhouse_shared::secret::masked_url;
use roundhouse_shared::telemetry;
use roundhouse_shared::units::Span;

use super::error::{Complaint, Complaints, Place};
use super::load::expected;
use super::{ConfigError, Loaded, print};

/// Leases below this cannot be renewed in time on a busy machine.
const SHORTEST_LEASE: Span = Span::from_millis(300);

/// Workers that are gone are remembered for no longer.
const LONGEST_GAP: Span = Span::from_secs(60 * 60);

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Up,
    Api,
    Worker,
}

impl Loaded {
    /// Checks the values, whatever they are used for.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        wrong.extend(self.bounds());
        wrong.extend(self.addresses());
        wrong.extend(self.agents());
        let (grace, cancel) = (self.config.worker.shutdown_grace, self.config.limits.cancel_grace);
        if grace < cancel {
            wrong.push(Complaint::Conflict(format!(
                "`worker.shutdown_grace` is {grace}, set {}, and `limits.cancel_grace` is {cancel}, set {}; the first has to be \
                 at least as long as the second",
                self.place("worker.shutdown_grace"),
                self.place("limits.cancel_grace"),
            )));
        }
        if wrong.is_empty() { Ok(()) } else { Err(ConfigError::Wrong(Complaints(wrong))) }
    }

    /// Checks what a command needs.
    pub(crate) fn check_role(&self, role: Role) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        if role != Role::Worker {
            wrong.extend(self.open_address());
        }
        let command = match role {
            Role::Up => None,
            Role::Api => Some("api"),
            Role::Worker => Some("worker"),
        };
        wrong.extend(command.into_iter().flat_map(|command| self.shared(command)));
        if wrong.is_empty() { Ok(()) } else { Err(ConfigError::Wrong(Complaints(wrong))) }
    }

    /// Starts logging as configured.
    pub(crate) fn init_log(&self) -> Result<(), ConfigError> {
        let log = &self.config.log;
        let started = telemetry::init(log);
        started.map_err(|reason| {
            let expected = format!("like \"info\" or \"info,sqlx=warn\" ({reason})");
            self.wrong("log.filter", format!("{:?}", log.filter), &expected).into()
        })
    }

    pub(super) fn wrong(&self, key: &str, found: impl fmt::Display, expected: &str) -> Complaint {
        Complaint::WrongValue {
            key: key.to_owned(),
            place: self.place(key),
            found: found.to_string(),
            expected: expected.to_owned(),
        }
    }

    fn bounds(&self) -> Vec<Complaint> {
        let config = &self.config;
        let mut wrong = Vec::new();
        if config.worker.lease < SHORTEST_LEASE {
            wrong.push(self.wrong(
                "worker.lease",
                config.worker.lease,
                &format!("at least {SHORTEST_LEASE}"),
            ));
        }
        if LONGEST_GAP < config.limits.worker_gap {
            let expected = format!("at most {LONGEST_GAP}");
            wrong.push(self.wrong("limits.worker_gap", config.limits.worker_gap, &expected));
        }
        let spans = [
            ("worker.sweep", config.worker.sweep),
            ("limits.injection_timeout", config.limits.injection_timeout),
            ("limits.json_wait_timeout", config.limits.json_wait_timeout),
            ("limits.turn_timeout", config.limits.turn_timeout),
            ("limits.interaction_timeout", config.limits.interaction_timeout),
            ("limits.no_progress", config.limits.no_progress),
        ];
        let zero = spans.into_iter().filter(|(_, span)| span.0.is_zero());
        wrong.extend(zero.map(|(key, span)| self.wrong(key, span, "longer than nothing, like \"2s\"")));
        let counts = [
            ("worker.slots", config.worker.slots as u64),
            ("worker.max_attempts", config.worker.max_attempts.into()),
            ("store.max_connections", config.store.max_connections.into()),
            ("server.body_limit", config.server.body_limit.0),
        ];
        let zero = counts.into_iter().filter(|(_, count)| *count == 0);
        wrong.extend(zero.map(|(key, count)| self.wrong(key, count, "at least 1")));
        wrong
    }

    fn addresses(&self) -> Vec<Complaint> {
        let config = &self.config;
        let mut wrong = Vec::new();
        if !super::is_address(&config.server.listen) {
            let expected = expected("server.listen").unwrap_or_default();
            wrong.push(self.wrong("server.listen", format!("{:?}", config.server.listen), &expected));
        }
        if !is_sqlite(&config.store.url) && !is_postgres(&config.store.url) {
            let expected = "\"sqlite\", \"sqlite:<path>\" or \"postgres://…\"";
            wrong.push(self.wrong("store.url", print::quoted_url(&config.store.url), expected));
        }
        let redis = &config.redis;
        if !redis.url.is_empty() && !redis.url.starts_with("redis://") {
            let expected = "like \"redis://127.0.0.1:6379\", or empty";
            wrong.push(self.wrong("redis.url", print::quoted_url(&redis.url), expected));
        }
        if redis.prefix.is_empty() {
            wrong.push(self.wrong("redis.prefix", "empty", "at least one character"));
        }
        let origins = config.server.public_origins.iter();
        let odd = origins.filter(|origin| !is_origin(origin));
        wrong.extend(odd.map(|origin| {
            let expected = "origins like \"https://app.example\", without a path";
            self.wrong("server.public_origins", format!("{origin:?}"), expected)
        }));
        let odd = config.server.public_hosts.iter().filter(|host| !is_host(host));
        wrong.extend(odd.map(|host| {
            let expected =
                "hosts like \"agents.example\" or \"agents.example:8443\", without a scheme or path";
            self.wrong("server.public_hosts", format!("{host:?}"), expected)
        }));
        let roots = config.workspaces.roots.iter().filter(|root| !root.is_absolute());
        wrong.extend(roots.map(|root| {
            self.wrong("workspaces.roots", format!("{:?}", root.display().to_string()), "absolute paths")
        }));
        wrong
    }

    /// An address that others reach, without keys.
    fn open_address(&self) -> Option<Complaint> {
        let server = &self.config.server;
        if server.is_loopback() || server.insecure_bind {
            return None;
        }
        Some(Complaint::Conflict(format!(
            "`server.listen` is {}, set {}: others can reach this address, and there are no API keys; listen on a loopback address \
             like 127.0.0.1:7700, or, where something else keeps others out, set `server.insecure_bind` \
             (ROUNDHOUSE_INSECURE_BIND) to true",
            server.listen,
            self.place("server.listen"),
        )))
    }

    /// What a process of its own has to share with the others.
    fn shared(&self, command: &str) -> Vec<Complaint> {
        let mut wrong = Vec::new();
        let set = |key: &str| match self.place(key) {
            Place::Default => String::new(),
            place => format!(", set {place}"),
        };
        if self.config.redis.url.is_empty() {
            wrong.push(Complaint::Conflict(format!(
                "`roundhouse {command}` needs Redis, and `redis.url` is empty{}: queue and bus are in process, and api and worker \
                 must be one process; set `redis.url` (ROUNDHOUSE_REDIS_URL), or run `roundhouse up`",
                set("redis.url"),
            )));
        }
        if is_sqlite(&self.config.store.url) {
            wrong.push(Complaint::Conflict(format!(
                "`roundhouse {command}` needs Postgres, and `store.url` is {:?}{}: a file of one process; set `store.url` \
                 (ROUNDHOUSE_DATABASE_URL) to postgres://…, or run `roundhouse up`",
                masked_url(&self.config.store.url),
                set("store.url"),
            )));
        }
        wrong
    }
}

fn is_sqlite(url: &str) -> bool {
    url == "sqlite" || url.strip_prefix("sqlite:").is_some_and(|path| !path.trim_matches('/').is_empty())
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Whether a text is a host, with or without a port. Wildcards are none: one name more is cheap, one too many is a hole.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let named = if let Some(address) = plain {
        address.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !host.is_empty() && host.bytes().all(allowed)
    };
    named && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|host| host.strip_suffix('/').unwrap_or(host));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '*']))
}
