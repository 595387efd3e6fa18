//! Where tools come from.

use std::fmt;
use std::path::PathBuf;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Where tools come from: the built-ins, or an MCP server.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// What can be called. Asked once a turn, after [`prepare`](Self::prepare).
    fn tools(&self) -> Vec<ToolSpec>;

    /// What it has and does not offer, as of the last time that it got ready.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Gets ready for a turn, within a deadline of its own. A source that cannot has no tools, or tools that say so.
    async fn prepare(&self) {}

    /// Whether its tools work in the session's workspace.
    fn works_on_files(&self) -> bool {
        true
    }

    /// Calls a tool. Whatever goes wrong is in the outcome. Dropping the future ends the call and all that it started.
    async fn call(&self, name: &str, input: Value, context: &ToolContext) -> ToolOutcome;
}

impl fmt::Debug for dyn ToolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools().iter().map(|tool| &tool.name)).finish()
    }
}

/// A tool, as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name, unique among the tools of an agent.
    pub name: String,
    /// What it does and when it fails, for the model.
    pub description: String,
    /// JSON Schema of its input.
    pub input_schema: Value,
}

/// A tool that is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The source that has it.
    pub source: String,
    /// Its name there.
    pub tool: String,
    /// Why it is not offered.
    pub reason: String,
}

/// What a call gets from the turn that makes it.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The session's workspace.
    pub cwd: PathBuf,
    /// For whom the call runs: the name by which what a crash of ours leaves running is found.
    pub owner: Option<String>,
    /// Takes the output while the tool runs. A view, not the result: what nobody takes in time may be left out.
    pub output: mpsc::Sender<String>,
    /// Ends the call at once, and all that it has started.
    pub cancel: CancellationToken,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// Whether the tool did what it was asked to do.
    pub success: bool,
    /// The result for the model, of bounded length: what was cut is said.
    pub text: String,
}

impl ToolOutcome {
    /// The tool did it.
    pub fn success(text: impl Into<String>) -> Self {
        Self { success: true, text: text.into() }
    }

    /// The tool did not do it, and why.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { success: false, text: text.into() }
    }
}
