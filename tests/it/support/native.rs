//! Claude Code's own conversations: their files, their processes, and what the model is shown of them.

use std::fs;
use std::path::{Path, PathBuf};

use roundhouse_oracle::{Protocol, RecordedRequest};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use super::{Client, Deployment, Kind, text, until};

/// What stands for a result that a cut has taken away, here and there.
const LOST: &str = "(lost)";
/// Before a message that came while a tool ran.
const QUOTE: &str = "The user sent a new message while you were working:";
/// Behind it.
const ADVICE: &str = "\n\nThis is how Claude Code surfaces messages";
/// What the CLI puts where a conversation was cut off.
const PLACEHOLDER: &str = "No response requested.";

impl Deployment {
    /// The configuration folder of all Claude Codes.
    pub(crate) fn claude_dir(&self) -> PathBuf {
        Path::new(self.variable("ROUNDHOUSE_DATA_DIR")).join("claude")
    }

    /// All files and folders that are named after a native session.
    pub(crate) fn files_of(&self, native: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(&self.claude_dir(), &mut found);
        let is_its = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().split('.').next() == Some(native))
        };
        found.retain(is_its);
        found
    }

    /// The transcript of a native session, which is there.
    pub(crate) fn transcript(&self, native: &str) -> PathBuf {
        self.find_transcript(native).unwrap_or_else(|| panic!("no transcript of {native}"))
    }

    /// The transcript of a native session, once there is one.
    pub(super) fn find_transcript(&self, native: &str) -> Option<PathBuf> {
        self.files_of(native).into_iter().find(|path| path.extension().is_some_and(|end| end == "jsonl"))
    }

    /// Waits until nothing of a native session is left, neither a file nor a process.
    pub(crate) async fn forgotten(&self, native: &str) {
        until("a native session to be gone", async || {
            (self.files_of(native).is_empty() && processes_of(native).is_empty()).then_some(())
        })
        .await;
    }

    /// Changes rows behind everybody's back.
    pub(crate) async fn sql(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        if matches!(self.kind, Kind::Embedded | Kind::EmbeddedRedis) {
            sqlx::raw_sql(sql).execute(&mut self.sqlite().await).await.unwrap();
        } else {
            sqlx::raw_sql(sql).execute(&mut self.database().connection().await).await.unwrap();
        }
    }

    /// Asks an agent what X is. What the model was shown for it is what is displayed.
    pub(crate) async fn recalls(&self, client: &Client, agent: &str, session: &str) -> String {
        let answer = client.says(agent, session, "what is x").await;
        let displayed = self.displayed_before_its_answer(client, session).await;
        assert_eq!(self.shown_last(), displayed, "what the model is shown is what is displayed");
        answer.lines().last().unwrap_or_default().to_owned()
    }

    /// The messages of a session without the last, as lines: those of people and of the model that say something, and
    /// results, where the model is shown them.
    pub(crate) async fn displayed_before_its_answer(&self, client: &Client, session: &str) -> Vec<String> {
        let messages = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
        let (_, before) = messages.split_last().expect("an answer");
        joined(displayed(before))
    }

    /// How many rows a table has.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        if matches!(self.kind, Kind::Embedded | Kind::EmbeddedRedis) {
            sqlx::query_scalar(sql).fetch_one(&mut self.sqlite().await).await.unwrap()
        } else {
            sqlx::query_scalar(sql).fetch_one(&mut self.database().connection().await).await.unwrap()
        }
    }

    /// The native sessions that have a transcript.
    pub(crate) fn transcripts(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.claude_dir().join("projects"), &mut found);
        let name = |path: &PathBuf| {
            path.file_name()?
                .to_str()?
                .strip_suffix(".jsonl")
                .filter(|name| name.len() == 36)
                .map(str::to_owned)
        };
        found.iter().filter_map(name).collect()
    }

    async fn sqlite(&self) -> SqliteConnection {
        let file = Path::new(self.variable("ROUNDHOUSE_DATA_DIR")).join("roundhouse.db");
        SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.unwrap()
    }

    /// What the model was shown in the last request, in the same form.
    pub(crate) fn shown_last(&self) -> Vec<String> {
        let requests = self.oracle.requests();
        let last = requests.iter().rfind(|request| request.protocol != Protocol::CountTokens);
        joined(shown(last.expect("a request")))
    }
}

fn displayed(messages: &[Value]) -> Vec<String> {
    let (mut lines, mut meanwhile, mut open) = (Vec::new(), Vec::new(), 0);
    for message in messages {
        let (role, content) = (text(&message["role"]), text(&message["content"]));
        match &*role {
            // Nothing stands between a call and its result.
            "user" if 0 < open => meanwhile.push(line("user", &content)),
            "tool" => {
                lines.push(line("tool", &content));
                open -= 1;
            }
            role => {
                lines.extend((!content.is_empty()).then(|| line(role, &content)));
                open += message["toolCalls"].as_array().map_or(0, Vec::len);
            }
        }
        if open == 0 {
            lines.append(&mut meanwhile);
        }
    }
    lines
}

fn shown(request: &RecordedRequest) -> Vec<String> {
    let body = request.json();
    let messages = body["messages"].as_array().expect("messages");
    messages.iter().flat_map(|message| said(&text(&message["role"]), &message["content"])).collect()
}

fn said(role: &str, content: &Value) -> Vec<String> {
    let parts = match content {
        Value::Array(parts) => parts.clone(),
        content => vec![serde_json::json!({ "type": "text", "text": content })],
    };
    let mut lines = Vec::new();
    for part in &parts {
        match part["type"].as_str() {
            Some("tool_result") => {
                let texts = said("tool", &part["content"]).concat();
                let (result, behind) = texts.split_once("<system-reminder>").unwrap_or((&texts, ""));
                lines.push(line("tool", result.trim_start_matches("tool: ")));
                lines.extend(quoted(behind));
            }
            Some("text") => {
                let text = text(&part["text"]);
                let ours = matches!(role, "user" | "assistant" | "tool")
                    && !text.trim_start().starts_with("<system-reminder>")
                    && !text.contains(QUOTE)
                    && text != PLACEHOLDER
                    && !text.is_empty();
                lines.extend(if ours { Some(line(role, &text)) } else { quoted(&text) });
            }
            _ => {}
        }
    }
    lines
}

/// The message that a text of the CLI quotes.
fn quoted(text: &str) -> Option<String> {
    let (_, message) = text.split_once(QUOTE)?;
    let message = message.split(ADVICE).next()?.split("</system-reminder>").next()?;
    Some(line("user", message.trim()))
}

fn line(role: &str, content: &str) -> String {
    let lost = role == "tool" && content.to_lowercase().contains("interrupted:");
    format!("{role}: {}", if lost { LOST } else { content.trim() })
}

/// Messages of people that follow one another reach the model as one.
fn joined(lines: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for line in lines {
        match (joined.last_mut(), line.strip_prefix("user: ")) {
            (Some(last), Some(more)) if last.starts_with("user: ") => *last = format!("{last}\n\n{more}"),
            _ => joined.push(line),
        }
    }
    joined
}

/// The processes that have a native session open.
pub(crate) fn processes_of(native: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let has_it = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == native.as_bytes()))
    };
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).filter(has_it).collect()
}

/// The native session of a session, which has one.
pub(crate) async fn native_of(client: &Client, session: &str) -> String {
    let native = text(&client.session(session).await["nativeSessionId"]);
    assert!(!native.is_empty());
    native
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        }
        found.push(path);
    }
}
