//! The real CLI, driven line by line.

use std::time::Duration;

use roundhouse_engines::contract::Native;
use roundhouse_engines::process::{ChildStdin, Environment, Output, Process, Spec, Stdin};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};

use crate::place::{Place, new_id};

/// Longer than anything here takes: a test that waits for it has failed.
pub(crate) const TOO_LONG: Duration = Duration::from_mins(2);

/// Whether tools may run is not tested here: all run.
const OPTIONS: [&str; 16] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--replay-user-messages",
    "--model",
    "claude-opus-5-5",
    "--permission-mode",
    "bypassPermissions",
    "--system-prompt-snapshot",
    "off",
    "--setting-sources",
    // For the skill that starts a sub-agent.
    "project",
    "--strict-mcp-config",
];

/// A running CLI. Dropping it kills it and all that it has started, as a crash of the host would.
pub(crate) struct Cli {
    process: Process,
    stdin: ChildStdin,
    lines: Lines<BufReader<Output>>,
    /// The newest message of the model.
    anchor: String,
}

/// What a turn came to.
pub(crate) struct Turn {
    /// The message's id.
    pub(crate) id: String,
    pub(crate) answer: String,
    /// The message of the model that is the answer.
    pub(crate) anchor: String,
    /// The total that the CLI says it has cost so far.
    pub(crate) total_cost: f64,
}

impl Cli {
    /// Starts a new session, or goes on with it where it is there already.
    pub(crate) fn open(place: &Place, native: &Native, model: &str) -> Self {
        let is_there = place.transcripts().exists(native);
        let session = if is_there { "--resume" } else { "--session-id" };
        let mut spec = Spec::new(program(), &native.cwd);
        spec.args = OPTIONS.into_iter().chain([session, &native.id]).map(Into::into).collect();
        spec.stdin = Stdin::Piped;
        let config = place.config();
        let on = [
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_TELEMETRY",
            "DISABLE_AUTOUPDATER",
            "IS_SANDBOX",
        ];
        let mut set: Vec<_> = on.into_iter().map(|name| (name.into(), "1".into())).collect();
        set.extend([
            ("CLAUDE_CONFIG_DIR".into(), config.clone().into_os_string()),
            ("HOME".into(), config.into_os_string()),
            ("ANTHROPIC_API_KEY".into(), "none".into()),
            ("ANTHROPIC_BASE_URL".into(), model.into()),
            ("CLAUDE_CODE_MAX_RETRIES".into(), "0".into()),
        ]);
        spec.environment = Environment { pass: Vec::new(), set };
        let mut process = Process::spawn(spec).unwrap();
        let stdin = process.take_stdin().unwrap();
        let lines = BufReader::new(process.take_output().unwrap()).lines();
        Self { process, stdin, lines, anchor: String::new() }
    }

    pub(crate) async fn write(&mut self, line: &Value) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Sends a message and gives its id.
    pub(crate) async fn say(&mut self, text: &str) -> String {
        let id = new_id();
        let message = json!({"role": "user", "content": text});
        self.write(&json!({"type": "user", "uuid": id, "message": message, "priority": "next"})).await;
        id
    }

    /// Reads to the first line of which that is true.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = tokio::time::timeout(TOO_LONG, self.lines.next_line()).await.expect("a line in time");
            let Some(line) = line.unwrap() else {
                panic!("the CLI has ended: {}", self.process.stderr_tail());
            };
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["type"] == "assistant" && line["parent_tool_use_id"].is_null() {
                line["uuid"].as_str().unwrap().clone_into(&mut self.anchor);
            }
            if is_it(&line) {
                return line;
            }
        }
    }

    pub(crate) async fn started(&mut self, id: &str) {
        self.until(|line| line["command_uuid"] == id && line["state"] == "started").await;
    }

    pub(crate) async fn result(&mut self) -> Value {
        self.until(|line| line["type"] == "result").await
    }

    pub(crate) async fn queued(&mut self, id: &str) {
        self.until(|line| line["command_uuid"] == id && line["state"] == "queued").await;
    }

    /// The model has called a tool.
    pub(crate) async fn called(&mut self) {
        self.until(|line| line["type"] == "assistant" && line["message"]["content"][0]["type"] == "tool_use")
            .await;
    }

    /// One whole turn.
    pub(crate) async fn turn(&mut self, text: &str) -> Turn {
        let id = self.say(text).await;
        self.end(id).await
    }

    /// The rest of the turn of that message.
    pub(crate) async fn end(&mut self, id: String) -> Turn {
        let result = self.result().await;
        Turn {
            id,
            answer: result["result"].as_str().unwrap_or_default().to_owned(),
            anchor: self.anchor.clone(),
            total_cost: result["total_cost_usd"].as_f64().unwrap(),
        }
    }

    pub(crate) async fn interrupt(&mut self) {
        let request = json!({"subtype": "interrupt", "cancel_queued": true});
        self.write(&json!({"type": "control_request", "request_id": "r", "request": request})).await;
        self.result().await;
    }

    /// Kills it, and what it has started, at once.
    pub(crate) async fn kill(mut self) {
        self.process.end(Duration::ZERO).await;
    }

    /// Ends it in order: its transcript is complete then.
    pub(crate) async fn close(mut self) {
        drop(self.stdin);
        while let Ok(Ok(Some(_))) = tokio::time::timeout(TOO_LONG, self.lines.next_line()).await {}
        tokio::time::timeout(TOO_LONG, self.process.wait()).await.expect("an end in time").unwrap();
        self.process.end(Duration::ZERO).await;
    }
}

/// Goes on with a session and asks for one thing.
pub(crate) async fn ask(place: &Place, native: &Native, model: &str, question: &str) -> String {
    let mut cli = Cli::open(place, native, model);
    let turn = cli.turn(question).await;
    cli.close().await;
    turn.answer
}

fn program() -> String {
    variable("ROUNDHOUSE_TEST_CLAUDE")
}

/// What `cargo xtask` has installed for the tests.
pub(crate) fn variable(name: &str) -> String {
    let value = std::env::var_os(name).unwrap_or_else(|| {
        panic!("{name} is not set: run the tests with `cargo xtask test`, or below `cargo xtask services --`")
    });
    value.into_string().unwrap()
}
