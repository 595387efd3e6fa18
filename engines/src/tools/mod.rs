//! Tools for engines that run their own loop, and where they come from ([`ToolSource`]).
//!
//! The built-in ones ([`Builtins`]) work in the session's workspace, its working directory. File tools cannot leave
//! it: every path is opened below the workspace's directory handle, so neither `..` nor a symbolic link leads out,
//! not even one that is put there meanwhile. `shell` starts in the workspace and leaves no process behind, but what
//! a command may read and write is up to the user that we run as.
//!
//! A tool that fails has an outcome with a text that the model can act on. It never fails the turn.

pub(crate) mod bounded;
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
mod source;
pub(crate) mod text;
mod walk;
mod workspace;
mod write_file;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::process::Environment;

pub use source::{LeftOut, ToolContext, ToolOutcome, ToolSource, ToolSpec};

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

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.tools.is_empty()
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
