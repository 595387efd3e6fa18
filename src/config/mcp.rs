//! The MCP servers of an agent: one `NAME = { command = […] }` or `NAME = { url = "…" }` each.

use std::collections::BTreeMap;

use roundhouse_engines::{mcp, openai};
use roundhouse_shared::secret::Secret;
use serde::{Deserialize, Serialize};

/// How one server is reached: `command` with `env`, or `url` with `headers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct McpSettings {
    /// The program and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<Vec<String>>,
    /// Variables for the program.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, Secret>,
    /// Where a server is that others run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Headers added to each request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, Secret>,
}

impl McpSettings {
    /// The server as the engine wants it, or what is wrong with it.
    pub(crate) fn engine_settings(&self, name: &str) -> Result<mcp::Settings, String> {
        let transport = match (&self.command, &self.url) {
            (Some(_), None) if !self.headers.is_empty() => {
                return Err(format!("`{name}` has `headers` but no `url`"));
            }
            (None, Some(_)) if !self.env.is_empty() => {
                return Err(format!("`{name}` has `env` but no `command`"));
            }
            (Some(command), None) => {
                let (program, args) =
                    command.split_first().ok_or(format!("`{name}` has an empty `command`"))?;
                mcp::Transport::Command {
                    program: program.clone(),
                    args: args.to_vec(),
                    cwd: ".".into(),
                    environment: secrets(&self.env),
                }
            }
            (None, Some(url)) => mcp::Transport::Http { url: url.clone(), headers: secrets(&self.headers) },
            (Some(_), Some(_)) => return Err(format!("`{name}` has both `command` and `url`")),
            (None, None) => return Err(format!("`{name}` has neither `command` nor `url`")),
        };
        let settings = mcp::Settings::new(name, transport);
        settings.check().map_err(|error| error.to_string())?;
        Ok(settings)
    }
}

fn secrets(table: &BTreeMap<String, Secret>) -> BTreeMap<String, openai::Secret> {
    table.iter().map(|(name, value)| (name.clone(), value.reveal().into())).collect()
}
