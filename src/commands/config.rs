//! `roundhouse config`: what would be in effect.

use crate::agents::{DEFAULT_MODEL, offered};
use crate::config::{Loaded, example};
use crate::terminal::say;

/// The example file.
pub(super) fn print_example() {
    say(example().trim_end());
}

/// The effective configuration.
pub(super) fn print(loaded: &Loaded) {
    say(loaded.to_toml().trim_end());
    if !loaded.config.agents.is_empty() {
        return;
    }
    say("\n# No agents are configured; without any there are:");
    for agent in offered(&loaded.config, &loaded.environment) {
        let agent = agent.agent();
        let model = agent.model.unwrap_or_else(|| format!("the server's first model, else {DEFAULT_MODEL}"));
        say(&format!("#   {} ({}, {model})", agent.name, agent.engine));
    }
}
