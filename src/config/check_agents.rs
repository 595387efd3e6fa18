//! What the tables of agents have to fulfil beyond their form.

use roundhouse_shared::domain::EngineKind;

use super::error::Complaint;
use super::load::expected;
use super::mask::looks_like_key;
use super::{AgentSettings, Loaded, SPAWN_AGENT, print};

/// Claude Code's own permission modes that make sense without a person at its terminal.
const PERMISSION_MODES: [&str; 4] = ["default", "acceptEdits", "plan", "bypassPermissions"];
/// Where Claude Code's own settings can come from.
const SETTING_SOURCES: [&str; 3] = ["user", "project", "local"];

/// One agent's table, and what is wrong with it.
struct Checked<'a> {
    loaded: &'a Loaded,
    name: &'a str,
    wrong: Vec<Complaint>,
}

impl Loaded {
    pub(super) fn agents(&self) -> Vec<Complaint> {
        let agents = self.config.agents.iter();
        agents
            .flat_map(|(name, agent)| {
                let mut checked = Checked { loaded: self, name, wrong: Vec::new() };
                checked.name();
                match agent.engine {
                    EngineKind::OpenAi => checked.server(agent),
                    EngineKind::ClaudeCli => checked.program(agent),
                }
                checked.texts(agent);
                checked.tools(agent);
                checked.limits(agent);
                checked.wrong
            })
            .collect()
    }
}

impl Checked<'_> {
    fn key(&self, part: &str) -> String {
        format!("agents.{}.{part}", self.name)
    }

    /// Says that a value is wrong, and what would be right for this key.
    fn say(&mut self, part: &str, found: impl std::fmt::Display) {
        let key = self.key(part);
        let right = expected(&key).unwrap_or_default();
        self.wrong.push(self.loaded.wrong(&key, found, &right));
    }

    /// The same, where something else would be right than for the key as a whole.
    fn say_rather(&mut self, part: &str, found: impl std::fmt::Display, right: &str) {
        let key = self.key(part);
        self.wrong.push(self.loaded.wrong(&key, found, right));
    }

    fn name(&mut self) {
        let name = self.name;
        if !is_name(name) {
            let place = self.loaded.place(&format!("agents.{name}"));
            self.wrong.push(Complaint::Conflict(format!(
                "`agents.{name}`, set {place}, cannot be a name: it has to be letters, digits, `-`, `_` or `.`, at most 64",
            )));
        }
    }

    fn server(&mut self, agent: &AgentSettings) {
        let url = &agent.base_url;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            self.say("base_url", print::quoted_url(url));
        }
        if agent.model.trim().is_empty() {
            self.say("model", "empty");
        }
        if let Err(why) = agent.builtins() {
            self.say("tools", format_args!("wrong ({why})"));
        }
        if agent.max_cost.is_some_and(is_sum) && agent.prices.is_none() {
            let (limit, prices) = (self.key("max_cost"), self.key("prices"));
            let place = self.loaded.place(&limit);
            self.wrong.push(Complaint::Conflict(format!(
                "`{limit}` is set {place}, and `{prices}` is not: without prices no cost is known, and nothing would ever \
                 reach the limit; set `{prices}`, or leave `{limit}` out",
            )));
        }
    }

    fn program(&mut self, agent: &AgentSettings) {
        if agent.command.as_ref().is_some_and(|command| command.first().is_none_or(String::is_empty)) {
            self.say("command", "empty");
        }
        let mode = agent.permission_mode.as_deref();
        if let Some(mode) = mode.filter(|mode| !PERMISSION_MODES.contains(mode)) {
            self.say("permission_mode", format_args!("{mode:?}"));
        }
        let mut sources = agent.setting_sources.iter();
        if let Some(odd) = sources.find(|source| !SETTING_SOURCES.contains(&source.as_str())) {
            self.say("setting_sources", format_args!("{odd:?}"));
        }
    }

    /// What every engine is given as it stands: a model is an argument of some, and a variable's name is shown.
    fn texts(&mut self, agent: &AgentSettings) {
        if agent.model.trim_start().starts_with('-') || agent.model.contains(char::is_control) {
            self.say_rather(
                "model",
                "wrong",
                "a name that does not begin with `-` and has no control characters",
            );
        }
        let is_name = |name: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.starts_with(|first: char| first.is_ascii_digit())
                && !name.is_empty()
                && name.bytes().all(plain)
                && name.len() <= 64
                && !looks_like_key(name)
        };
        // The value is not repeated: it may be the key itself.
        if agent.api_key_env.as_deref().is_some_and(|name| !is_name(name)) {
            self.say("api_key_env", "not a variable's name");
        }
    }

    fn tools(&mut self, agent: &AgentSettings) {
        let agents = &self.loaded.config.agents;
        let unknown = agent.spawn.iter().flatten().find(|name| !agents.contains_key(*name));
        if let Some(name) = unknown {
            self.say("spawn", format_args!("wrong (there is no agent {name:?})"));
        }
        if agent.spawn.is_some() && !agent.has_tool(SPAWN_AGENT) {
            let (list, tools) = (self.key("spawn"), self.key("tools"));
            let place = self.loaded.place(&list);
            self.wrong.push(Complaint::Conflict(format!(
                "`{list}` is set {place}, and `{tools}` has no `{SPAWN_AGENT}`, so nothing would ever be started",
            )));
        }
        if let Err(why) = agent.mcp_servers() {
            self.say("mcp", format_args!("wrong ({why})"));
        }
        if let Err(why) = agent.engine_permissions() {
            self.say("permissions", format_args!("wrong ({why})"));
        }
    }

    fn limits(&mut self, agent: &AgentSettings) {
        if agent.max_iterations == Some(0) {
            self.say_rather("max_iterations", 0, "a whole number from 1");
        }
        if agent.context_window == Some(0) {
            self.say_rather("context_window", 0, "a number of tokens from 1");
        }
        if agent.max_cost.is_some_and(|cost| !is_sum(cost)) {
            self.say_rather("max_cost", "out of range", "a sum in US dollars from 0 to 1000000000");
        }
        if agent.max_tries == Some(0) {
            self.say("max_tries", 0);
        }
        let numbers = agent.prices.map(|prices| [Some(prices.input), Some(prices.output), prices.cache]);
        let negative = |price: f64| !price.is_finite() || price < 0.0;
        if numbers.into_iter().flatten().flatten().any(negative) {
            self.say_rather("prices", "negative", "prices from 0 on");
        }
    }
}

/// Whether something may cost this many US dollars.
fn is_sum(dollars: f64) -> bool {
    (0.0..=1e9).contains(&dollars)
}

fn is_name(name: &str) -> bool {
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    letters && (1..=64).contains(&name.len()) && name.chars().any(|c| c.is_ascii_alphanumeric())
}
