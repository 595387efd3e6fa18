//! How the CLI is started: its arguments and its environment.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::proxy::Proxy;
use super::settings::Settings;
use super::transcript::TEMPORARY;
use crate::contract::OpenSession;
use crate::mcp::{self, Transport};
use crate::permissions::Permissions;
use crate::process::{Environment, Spec, Stdin};

/// Never offered: by these, processes that share a configuration folder see one another and talk.
const NEVER: [&str; 2] = ["ListAgents", "SendMessage"];

/// The mode in which the CLI makes a plan first.
const PLAN: &str = "plan";

/// Told to every process. See the CLI's documentation on its environment.
const ENVIRONMENT: [(&str, &str); 6] = [
    // Notes in files of its own would survive every trim, fork and reset: what is displayed is what it remembers.
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1"),
];

/// What a process finds of its native session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// Nothing.
    New,
    /// A transcript of ours ([`transcript::Transcripts::seed`](super::transcript::Transcripts::seed)).
    Seeded,
    /// A transcript of the CLI's.
    Resumed,
}

/// What is to be started for a session. `id` is its native one's, `mcp` the path of an [`McpFile`].
pub(super) fn spec(
    settings: &Settings,
    session: &OpenSession,
    id: &str,
    begins: Begins,
    mcp: Option<PathBuf>,
    proxy: Option<&Proxy>,
) -> Spec {
    let (program, before) =
        settings.command.split_first().map_or(("claude", &[][..]), |(first, rest)| (first, rest));
    let mut spec = Spec::new(program, &session.cwd);
    spec.args =
        before.iter().map(OsString::from).chain(arguments(settings, session, id, begins, mcp)).collect();
    spec.environment = environment(settings, proxy);
    spec.owner = Some(session.owner.clone().unwrap_or_else(|| session.session.clone()));
    spec.stdin = Stdin::Piped;
    spec
}

fn arguments(
    settings: &Settings,
    session: &OpenSession,
    id: &str,
    begins: Begins,
    mcp: Option<PathBuf>,
) -> Vec<OsString> {
    let mut args = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    add(&["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]);
    add(&["--permission-prompt-tool", "stdio", "--include-partial-messages", "--replay-user-messages"]);
    // The instructions of today, not those that the conversation began with.
    add(&["--system-prompt-snapshot", "off"]);
    add(&[if begins == Begins::New { "--session-id" } else { "--resume" }, id]);
    if let Some(model) = session.model.as_deref().or(settings.model.as_deref()) {
        add(&["--model", model]);
    }
    let mut mode = settings.permission_mode.as_deref().unwrap_or("default");
    if begins == Begins::Resumed {
        // The CLI has kept whether it plans; the argument would have a plan made anew that was approved, or end one that the
        // model has begun by itself.
        mode = if mode == PLAN { "default" } else { mode };
    } else {
        add(&["--permission-mode", mode]);
    }
    // It asks us about each call of each tool, also of those that it thinks harmless.
    let always = json!({"permissions": {"ask": ["*"], "defaultMode": mode}}).to_string();
    add(&["--setting-sources", &settings.setting_sources.join(","), "--settings", &always]);
    if let Some(tools) = &settings.tools {
        add(&["--tools", &tools.join(",")]);
    }
    if let Some(most) = settings.max_iterations {
        add(&["--max-turns", &most.to_string()]);
    }
    add(&["--strict-mcp-config"]);
    let above = session.above.iter().flat_map(Permissions::never);
    let hidden: Vec<_> = NEVER.into_iter().chain(settings.permissions.never()).chain(above).collect();
    add(&["--disallowedTools", &hidden.join(",")]);
    if let Some(file) = mcp {
        args.extend(["--mcp-config".into(), file.into()]);
    }
    args
}

fn environment(settings: &Settings, proxy: Option<&Proxy>) -> Environment {
    let ours = ENVIRONMENT.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let mut set: Vec<_> = ours.into_iter().collect();
    set.push(("CLAUDE_CODE_MAX_RETRIES".into(), settings.max_retries.to_string().into()));
    set.extend(settings.env.iter().map(|(name, value)| (name.into(), value.reveal().into())));
    if let Some(proxy) = proxy {
        proxy.replaces(&mut set);
    }
    set.push(("CLAUDE_CONFIG_DIR".into(), settings.config_dir.clone().into()));
    // Where the output of background commands is found again, to be deleted with their session.
    set.push(("CLAUDE_CODE_TMPDIR".into(), settings.config_dir.join(TEMPORARY).into()));
    Environment { pass: Vec::new(), set }.with_safe_git()
}

/// A file with the MCP servers of one process, keys included; deleted with this.
pub(super) struct McpFile(PathBuf);

impl McpFile {
    /// Writes the servers where only we can read them: their keys must not stand in a command line. Blocks.
    pub(super) fn write(settings: &Settings) -> io::Result<Option<Self>> {
        if settings.mcp.is_empty() {
            return Ok(None);
        }
        let servers: Map<_, _> =
            settings.mcp.iter().map(|server| (server.name.clone(), mcp_server(server))).collect();
        let content = json!({"mcpServers": servers}).to_string();
        fs::create_dir_all(&settings.config_dir)?;
        let file = Self(settings.config_dir.join(format!("mcp-{}.json", uuid::Uuid::now_v7().simple())));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&file.0)?.write_all(content.as_bytes())?;
        Ok(Some(file))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.clone()
    }
}

impl Drop for McpFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.0.display(), %error, "a file with the keys of MCP servers is left");
        }
    }
}

fn mcp_server(server: &mcp::Settings) -> Value {
    let revealed =
        |secrets: &std::collections::BTreeMap<String, crate::openai::Secret>| -> Map<String, Value> {
            secrets.iter().map(|(name, value)| (name.clone(), value.reveal().into())).collect()
        };
    match &server.transport {
        Transport::Command { program, args, environment, .. } => {
            json!({"type": "stdio", "command": program, "args": args, "env": revealed(environment)})
        }
        Transport::Http { url, headers } => json!({"type": "http", "url": url, "headers": revealed(headers)}),
    }
}
