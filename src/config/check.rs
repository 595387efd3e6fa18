//! What the values have to fulfil beyond their form, and what a command needs.

use std::fmt;

use roundhouse_shared::domain::EngineKind;
use roundhouse_shared::secret::masked_url;
use roundhouse_shared::telemetry;
use roundhouse_shared::units::Span;

use super::error::{Complaint, Complaints, Place};
use super::load::expected;
use super::{ConfigError, Loaded, print};

/// Claude Code's own permission modes that make sense without a person at its terminal.
const PERMISSION_MODES: [&str; 5] = ["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"];
/// Where Claude Code's own settings can come from.
const SETTING_SOURCES: [&str; 3] = ["user", "project", "local"];

/// Leases below this cannot be renewed in time on a busy machine.
const SHORTEST_LEASE: Span = Span::from_millis(300);

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

    fn wrong(&self, key: &str, found: impl fmt::Display, expected: &str) -> Complaint {
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
        let roots = config.workspaces.roots.iter().filter(|root| !root.is_absolute());
        wrong.extend(roots.map(|root| {
            self.wrong("workspaces.roots", format!("{:?}", root.display().to_string()), "absolute paths")
        }));
        wrong
    }

    fn agents(&self) -> Vec<Complaint> {
        let mut wrong = Vec::new();
        for (name, agent) in &self.config.agents {
            let key = |part: &str| format!("agents.{name}.{part}");
            let says = |key: &str| expected(key).unwrap_or_default();
            if !is_name(name) {
                wrong.push(Complaint::Conflict(format!(
                    "`agents.{name}`, set {}, cannot be a name: it has to be letters, digits, `-`, `_` or `.`, at most 64",
                    self.place(&format!("agents.{name}")),
                )));
            }
            let is_openai = agent.engine == EngineKind::OpenAi;
            if is_openai && !agent.base_url.starts_with("http://") && !agent.base_url.starts_with("https://")
            {
                let key = key("base_url");
                wrong.push(self.wrong(&key, print::quoted_url(&agent.base_url), &says(&key)));
            }
            if is_openai && agent.model.trim().is_empty() {
                let key = key("model");
                wrong.push(self.wrong(&key, "empty", &says(&key)));
            }
            if agent.command.as_ref().is_some_and(|command| command.first().is_none_or(String::is_empty)) {
                let key = key("command");
                wrong.push(self.wrong(&key, "empty", &says(&key)));
            }
            if let Some(mode) =
                agent.permission_mode.as_deref().filter(|mode| !PERMISSION_MODES.contains(mode))
            {
                let key = key("permission_mode");
                wrong.push(self.wrong(&key, format_args!("{mode:?}"), &says(&key)));
            }
            if let Some(odd) = agent.setting_sources.iter().find(|of| !SETTING_SOURCES.contains(&of.as_str()))
            {
                let key = key("setting_sources");
                wrong.push(self.wrong(&key, format_args!("{odd:?}"), &says(&key)));
            }
            if is_openai && let Err(why) = agent.builtins() {
                let expected = says(&key("tools"));
                wrong.push(self.wrong(&key("tools"), format_args!("wrong ({why})"), &expected));
            }
            if let Err(why) = agent.mcp_servers() {
                let expected = says(&key("mcp"));
                wrong.push(self.wrong(&key("mcp"), format_args!("wrong ({why})"), &expected));
            }
            if let Err(why) = agent.engine_permissions() {
                let expected = says(&key("permissions"));
                wrong.push(self.wrong(&key("permissions"), format_args!("wrong ({why})"), &expected));
            }
            if agent.max_iterations == Some(0) {
                wrong.push(self.wrong(&key("max_iterations"), 0, "a whole number from 1"));
            }
            if agent.context_window == Some(0) {
                wrong.push(self.wrong(&key("context_window"), 0, "a number of tokens from 1"));
            }
            if agent.max_cost.is_some_and(|cost| !(0.0..=1e9).contains(&cost)) {
                wrong.push(self.wrong(
                    &key("max_cost"),
                    "out of range",
                    "a sum in US dollars from 0 to 1000000000",
                ));
            } else if agent.max_cost.is_some() && agent.prices.is_none() {
                let (limit, prices) = (key("max_cost"), key("prices"));
                wrong.push(Complaint::Conflict(format!(
                    "`{limit}` is set {}, and `{prices}` is not: without prices no cost is known, and nothing would ever \
                     reach the limit; set `{prices}`, or leave `{limit}` out",
                    self.place(&limit),
                )));
            }
            if agent.max_tries == Some(0) {
                let key = key("max_tries");
                wrong.push(self.wrong(&key, 0, &says(&key)));
            }
            let numbers = agent.prices.map(|prices| [Some(prices.input), Some(prices.output), prices.cache]);
            let negative = |price: f64| !price.is_finite() || price < 0.0;
            if numbers.into_iter().flatten().flatten().any(negative) {
                wrong.push(self.wrong(&key("prices"), "negative", "prices from 0 on"));
            }
        }
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

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|host| host.strip_suffix('/').unwrap_or(host));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '*']))
}

fn is_name(name: &str) -> bool {
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    letters && (1..=64).contains(&name.len()) && name.chars().any(|c| c.is_ascii_alphanumeric())
}
