//! Tools for engines that run their own loop, and where they come from ([`ToolSource`]).
//!
//! The built-in ones ([`Builtins`]) work in the session's workspace, its working directory. File tools cannot leave
//! it: every path is opened below the workspace's directory handle, so neither `..` nor a symbolic link leads out,
//! not even one that is put there meanwhile. `shell` starts in the workspace and leaves no process behind, but what
//! a command may read and write is up to the user that we run as.
//!
//! A tool that fails has an outcome with a text that the model can act on. It never fails the turn.

mod bounded;
mod diff;
mod edit_file;
mod files;
mod glob;
mod input;
mod lines;
mod list_files;
mod live;
mod read_file;
mod search_files;
mod shell;
mod text;
mod walk;
mod workspace;
mod write_file;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::process::Environment;

/// Where tools come from: the built-ins, or an MCP server.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// What can be called.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Calls a tool. Whatever goes wrong is in the outcome.
    async fn call(&self, name: &str, input: Value, context: &ToolContext) -> ToolOutcome;
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

/// What a call gets from the turn that makes it.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The session's workspace.
    pub cwd: PathBuf,
    /// For whom the call runs, such as a session and its lease's token: what a crash of ours leaves running is ended
    /// by [`kill_leftovers`](crate::process::kill_leftovers) with this name.
    pub owner: Option<String>,
    /// Takes the output while the tool runs. A view, not the result: what nobody takes in time is left out and said
    /// to be.
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

/// How the built-in tools behave.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What commands find in their environment beyond the allow-list.
    pub environment: Environment,
    /// How long a command may run that asks for no time of its own.
    pub shell_timeout: Duration,
    /// The most that a command may ask for.
    pub shell_timeout_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            environment: Environment::default(),
            shell_timeout: Duration::from_mins(2),
            shell_timeout_max: Duration::from_mins(10),
        }
    }
}

/// An agent's configuration names a tool that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no built-in tool `{0}`: there are {list}", list = names().join(", "))]
pub struct UnknownTool(pub String);

/// The built-in tools that an agent may use. Cheap to share; holds no session's state.
#[derive(Debug, Clone)]
pub struct Builtins {
    tools: Vec<Tool>,
    settings: Settings,
}

impl Builtins {
    /// The tools of these names. With no names there are none.
    pub fn new(names: &[String], settings: Settings) -> Result<Self, UnknownTool> {
        let named = |name: &String| {
            Tool::ALL.into_iter().find(|tool| tool.name() == name).ok_or(UnknownTool(name.clone()))
        };
        let mut tools = names.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        // In an order that does not hang on the configuration's: prompt caches like it.
        tools.sort_unstable();
        tools.dedup();
        Ok(Self { tools, settings })
    }
}

/// The names of all built-in tools.
pub fn names() -> Vec<&'static str> {
    Tool::ALL.iter().map(|tool| tool.name()).collect()
}

#[async_trait]
impl ToolSource for Builtins {
    fn tools(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| tool.spec(&self.settings)).collect()
    }

    async fn call(&self, name: &str, input: Value, context: &ToolContext) -> ToolOutcome {
        let Some(tool) = self.tools.iter().find(|tool| tool.name() == name) else {
            let offered: Vec<_> = self.tools.iter().map(|tool| tool.name()).collect();
            return ToolOutcome::failure(format!(
                "There is no tool `{name}`. There are: {}.",
                offered.join(", ")
            ));
        };
        if context.cancel.is_cancelled() {
            return ToolOutcome::failure("The call was cancelled before it began.");
        }
        match tool {
            Tool::EditFile => files::call(input, context, edit_file::run).await,
            Tool::ListFiles => files::call(input, context, list_files::run).await,
            Tool::ReadFile => files::call(input, context, read_file::run).await,
            Tool::SearchFiles => files::call(input, context, search_files::run).await,
            Tool::Shell => shell::call(input, context, &self.settings).await,
            Tool::WriteFile => files::call(input, context, write_file::run).await,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tool {
    EditFile,
    ListFiles,
    ReadFile,
    SearchFiles,
    Shell,
    WriteFile,
}

impl Tool {
    const ALL: [Self; 6] =
        [Self::EditFile, Self::ListFiles, Self::ReadFile, Self::SearchFiles, Self::Shell, Self::WriteFile];

    const fn name(self) -> &'static str {
        match self {
            Self::EditFile => "edit_file",
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::SearchFiles => "search_files",
            Self::Shell => "shell",
            Self::WriteFile => "write_file",
        }
    }

    fn spec(self, settings: &Settings) -> ToolSpec {
        let (description, input_schema) = match self {
            Self::EditFile => edit_file::describe(),
            Self::ListFiles => list_files::describe(),
            Self::ReadFile => read_file::describe(),
            Self::SearchFiles => search_files::describe(),
            Self::Shell => shell::describe(settings),
            Self::WriteFile => write_file::describe(),
        };
        ToolSpec { name: self.name().to_owned(), description, input_schema }
    }
}
