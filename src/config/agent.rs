//! What an agent is configured with: one `[agents.NAME]` table.

use std::collections::BTreeMap;

use roundhouse_engines::mcp;
use roundhouse_engines::openai::{Compat, Permissions, Prices as EnginePrices};
use roundhouse_engines::tools::Builtins;
use roundhouse_shared::domain::EngineKind;
use roundhouse_shared::secret::Secret;
use roundhouse_shared::units::Span;
use serde::{Deserialize, Serialize};

use super::mcp::McpSettings;

/// Engines that the design knows and this version does not have.
pub(super) const LATER_ENGINES: [&str; 2] = ["codex", "acp"];

/// The keys of an agent, by its engine: those that have to be there, and all.
pub(super) const fn keys_of(engine: EngineKind) -> (&'static [&'static str], &'static [&'static str]) {
    match engine {
        EngineKind::OpenAi => (
            &["base_url", "model"],
            &[
                "engine",
                "base_url",
                "api_key_env",
                "model",
                "instructions",
                "context_window",
                "compat",
                "tools",
                "spawn",
                "mcp",
                "permissions",
                "max_iterations",
                "turn_timeout",
                "max_cost",
                "max_tries",
                "prices",
                "extra_headers",
                "extra_body",
            ],
        ),
        EngineKind::ClaudeCli => (
            &[],
            &[
                "engine",
                "command",
                "env",
                "api_key_env",
                "model",
                "instructions",
                "tools",
                "mcp",
                "permissions",
                "permission_mode",
                "setting_sources",
                "slash_commands",
                "max_iterations",
                "turn_timeout",
                "max_cost",
                "prices",
            ],
        ),
    }
}

/// The `[agents.NAME]` section: the keys of all engines; which of them an agent may have is said by [`keys_of`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentSettings {
    /// What runs its turns.
    pub(crate) engine: EngineKind,
    /// The program that is run, and its first arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<Vec<String>>,
    /// Variables for the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, Secret>,
    /// Where the API is, without `/chat/completions`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) base_url: String,
    /// The name of the variable that holds the key; never the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_key_env: Option<String>,
    /// The model, unless a session has its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) model: String,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) instructions: String,
    /// How many tokens the model's context holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context_window: Option<u32>,
    /// What of a conversation the provider takes only if it is written otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) compat: Option<Compat>,
    /// The tools that the agent may use: of Roundhouse's own, none unless they are named; of the program's, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<String>>,
    /// The agents that it may start with `spawn_agent`; absent: only itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spawn: Option<Vec<String>>,
    /// MCP servers whose tools the agent may use, by the names that their tools begin with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mcp: BTreeMap<String, McpSettings>,
    /// Which tool calls run, are asked about, never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permissions: Option<PermissionSettings>,
    /// The program's own permission mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permission_mode: Option<String>,
    /// Which of the user's and the project's own settings the program reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) setting_sources: Vec<String>,
    /// Whether messages that begin with `/` are the program's commands, and `@file` names files. Only for those who may
    /// read every file of the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) slash_commands: bool,
    /// The most model calls in one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_iterations: Option<u32>,
    /// How long a turn may work, over all its attempts; absent: `limits.turn_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turn_timeout: Option<Span>,
    /// What one turn may cost, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_cost: Option<f64>,
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

/// Which tool calls run, are asked about, never run: names of tools, or `shell(beginning of a command)`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PermissionSettings {
    /// For calls that no rule covers: `allow`, `ask` or `deny`.
    pub(crate) default: Option<String>,
    /// What runs.
    pub(crate) allow: Vec<String>,
    /// What is asked about first.
    pub(crate) ask: Vec<String>,
    /// What never runs.
    pub(crate) deny: Vec<String>,
}

/// The tools that the worker answers itself.
pub(crate) const ASK_USER: &str = "ask_user";
/// See [`ASK_USER`].
pub(crate) const SPAWN_AGENT: &str = "spawn_agent";

impl AgentSettings {
    /// The permissions as the engine wants them, or what is wrong with them.
    pub(crate) fn engine_permissions(&self) -> Result<Permissions, String> {
        let Some(settings) = &self.permissions else { return Ok(Permissions::default()) };
        let PermissionSettings { default, allow, ask, deny } = settings;
        let default = default.as_deref().unwrap_or("allow");
        let table = serde_json::json!({ "default": default, "allow": allow, "ask": ask, "deny": deny });
        serde_json::from_value(table).map_err(|error| error.to_string())
    }

    /// The built-in tools, or what is wrong with the names.
    pub(crate) fn builtins(&self) -> Result<Builtins, String> {
        let ours = |name: &&String| *name != ASK_USER && *name != SPAWN_AGENT;
        let names: Vec<_> = self.tools.iter().flatten().filter(ours).cloned().collect();
        Builtins::new(&names, roundhouse_engines::tools::Settings::default())
            .map_err(|error| format!("{error}, {ASK_USER}, {SPAWN_AGENT}"))
    }

    /// The MCP servers, or what is wrong with one.
    pub(crate) fn mcp_servers(&self) -> Result<Vec<mcp::Settings>, String> {
        self.mcp.iter().map(|(name, server)| server.engine_settings(name)).collect()
    }

    /// Whether the agent may use a tool.
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().flatten().any(|tool| tool == name)
    }
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
        "engine" => "\"openai\" or \"claude-cli\", the engines of this version",
        "command" => "a list: the program and its first arguments, like [\"claude\"]",
        "env" => "a table of texts, like { ANTHROPIC_BASE_URL = \"http://127.0.0.1:9001\" }",
        "permission_mode" => "\"default\", \"acceptEdits\", \"plan\" or \"bypassPermissions\"",
        "setting_sources" => "a list of \"user\", \"project\" and \"local\"",
        "slash_commands" => "true or false",
        "base_url" => "the address of an OpenAI-compatible API, like \"http://127.0.0.1:11434/v1\"",
        "api_key_env" => "the name of the environment variable that holds the key, like \"OPENAI_API_KEY\"",
        "model" => "the name of a model, as the server knows it",
        "instructions" => "a text",
        "context_window" => "a number of tokens, like 128000",
        "compat" => {
            "a table like { roles = \"alternate\", system = \"first\", reasoning = \"calls\", call_ids = \"short\" }"
        }
        "tools" => "a list of tools, like [\"shell\", \"read_file\", \"ask_user\"]",
        "spawn" => "a list of agents of this configuration, like [\"reviewer\"]",
        "mcp" => {
            "a table like { files = { command = [\"npx\", \"some-server\"] }, web = { url = \"http://127.0.0.1:3001/mcp\" } }"
        }
        "permissions" => {
            "a table like { default = \"allow\", ask = [\"shell\"], deny = [\"shell(rm)\"] } of allow, ask or deny"
        }
        "max_iterations" => "a whole number from 1, like 100",
        "turn_timeout" => "a length of time like 500ms, 30s, 5m or 2h",
        "max_cost" => "a sum in US dollars, like 0.5",
        "max_tries" => "a whole number from 1, like 4",
        "prices" => {
            "a table like { input = 0.15, output = 0.6, cache = 0.075 }, in dollars per million tokens"
        }
        "extra_headers" => "a table of texts, like { X-Title = \"Roundhouse\" }",
        "extra_body" => "a table, like { temperature = 0.2 }",
        _ => return None,
    })
}
