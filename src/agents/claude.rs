//! Agents that Claude Code runs.

use std::path::Path;

use roundhouse_engines::claude;

use super::{data_dir, nanos};
use crate::config::{AgentSettings, Config, Environment};

/// The variables by which Claude Code finds its provider. Those of this process are passed on, unless the agent has its
/// own: what is signed in under the user's own configuration is not seen, since each deployment has a configuration of its
/// own.
const PROVIDER: [&str; 4] =
    ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"];

/// The variable with the key.
const KEY: &str = "ANTHROPIC_API_KEY";

/// The program that is looked for.
const PROGRAM: &str = "claude";

/// What the engine wants to know, or what is wrong.
pub(super) fn settings(
    config: &Config,
    agent: &AgentSettings,
    environment: &Environment,
) -> Result<claude::Settings, String> {
    let mut settings = claude::Settings {
        instructions: agent.instructions.clone(),
        tools: agent.tools.clone(),
        permissions: agent.engine_permissions().map_err(|why| format!("permissions: {why}"))?,
        permission_mode: agent.permission_mode.clone(),
        mcp: agent.mcp_servers().map_err(|why| format!("mcp: {why}"))?,
        setting_sources: agent.setting_sources.clone(),
        slash_commands: agent.slash_commands,
        prices: agent.prices.map(Into::into),
        max_iterations: agent.max_iterations,
        max_cost_nanos: agent.max_cost.map(nanos),
        ..defaults(config, environment)
    };
    if let Some(command) = &agent.command {
        settings.command.clone_from(command);
    }
    if !agent.model.is_empty() {
        settings.model = Some(agent.model.clone());
    }
    if let Some(name) = &agent.api_key_env {
        let key = environment.get(name);
        let name = crate::config::shown_variable(name);
        let key =
            key.ok_or_else(|| format!("the environment variable {name}, which holds its key, is not set"))?;
        settings.env.insert(KEY.to_owned(), key.into());
    }
    settings.env.extend(agent.env.iter().map(|(name, value)| (name.clone(), value.reveal().into())));
    Ok(settings)
}

/// What is the same for all agents.
fn defaults(config: &Config, environment: &Environment) -> claude::Settings {
    let passed = PROVIDER.iter().filter_map(|name| Some(((*name).to_owned(), environment.get(name)?.into())));
    claude::Settings {
        // The program runs in other directories than we do.
        config_dir: data_dir(config).join("claude"),
        closed: vec![data_dir(config)],
        env: passed.collect(),
        no_progress: config.limits.no_progress.0,
        ..claude::Settings::default()
    }
}

/// The program, where it is on the `PATH`: then there is an agent without any configuration.
pub(super) fn found(config: &Config, environment: &Environment) -> Option<claude::Settings> {
    let is_there = |folder: &Path| folder.join(PROGRAM).is_file();
    std::env::split_paths(environment.get("PATH")?)
        .any(|folder| is_there(&folder))
        .then(|| defaults(config, environment))
}
