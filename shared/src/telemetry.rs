//! Logs: one line an event, to standard error.

use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// The `[log]` section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What to log, as `level` or `target=level,…`.
    pub filter: String,
    /// How to write it.
    pub format: Format,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self { filter: "info,sqlx=warn,apalis=warn".to_owned(), format: Format::Text }
    }
}

/// Sends all log events of this process to standard error from now on.
///
/// # Errors
/// The filter cannot be read; the text says where.
pub fn init(settings: &Settings) -> Result<(), String> {
    let filter = EnvFilter::try_new(&settings.filter).map_err(|error| error.to_string())?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let done = match settings.format {
        Format::Text => lines.with_target(false).try_init(),
        Format::Json => lines.json().flatten_event(true).try_init(),
    };
    done.map_err(|error| error.to_string())
}
