//! Every key of the configuration but those of agents: its environment variable, its form, its meaning.
//!
//! Errors, the example file and `roundhouse config` are made from this table; tests compare it with the sections' structs
//! and with the documentation.

use figment::value::Value;
use roundhouse_shared::units::{Size, Span};

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// `section.name`.
    pub(crate) path: &'static str,
    /// The environment variable that sets it.
    pub(crate) variable: &'static str,
    pub(crate) form: Form,
    /// What it is for, in a line.
    pub(crate) about: &'static str,
}

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Address,
    Text,
    Texts,
    Span,
    Size,
    Count,
    Switch,
    OneOf(&'static [&'static str]),
}

/// The variable that names the file.
pub(crate) const FILE_VARIABLE: &str = "ROUNDHOUSE_CONFIG";

const fn key(path: &'static str, variable: &'static str, form: Form, about: &'static str) -> Key {
    Key { path, variable, form, about }
}

/// All of them, in the order of the example file.
pub(crate) const KEYS: &[Key] = &[
    key("server.listen", "ROUNDHOUSE_LISTEN", Form::Address, "where HTTP is served"),
    key(
        "server.public_hosts",
        "ROUNDHOUSE_PUBLIC_HOSTS",
        Form::Texts,
        "host names under which clients reach this server, beside localhost",
    ),
    key(
        "server.public_origins",
        "ROUNDHOUSE_PUBLIC_ORIGINS",
        Form::Texts,
        "web origins of others that may call the API (CORS)",
    ),
    key("server.body_limit", "ROUNDHOUSE_BODY_LIMIT", Form::Size, "the largest request body"),
    key(
        "server.insecure_bind",
        "ROUNDHOUSE_INSECURE_BIND",
        Form::Switch,
        "listen on an address that is not loopback although there are no API keys; see docs/configuration.md",
    ),
    key(
        "data.dir",
        "ROUNDHOUSE_DATA_DIR",
        Form::Text,
        "the SQLite file, and a directory for each session without one",
    ),
    key("store.url", "ROUNDHOUSE_DATABASE_URL", Form::Text, "`sqlite`, `sqlite:<path>` or `postgres://…`"),
    key(
        "store.max_connections",
        "ROUNDHOUSE_MAX_CONNECTIONS",
        Form::Count,
        "most connections to Postgres; for SQLite, most readers",
    ),
    key(
        "store.pgbouncer",
        "ROUNDHOUSE_PGBOUNCER",
        Form::Switch,
        "whether Postgres is reached through PgBouncer in transaction mode",
    ),
    key(
        "redis.url",
        "ROUNDHOUSE_REDIS_URL",
        Form::Text,
        "`redis://…`; empty: queue and bus in process, and api and worker must be one process",
    ),
    key(
        "redis.prefix",
        "ROUNDHOUSE_REDIS_PREFIX",
        Form::Text,
        "what the names of keys and channels begin with; one for each deployment on a server",
    ),
    key("log.filter", "ROUNDHOUSE_LOG", Form::Text, "what to log: `level` or `target=level,…`"),
    key("log.format", "ROUNDHOUSE_LOG_FORMAT", Form::OneOf(&["text", "json"]), "how: `text` or `json`"),
    key("worker.slots", "ROUNDHOUSE_SLOTS", Form::Count, "turns that run at once in one process"),
    key(
        "worker.lease",
        "ROUNDHOUSE_LEASE",
        Form::Span,
        "how long a session stays with a worker that gives no sign of life; renewed at a third of it",
    ),
    key("worker.sweep", "ROUNDHOUSE_SWEEP", Form::Span, "how often forgotten mail is looked for"),
    key(
        "worker.max_attempts",
        "ROUNDHOUSE_MAX_ATTEMPTS",
        Form::Count,
        "how often a turn is started before its jobs fail with WORKER_LOST",
    ),
    key(
        "worker.shutdown_grace",
        "ROUNDHOUSE_SHUTDOWN_GRACE",
        Form::Span,
        "how long running turns may go on after a stop was asked for",
    ),
    key(
        "worker.engine_idle",
        "ROUNDHOUSE_ENGINE_IDLE",
        Form::Span,
        "how long an engine's process is kept after a turn",
    ),
    key(
        "limits.injection_timeout",
        "ROUNDHOUSE_INJECTION_TIMEOUT",
        Form::Span,
        "how long a request waits for the answer to a message sent to a running session",
    ),
    key(
        "limits.json_wait_timeout",
        "ROUNDHOUSE_JSON_WAIT_TIMEOUT",
        Form::Span,
        "how long a JSON chat waits before it answers 202",
    ),
    key(
        "limits.turn_timeout",
        "ROUNDHOUSE_TURN_TIMEOUT",
        Form::Span,
        "how long a turn may work, over all its attempts; waiting for people, other agents or a slot does not count",
    ),
    key(
        "limits.interaction_timeout",
        "ROUNDHOUSE_INTERACTION_TIMEOUT",
        Form::Span,
        "how long an agent waits for a person's answer",
    ),
    key(
        "limits.cancel_grace",
        "ROUNDHOUSE_CANCEL_GRACE",
        Form::Span,
        "how long an engine has to stop by itself when a turn is cancelled",
    ),
    key(
        "limits.no_progress",
        "ROUNDHOUSE_NO_PROGRESS",
        Form::Span,
        "the longest silence within a model's answer",
    ),
    key(
        "limits.worker_gap",
        "ROUNDHOUSE_WORKER_GAP",
        Form::Span,
        "how long messages for an agent are admitted while no worker has it",
    ),
    key(
        "workspaces.roots",
        "ROUNDHOUSE_WORKSPACE_ROOTS",
        Form::Texts,
        "allowed parents of a session's cwd, beside the data directory; absolute paths",
    ),
];

/// The key of that path.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

impl Key {
    /// The part before the dot.
    pub(crate) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part behind the dot.
    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }
}

impl Form {
    /// What would be right, to be read after "it has to be".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Address => "an IP address and a port, like \"127.0.0.1:7700\"".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Texts => "a list of texts, like [\"a\", \"b\"]; in a variable: a,b".to_owned(),
            Self::Span => "a length of time, like \"500ms\", \"30s\", \"5m\" or \"2h\"".to_owned(),
            Self::Size => "a size, like \"65536\", \"64KiB\" or \"1MiB\"".to_owned(),
            Self::Count => "a whole number that is not negative, like 8".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::OneOf(names) => {
                let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
                names.join(" or ")
            }
        }
    }

    /// The value that a variable or a flag stands for; `None`: it has another form.
    pub(crate) fn read(self, text: &str) -> Option<Value> {
        let text = text.trim();
        match self {
            Self::Text => Some(Value::from(text)),
            Self::Address => super::is_address(text).then(|| Value::from(text)),
            Self::Span => text.parse::<Span>().ok().map(|_| Value::from(text)),
            Self::Size => text.parse::<Size>().ok().map(|_| Value::from(text)),
            Self::OneOf(names) => names.contains(&text).then(|| Value::from(text)),
            Self::Count => text.parse::<u32>().ok().map(Value::from),
            Self::Switch => text.parse::<bool>().ok().map(Value::from),
            Self::Texts => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::from(items.collect::<Vec<_>>()))
            }
        }
    }
}
