//! A `claude` that says what it is told, for faults that the real one cannot be made to show.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use roundhouse_engines::claude::Settings;
use serde_json::{Value, json};

use crate::host::Host;

/// What it says before it runs the tool of this call.
pub(crate) fn ask(call: &str) -> Value {
    let request = json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "sleep 7"}, "tool_use_id": call});
    json!({"type": "control_request", "request_id": "ask", "request": request})
}

/// What it does once it was sent a message, line by line of a shell.
pub(crate) struct Fake {
    steps: Vec<String>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self { steps: vec![] }
    }

    /// It runs this.
    pub(crate) fn does(mut self, command: &str) -> Self {
        self.steps.push(command.to_owned());
        self
    }

    /// It says this.
    pub(crate) fn says(self, line: &Value) -> Self {
        self.says_text(&line.to_string())
    }

    pub(crate) fn says_text(self, line: &str) -> Self {
        self.does(&format!("printf '%s\\n' '{}'", line.replace('\'', r"'\''")))
    }

    /// It begins with the message that it was sent.
    pub(crate) fn begins(self) -> Self {
        self.does(r#"say '{"type":"command_lifecycle","command_uuid":"UUID","state":"started"}'"#)
    }

    /// It writes a message.
    pub(crate) fn writes(self, text: &str) -> Self {
        let content = json!([{"type": "text", "text": text}]);
        self.says(&json!({
            "type": "assistant", "uuid": "anchor", "parent_tool_use_id": null,
            "message": {"id": "msg_1", "model": "m", "content": content, "usage": null},
        }))
    }

    /// It ends its turn well.
    pub(crate) fn ends(self) -> Self {
        self.does(
            r#"say '{"type":"result","subtype":"success","is_error":false,"result":"hi","num_turns":1,"usage":null,"user_message_uuids":["UUID"]}'"#,
        )
    }

    /// It answers what it is asked from now on, until its input ends.
    pub(crate) fn listens(self) -> Self {
        self.does("cat >/dev/null")
    }

    /// Settings with it as the CLI.
    pub(crate) fn settings(&self, host: &Host) -> Settings {
        // The first line asks whether it is ready; the next user line has the uuid.
        let script = format!(
            r#"#!/bin/bash
say() {{ printf '%s\n' "${{1//UUID/$uuid}}"; }}
while IFS= read -r line; do
  case "$line" in
    *'"initialize"'*) say '{{"type":"control_response","response":{{"subtype":"success","request_id":"initialize","response":{{}}}}}}' ;;
    *'"type":"user"'*) uuid=$(sed -E 's/.*"uuid":"([^"]*)".*/\1/' <<<"$line"); break ;;
  esac
done
{}
"#,
            self.steps.join("\n")
        );
        let path = host.path("claude");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Settings {
            command: vec![path.display().to_string()],
            no_progress: Duration::from_mins(5),
            ..host.settings()
        }
    }
}
