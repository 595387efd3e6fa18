//! What is told of the tools that the agent uses: a short line each.

use std::collections::HashMap;

use serde_json::Value;

use super::{member, text};
use crate::terminal::harmless;

/// The members of a tool's input that tell the most, the best first.
const TELLING: &[&str] = &[
    "command",
    "file_path",
    "path",
    "pattern",
    "query",
    "url",
    "agent",
    "subagent_type",
    "description",
    "question",
];
/// The length of a line, in characters.
const WIDTH: usize = 100;
/// How many lines of a call's output are shown.
const OUTPUT_LINES: usize = 8;
/// The calls whose output is counted at a time; of any more nothing is shown.
const CALLS: usize = 64;

/// The calls that run.
#[derive(Debug, Default)]
pub(super) struct Tools(HashMap<String, Call>);

#[derive(Debug, Default)]
struct Call {
    name: String,
    /// The line that is being written.
    line: String,
    shown: usize,
}

impl Tools {
    /// The line that tells of an event of a tool's start.
    pub(super) fn started(&mut self, event: &Value) -> String {
        let name = line_of(member(event, "name"));
        if let Some(id) = text(event, "toolCallId")
            && self.0.len() < CALLS
        {
            self.0.insert(id, Call { name: name.clone(), ..Call::default() });
        }
        match telling(event.get("input").unwrap_or(&Value::Null)) {
            input if input.is_empty() => name,
            input => format!("{name}: {input}"),
        }
    }

    /// The lines that tell of an event with a tool's output.
    pub(super) fn output(&mut self, event: &Value) -> Vec<String> {
        let Some(call) = self.0.get_mut(member(event, "toolCallId")) else { return Vec::new() };
        let mut lines = Vec::new();
        for piece in member(event, "text").split_inclusive('\n') {
            if OUTPUT_LINES < call.shown {
                break;
            }
            // Of a line that is too long anyway, the rest need not be kept.
            if call.line.chars().count() <= WIDTH {
                call.line.push_str(piece);
            }
            if piece.ends_with('\n') {
                lines.extend(call.end_line());
            }
        }
        lines
    }

    /// The lines that tell of an event of a tool's end.
    pub(super) fn completed(&mut self, event: &Value) -> Vec<String> {
        let call = self.0.remove(member(event, "toolCallId"));
        let mut lines: Vec<_> = call.and_then(|mut call| call.end_line()).into_iter().collect();
        let name = line_of(member(event, "name"));
        lines.push(match event.get("success").and_then(Value::as_bool) {
            Some(true) => format!("{name} is done"),
            _ => format!("{name} failed: {}", line_of(member(event, "result"))),
        });
        lines
    }
}

impl Call {
    fn end_line(&mut self) -> Option<String> {
        let line = line_of(&std::mem::take(&mut self.line));
        if line.is_empty() || OUTPUT_LINES < self.shown {
            return None;
        }
        self.shown += 1;
        Some(format!("{} | {}", self.name, if self.shown <= OUTPUT_LINES { line.as_str() } else { "…" }))
    }
}

/// What of a tool's input says best what it is going to do.
pub(super) fn telling(input: &Value) -> String {
    match input {
        Value::String(text) => line_of(text),
        Value::Object(members) if members.is_empty() => String::new(),
        Value::Object(members) => {
            let best = TELLING.iter().find_map(|name| members.get(*name)?.as_str());
            let best = best.or_else(|| input.pointer("/questions/0/question")?.as_str());
            best.map_or_else(|| line_of(&input.to_string()), line_of)
        }
        Value::Null => String::new(),
        other => line_of(&other.to_string()),
    }
}

/// A text in one line that is not too long.
fn line_of(text: &str) -> String {
    let text = harmless(text);
    // Words enough to fill the line; the rest need not be looked at.
    let line = text.split_whitespace().take(WIDTH).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_told_by_the_best_part_of_its_input() {
        let cases = [
            (json!({"description": "Lists", "command": "ls\n  -l"}), "ls -l"),
            (json!({"path": "a.txt", "content": "long"}), "a.txt"),
            (json!({"questions": [{"question": "Which?", "options": []}]}), "Which?"),
            (json!({"a": 2, "b": 3}), r#"{"a":2,"b":3}"#),
            (json!({}), ""),
            (json!(null), ""),
            (json!("no\x1b[2J json"), "no[2J json"),
        ];
        for (input, line) in cases {
            assert_eq!(telling(&input), line);
        }
        assert_eq!(telling(&json!("x".repeat(500))).chars().count(), WIDTH + 1);
    }

    #[test]
    fn output_comes_in_whole_lines_and_not_too_many() {
        let mut tools = Tools::default();
        let started = json!({"toolCallId": "a", "name": "shell", "input": {"command": "seq 20"}});
        assert_eq!(tools.started(&started), "shell: seq 20");

        let mut said = |text: &str| tools.output(&json!({"toolCallId": "a", "text": text}));
        assert!(said("on").is_empty());
        assert_eq!(said("e\ntw"), ["shell | one"]);
        let many = said("o\n3\n4\n5\n6\n7\n8\n9\n10\n");
        assert_eq!(many.first().map(String::as_str), Some("shell | two"));
        assert_eq!(many.last().map(String::as_str), Some("shell | …"));
        assert_eq!(many.len(), OUTPUT_LINES, "one was shown before, and one says that there are more");
        assert!(said("11\n").is_empty());
    }

    #[test]
    fn an_end_tells_the_rest_and_a_failure() {
        let mut tools = Tools::default();
        tools.started(&json!({"toolCallId": "a", "name": "shell", "input": {}}));
        tools.output(&json!({"toolCallId": "a", "text": "half"}));
        let end =
            json!({"toolCallId": "a", "name": "shell", "success": false, "result": "exit status 1\nhalf"});
        assert_eq!(tools.completed(&end), ["shell | half", "shell failed: exit status 1 half"]);
        let other = json!({"toolCallId": "b", "name": "read_file", "success": true, "result": "text"});
        assert_eq!(tools.completed(&other), ["read_file is done"]);
    }
}
