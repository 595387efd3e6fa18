//! What is known of tools by their names: ours, and those of Claude Code 2.1.332.

use std::borrow::Cow;

use serde_json::Value;

/// Our shell.
pub(super) const SHELL: &str = "shell";

/// Tools that run a command.
const SHELLS: [&str; 4] = [SHELL, "Bash", "Monitor", "PowerShell"];

/// The shells whose rules are about every shell.
const ANY_SHELL: [&str; 2] = [SHELL, "Bash"];

/// Members of a call in which a tool that is no shell may carry a command.
const CARRIERS: [&str; 7] =
    ["command", "cmd", "commands", "script", "shell_command", "command_line", "commandLine"];

const READING: [&str; 8] =
    ["read_file", "list_files", "search_files", "Read", "NotebookRead", "Grep", "Glob", "LS"];
const WRITING: [&str; 6] = ["write_file", "edit_file", "Write", "Edit", "MultiEdit", "NotebookEdit"];

/// Reading tools that go through all that is below a path.
const WALKING: [&str; 5] = ["list_files", "search_files", "Grep", "Glob", "LS"];

/// Names that mean the same to rules: the first covers the second.
const COVERING: [(&str, &str); 14] = [
    ("read_file", "Read"),
    ("Read", "read_file"),
    ("Read", "NotebookRead"),
    ("read_file", "NotebookRead"),
    ("write_file", "Write"),
    ("Write", "write_file"),
    ("edit_file", "Edit"),
    ("Edit", "edit_file"),
    ("edit_file", "MultiEdit"),
    ("edit_file", "NotebookEdit"),
    ("search_files", "Grep"),
    ("Grep", "search_files"),
    ("list_files", "Glob"),
    ("list_files", "LS"),
];

/// Further tools whose calls do nothing that rules would have to foresee: what they start asks by itself.
const OTHERS: [&str; 24] = [
    "ask_user",
    "spawn_agent",
    "Agent",
    "Task",
    "AskUserQuestion",
    "EnterPlanMode",
    "ExitPlanMode",
    "ToolSearch",
    "TodoWrite",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskUpdate",
    "TaskOutput",
    "TaskStop",
    "BashOutput",
    "KillShell",
    "CronDelete",
    "CronList",
    "ReportFindings",
    "StructuredOutput",
    "WebFetch",
    "WebSearch",
    "ExitWorktree",
];

/// What marks the tools of an MCP server.
const SERVER: &str = "__";

pub(super) fn is_shell(tool: &str) -> bool {
    SHELLS.contains(&tool)
}

pub(super) fn is_file_tool(tool: &str) -> bool {
    READING.contains(&tool) || WRITING.contains(&tool)
}

pub(super) fn writes(tool: &str) -> bool {
    WRITING.contains(&tool)
}

pub(super) fn walks(tool: &str) -> bool {
    WALKING.contains(&tool)
}

/// Whether it is known what a tool does. Not known are those that run code of their own (`Workflow`, `Skill`), have a prompt
/// run later (`CronCreate`, `ScheduleWakeup`), run git (`EnterWorktree`), or come with another release.
pub(super) fn is_known(tool: &str) -> bool {
    is_shell(tool) || is_file_tool(tool) || OTHERS.contains(&tool) || tool.contains(SERVER)
}

/// The name without what Claude Code puts before the names of a server's tools.
pub(super) fn plain(tool: &str) -> &str {
    tool.strip_prefix("mcp__").unwrap_or(tool)
}

/// Whether a rule with this name is about a tool of another name.
pub(super) fn covers(name: &str, tool: &str) -> bool {
    (ANY_SHELL.contains(&name) && is_shell(tool)) || COVERING.contains(&(name, tool))
}

/// The names of all tools that a rule with this name is about.
pub(super) fn same(name: &str) -> impl Iterator<Item = &str> {
    let others = SHELLS.into_iter().chain(COVERING.into_iter().map(|(_, tool)| tool));
    let mut named: Vec<&str> = others.filter(|tool| covers(name, tool)).collect();
    named.push(name);
    named.sort_unstable();
    named.dedup();
    named.into_iter()
}

/// Whether both read, or both write.
pub(super) fn does_the_same(one: &str, other: &str) -> bool {
    (READING.contains(&one) && READING.contains(&other))
        || (WRITING.contains(&one) && WRITING.contains(&other))
}

/// The command in a call.
pub(super) fn command(input: &Value) -> Option<Cow<'_, str>> {
    CARRIERS.iter().find_map(|name| match input.get(name)? {
        Value::String(command) => Some(Cow::from(command.as_str())),
        Value::Array(words) => {
            let words: Vec<_> = words.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| Cow::from(words.join(" ")))
        }
        _ => None,
    })
}
