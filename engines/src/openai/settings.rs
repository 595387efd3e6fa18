//! What an `openai` agent is configured with.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::needs::Compat;
use crate::permissions::Permissions;
use crate::tools::ToolSource;

/// Settings of one agent on the `openai` engine. The root crate fills them from its own table of agents.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the API is, without `/chat/completions`: `http://127.0.0.1:11434/v1`. A query is kept.
    pub base_url: String,
    /// Sent as a bearer token; `None`: no `Authorization` header.
    pub api_key: Option<Secret>,
    /// The model, unless the session has its own.
    pub model: String,
    /// The system prompt, sent as it is, so that prompt caches hold. Empty: none.
    pub instructions: String,
    /// What tokens cost; `None`: costs are unknown.
    pub prices: Option<Prices>,
    /// Headers added to each request. They may carry keys, so their values are treated as such.
    pub extra_headers: BTreeMap<String, Secret>,
    /// Members added to each request's body (`temperature`, `max_tokens`, …); never one that the engine sets itself.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Where the tools come from. Of two tools of one name the first counts.
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Which calls of them run.
    pub permissions: Permissions,
    /// Folders that file tools never touch, but for the session's own workspace in them: the server's data directory.
    pub closed: Vec<PathBuf>,
    /// Whether `ask_user` is offered, by which the model asks a person ([`Asked::Question`]).
    ///
    /// [`Asked::Question`]: crate::contract::Asked::Question
    pub ask_user: bool,
    /// Whether `spawn_agent` is offered, by which the model gives work to another agent ([`Asked::Spawn`]), and the
    /// names of the agents that it may start; none: it may name any.
    ///
    /// [`Asked::Spawn`]: crate::contract::Asked::Spawn
    pub spawn_agent: Option<Vec<String>>,
    /// The most model calls in one turn, over all its attempts; those that summarise are not counted.
    pub max_iterations: u32,
    /// What one turn may have cost, over all its attempts and in billionths of a US dollar, when it makes another model
    /// call; `None`: any amount. Calls whose cost is unknown count nothing.
    pub max_cost_nanos: Option<i64>,
    /// How many tokens the model takes. A context that comes near is summarised; `None`: only once the server has
    /// refused it.
    pub context_window: Option<u64>,
    /// What of a conversation the provider takes only if it is written otherwise.
    pub compat: Compat,
    /// How often one model call is tried before its first token, the first try included.
    pub max_tries: u32,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The longest wait for the head of the answer. A model may have to be loaded first.
    pub first_byte_timeout: Duration,
    /// How long an answer may not get further. Comments, pings and empty chunks are no progress.
    pub idle_timeout: Duration,
    /// The wait before the second try; it doubles with each try.
    pub retry_delay: Duration,
    /// The longest wait between two tries, also where the provider asks for more.
    pub max_retry_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            base_url: String::new(),
            api_key: None,
            model: String::new(),
            instructions: String::new(),
            prices: None,
            extra_headers: BTreeMap::new(),
            extra_body: serde_json::Map::new(),
            sources: Vec::new(),
            permissions: Permissions::default(),
            closed: Vec::new(),
            ask_user: false,
            spawn_agent: None,
            max_iterations: 100,
            max_cost_nanos: None,
            context_window: None,
            compat: Compat::default(),
            max_tries: 4,
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_mins(5),
            idle_timeout: Duration::from_mins(10),
            retry_delay: Duration::from_millis(500),
            max_retry_delay: Duration::from_mins(1),
        }
    }
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Input tokens that are not read from the cache.
    pub input: f64,
    /// Output tokens, reasoning included.
    pub output: f64,
    /// Input tokens read from the cache; absent: the price of input.
    pub cache: Option<f64>,
}

/// A text that is never shown: its `Debug` is a mask.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, for the one place that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self(secret.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
