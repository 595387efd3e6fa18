//! The configuration as TOML: the effective one, with sources and without secrets, and the example file.

use std::fmt::Write;

use super::error::Place;
use super::keys::{KEYS, Key};
use super::mask::{shown_url, without_secrets};
use super::{Config, Loaded};

/// A URL in quotes, without its secrets.
pub(super) fn quoted_url(url: &str) -> String {
    format!("{:?}", shown_url(url))
}

/// A value as a person wrote it, for errors; without secrets.
pub(super) fn shown(key: &str, value: &figment::value::Value) -> String {
    if key.contains("extra_headers") || key.contains(".mcp") || key.contains(".env") {
        return "set".to_owned();
    }
    let value = toml::Value::try_from(value);
    value.map_or_else(|_| "wrong".to_owned(), |value| without_secrets(last_part(key), value).to_string())
}

/// The name of a key within its table.
fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

impl Loaded {
    /// The effective configuration as TOML. What is not the default says where it was set.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = sections(&self.config, |key| match self.place(key.path) {
            Place::Default => String::new(),
            place => format!("  # {place}"),
        });
        for (name, agent) in &self.config.agents {
            let place = self.place(&format!("agents.{name}"));
            let _ = write!(text, "\n[agents.{}]  # {place}\n", toml_key(name));
            let table = toml::Table::try_from(agent).unwrap_or_default();
            for (key, value) in table {
                let _ = writeln!(text, "{} = {}", toml_key(&key), without_secrets(&key, value.clone()));
            }
        }
        text
    }
}

/// A key as TOML wants it: in quotes where it has other characters than letters, digits, `-` and `_`.
fn toml_key(name: &str) -> String {
    let bare = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) && !name.is_empty();
    if bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}

/// All keys of the table, by section, each with what `note` says of it.
fn sections(config: &Config, note: impl Fn(&Key) -> String) -> String {
    let table = toml::Table::try_from(config).unwrap_or_default();
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        if key.section() != section {
            section = key.section();
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}[{section}]");
        }
        let Some(value) = table.get(section).and_then(|section| section.get(key.name())) else { continue };
        let _ =
            writeln!(text, "{} = {}{}", key.name(), without_secrets(key.name(), value.clone()), note(key));
    }
    text
}

/// The example file: every key with its default, its meaning and its variable.
pub(crate) fn example() -> String {
    const HEAD: &str = "\
# Roundhouse reads `roundhouse.toml` in its working directory, or the file that `--config` or ROUNDHOUSE_CONFIG names.
# These are the defaults: keep what you change. A variable beats the file, a flag beats both.
# `roundhouse config --example` prints this file.

";
    const AGENTS: &str = r#"
# Agents. Without any, Roundhouse offers `assistant`, if OPENAI_BASE_URL or OPENAI_API_KEY is set, `claude`, if that command is
# there, and `demo`.
#
# [agents.assistant]
# engine = "openai"                          # any server that speaks Chat Completions
# base_url = "http://127.0.0.1:11434/v1"
# api_key_env = "OPENAI_API_KEY"             # the name of the variable, never the key
# model = "qwen3"
# instructions = "You are a helpful assistant."
# prices = { input = 0.15, output = 0.6, cache = 0.075 }  # dollars per million tokens; absent: the cost is null
# context_window = 128000
# tools = ["shell", "read_file", "write_file", "edit_file", "list_files", "search_files", "ask_user", "spawn_agent"]
# mcp = { files = { command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/data"] } }  # its tools are files__…
# spawn = ["claude"]                         # the agents that spawn_agent may start; absent: only this one itself
# permissions = { default = "allow", ask = ["shell"], allow = ["shell(ls)", "read_file(./**)"], deny = ["shell(sudo)"] }
# max_iterations = 100                       # model calls in one turn
# turn_timeout = "10m"                       # how long a turn may work; absent: limits.turn_timeout
# max_cost = 0.5                             # US dollars in one turn, needs prices; absent: any amount
# max_tries = 4                              # tries of one model call before its first token
# extra_headers = { X-Title = "Roundhouse" }
# extra_body = { temperature = 0.2 }
#
# [agents.claude]
# engine = "claude-cli"                      # Claude Code, the `claude` command
# command = ["claude"]
# api_key_env = "ANTHROPIC_API_KEY"          # the name of the variable, never the key
# model = "sonnet"
# instructions = "You are a helpful assistant."           # added to Claude Code's own
# tools = ["Bash", "Read", "Edit", "Write"]  # absent: all that Claude Code has
# permissions = { default = "ask", allow = ["Read(./**)", "Bash(ls)"], deny = ["WebFetch"] }
# permission_mode = "default"                # or acceptEdits, plan, bypassPermissions
# setting_sources = []                       # of user, project, local: Claude Code's own settings, none unless named
# env = { ANTHROPIC_BASE_URL = "http://127.0.0.1:9001" }
"#;
    let about = |key: &Key| format!("  # {} ({})", key.about, key.variable);
    let defaults = sections(&Config::default(), about);
    format!("{HEAD}{defaults}{AGENTS}")
}
