//! What an agent is configured with: one `[agents.NAME]` table.

use std::collections::BTreeMap;

use roundhouse_engines::openai::Prices as EnginePrices;
use roundhouse_shared::secret::Secret;
use serde::{Deserialize, Serialize};

/// Engines that the design knows and this version does not have.
pub(super) const LATER_ENGINES: [&str; 3] = ["claude-cli", "codex", "acp"];

/// The `[agents.NAME]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentSettings {
    /// What runs its turns.
    pub(crate) engine: String,
    /// Where the API is, without `/chat/completions`.
    pub(crate) base_url: String,
    /// The name of the variable that holds the key; never the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_key_env: Option<String>,
    /// The model, unless a session has its own.
    pub(crate) model: String,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) instructions: String,
    /// How many tokens the model's context holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context_window: Option<u32>,
    /// How often one model call is tried before its first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_tries: Option<u32>,
    /// What a million tokens cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prices: Option<Prices>,
    /// Headers added to each request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) extra_headers: BTreeMap<String, Secret>,
    /// Members added to each request's body.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub(crate) extra_body: serde_json::Map<String, serde_json::Value>,
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prices {
    pub(crate) input: f64,
    pub(crate) output: f64,
    /// Input tokens read from the provider's cache; absent: the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<f64>,
}

impl From<Prices> for EnginePrices {
    fn from(prices: Prices) -> Self {
        Self { input: prices.input, output: prices.output, cache: prices.cache }
    }
}

/// What would be right for a key of an agent, to be read after "it has to be".
pub(super) fn expected(key: &str) -> Option<&'static str> {
    Some(match key {
        "engine" => "\"openai\", the engine of this version",
        "base_url" => "the address of an OpenAI-compatible API, like \"http://127.0.0.1:11434/v1\"",
        "api_key_env" => "the name of the environment variable that holds the key, like \"OPENAI_API_KEY\"",
        "model" => "the name of a model, as the server knows it",
        "instructions" => "a text",
        "context_window" => "a number of tokens, like 128000",
        "max_tries" => "a whole number from 1, like 4",
        "prices" => {
            "a table like { input = 0.15, output = 0.6, cache = 0.075 }, in dollars per million tokens"
        }
        "extra_headers" => "a table of texts, like { X-Title = \"Roundhouse\" }",
        "extra_body" => "a table, like { temperature = 0.2 }",
        _ => return None,
    })
}
