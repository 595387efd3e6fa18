//! Agents: named configurations, and what runs their turns.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::code::Code;

/// What runs an agent's turns. Data only: the trait of that name lives with the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub enum EngineKind {
    /// A loop over any OpenAI-compatible model.
    #[serde(rename = "openai")]
    OpenAi,
    /// Claude Code, the `claude` command.
    #[serde(rename = "claude-cli")]
    ClaudeCli,
}

impl EngineKind {
    /// The name in the API, the configuration and the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::ClaudeCli => "claude-cli",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "openai" => Some(Self::OpenAi),
            "claude-cli" => Some(Self::ClaudeCli),
            _ => None,
        }
    }

    /// Whether the engine keeps conversations of its own. The others are shown the stored messages with every turn.
    pub const fn keeps_conversations(self) -> bool {
        match self {
            Self::OpenAi => false,
            Self::ClaudeCli => true,
        }
    }

    /// What a client is told where the engine could not copy its own conversation.
    pub const fn fork_failed(self) -> Code {
        match self {
            Self::ClaudeCli => Code::ClaudeForkFailed,
            Self::OpenAi => Code::EngineForkFailed,
        }
    }

    /// The name under which messages carry their anchor (`engineMetadata`), for engines that have such.
    pub const fn anchor_key(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => None,
            Self::ClaudeCli => Some("claude_uuid"),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An agent as everybody may see it: no secrets, no instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The name in routes and in the configuration.
    pub name: String,
    /// What runs its turns.
    pub engine: EngineKind,
    /// The model it uses unless a session or a message names another.
    pub model: Option<String>,
    /// A demonstration that answers by rule, not by a model.
    pub demo: bool,
}

/// An agent together with whether one worker can run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The agent.
    #[serde(flatten)]
    pub agent: Agent,
    /// Whether it can run turns now.
    pub available: bool,
    /// Why not, where it cannot.
    pub reason: Option<String>,
    /// Tools that it is configured with and that its model is not offered, as of its last turn.
    #[serde(default)]
    pub left_out_tools: Vec<LeftOutTool>,
}

/// A tool that a model is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOutTool {
    /// The MCP server that has it.
    pub server: String,
    /// Its name there.
    pub tool: String,
    /// Why it is not offered.
    pub reason: String,
}
