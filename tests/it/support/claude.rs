//! Agents that Claude Code runs, or a program in its place; and the transcripts of its native sessions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::services::claude;
use super::{Deployment, Options, text};

/// Stands for the oracle's address in the configuration of agents ([`Options::agents`]).
pub(crate) const ORACLE: &str = "$ORACLE";

/// An agent that this program runs, with its model at `provider`.
pub(crate) fn cli_agent(name: &str, program: &str, provider: &str, more: &str) -> String {
    format!(
        "[agents.{name}]\nengine = \"claude-cli\"\ncommand = [\"{program}\"]\nmodel = \"opus\"\n{more}\n\
         env.ANTHROPIC_BASE_URL = \"{provider}\"\nenv.ANTHROPIC_API_KEY = \"test\"\n"
    )
}

/// An agent that Claude Code runs, on the oracle.
pub(crate) fn claude_agent(name: &str, more: &str) -> String {
    cli_agent(name, &claude(), ORACLE, more)
}

/// The agents of every test with Claude Code: `claude` uses tools unasked, `claude-asking` asks before it uses a shell,
/// `claude-commands` obeys commands such as `/compact`, `claude-planning` has its plans approved.
pub(super) fn claude_agents(options: &Options) -> String {
    if !options.claude {
        return String::new();
    }
    claude_agent("claude", "permissions = { default = \"allow\" }")
        + &claude_agent("claude-asking", "permissions = { default = \"allow\", ask = [\"Bash\"] }")
        + &claude_agent("claude-commands", "permissions = { default = \"allow\" }\nslash_commands = true")
        // Else the tool for plans would have to be searched for first.
        + &claude_agent("claude-planning", "permission_mode = \"plan\"\nenv.ENABLE_TOOL_SEARCH = \"false\"")
}

/// A program in the place of Claude Code, which says which version it is and otherwise does this, as a shell does it.
pub(crate) fn program(dir: &Path, name: &str, version: &str, does: &str) -> String {
    let path = dir.join(name);
    let script = format!(
        "#!/bin/bash\ncase \" $* \" in *\" --version \"*) echo '{version} (Claude Code)'; exit;; esac\n{does}\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

impl Deployment {
    /// The id of a session's native session, which it has.
    pub(crate) async fn native_of(&self, session: &str) -> String {
        let native = text(&self.client().session(session).await["nativeSessionId"]);
        assert!(!native.is_empty(), "{session} has no native session");
        native
    }

    /// What a transcript has, entry by entry. A line that is just being written is none yet.
    pub(crate) fn entries(&self, native: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.transcript(native)).unwrap();
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
