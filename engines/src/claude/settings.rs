//! What a `claude-cli` agent is configured with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::mcp;
use crate::openai::{Prices, Secret};
use crate::permissions::Permissions;

/// Settings of one agent on the `claude-cli` engine. The root crate fills them from its own table of agents.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program, looked up in `PATH`, and arguments that come before ours.
    pub command: Vec<String>,
    /// Where the CLI keeps its state, conversations included: `CLAUDE_CONFIG_DIR`. One for each tenant: processes that share
    /// it see one another.
    pub config_dir: PathBuf,
    /// The model, unless the session has its own; `None`: the CLI's default.
    pub model: Option<String>,
    /// Added to the CLI's system prompt. Empty: nothing.
    pub instructions: String,
    /// The built-in tools that are offered, by their names; `None`: all of them.
    pub tools: Option<Vec<String>>,
    /// Which calls run. Rules name the CLI's tools: `Bash`, `Bash(git push)`, `WebFetch`, `mcp__server__tool`.
    pub permissions: Permissions,
    /// The CLI's own mode, in which each session begins: `default`, `acceptEdits`, `plan`, …; `None`: `default`. The
    /// permissions above decide in every mode; so `dontAsk`, which denies whatever is to be decided, is refused.
    pub permission_mode: Option<String>,
    /// Folders that the CLI's file tools never touch, but for what is the session's own in them: the server's data directory.
    pub closed: Vec<PathBuf>,
    /// MCP servers that the CLI starts or connects to. Their times and working directories are its own affair.
    pub mcp: Vec<mcp::Settings>,
    /// Which of the host's settings files count: `user`, `project`, `local`. None of them by default.
    pub setting_sources: Vec<String>,
    /// Variables for the process, such as `ANTHROPIC_API_KEY` and `ANTHROPIC_BASE_URL`.
    pub env: BTreeMap<String, Secret>,
    /// Whether `/command` and `@file` in a message mean what they mean in the CLI's own terminal. `@file` reads any file
    /// of the host.
    pub slash_commands: bool,
    /// What tokens cost, where the CLI does not tell; `None`: costs are then unknown.
    pub prices: Option<Prices>,
    /// The most model calls in one turn; `None`: any number.
    pub max_iterations: Option<u32>,
    /// What one turn may have cost, in billionths of a US dollar, when it makes another model call; `None`: any amount.
    pub max_cost_nanos: Option<i64>,
    /// How often the CLI asks the provider again.
    pub max_retries: u32,
    /// The longest silence of the CLI within a turn, while no tool runs and nobody is asked for anything.
    pub no_progress: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            command: vec!["claude".to_owned()],
            config_dir: PathBuf::new(),
            model: None,
            instructions: String::new(),
            tools: None,
            permissions: Permissions::default(),
            permission_mode: None,
            closed: Vec::new(),
            mcp: Vec::new(),
            setting_sources: Vec::new(),
            env: BTreeMap::new(),
            slash_commands: false,
            prices: None,
            max_iterations: None,
            max_cost_nanos: None,
            max_retries: 2,
            no_progress: Duration::from_mins(10),
        }
    }
}
