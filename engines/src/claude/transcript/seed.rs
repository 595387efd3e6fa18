//! A session that begins in the middle: its transcript has the conversation so far, as if the CLI had written it.
//!
//! Of an entry's fields a resume needs the links, the message and its time; the rest the CLI adds with the first turn.
//! What the provider would refuse is made valid: ids and names of tools, arguments that are no object, calls without
//! results, results without calls, messages that say nothing.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use serde_json::{Value, json};
use uuid::Uuid;

use super::object::Object;
use crate::claude::input::block;
use crate::contract::{Attachment, ContextMessage, ToolCall};

/// Stands where a message says nothing: the provider takes no empty text.
const NOTHING: &str = "(no content)";

/// Stands for a result that is not there.
const NO_RESULT: &str = "[The result is no longer there.]";

/// The longest name of a tool that the provider takes.
const MAX_NAME: usize = 128;

/// A transcript that is being made.
pub(super) struct Seed<'a> {
    session: &'a str,
    cwd: &'a Path,
    model: &'a str,
    /// The time of all entries, as a transcript has it.
    time: String,
    lines: Vec<Object>,
    parent: Option<String>,
    anchors: Vec<String>,
    /// The ids of the calls so far, and how many there are by each.
    ids: HashMap<String, usize>,
}

/// What has been made.
pub(super) struct Seeded {
    pub(super) lines: Vec<Object>,
    /// One for each message of the model, in order.
    pub(super) anchors: Vec<String>,
}

impl<'a> Seed<'a> {
    pub(super) fn new(session: &'a str, cwd: &'a Path, model: &'a str, time: String) -> Self {
        let (lines, parent, anchors, ids) = (Vec::new(), None, Vec::new(), HashMap::new());
        Self { session, cwd, model, time, lines, parent, anchors, ids }
    }

    pub(super) fn make(mut self, context: &[ContextMessage]) -> Seeded {
        let mut context: VecDeque<_> = context.iter().collect();
        while let Some(message) = context.pop_front() {
            match message {
                ContextMessage::User { text, attachments, .. } => self.user(content(text, attachments)),
                ContextMessage::System(text) => self.user(content(text, &[])),
                ContextMessage::Assistant { text, tool_calls, .. } => {
                    let mut results = Vec::new();
                    while let Some(ContextMessage::Tool { call, text, .. }) =
                        context.pop_front_if(|next| matches!(next, ContextMessage::Tool { .. }))
                    {
                        results.push((&**call, &**text));
                    }
                    self.assistant(text, tool_calls, &results);
                }
                // Of no call that is still there.
                ContextMessage::Tool { .. } => {}
            }
        }
        Seeded { lines: self.lines, anchors: self.anchors }
    }

    fn user(&mut self, content: impl Into<Value>) {
        self.entry("user", json!({"role": "user", "content": content.into()}));
    }

    /// A message of the model, each block an entry, and the results of its calls.
    fn assistant(&mut self, text: &str, calls: &[ToolCall], results: &[(&str, &str)]) {
        let ids: Vec<String> = calls.iter().map(|call| self.unused_id(&call.id)).collect();
        let mut blocks = Vec::new();
        if !text.trim().is_empty() || calls.is_empty() {
            blocks.push(json!({"type": "text", "text": said(text)}));
        }
        for (call, id) in calls.iter().zip(&ids) {
            let name = Some(valid(&call.name)).filter(|name| !name.is_empty());
            let name: String = name.unwrap_or_else(|| "unknown".to_owned()).chars().take(MAX_NAME).collect();
            let input = arguments(&call.arguments);
            blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
        }
        let message = format!("msg_{}", Uuid::now_v7().simple());
        let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
        for block in blocks {
            let message = json!({
                "id": message,
                "type": "message",
                "role": "assistant",
                "model": self.model,
                "content": [block],
                "stop_reason": stop,
                "stop_sequence": null,
                // What it cost is counted where it was written.
                "usage": {
                    "input_tokens": 0,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 0,
                },
            });
            self.entry("assistant", message);
        }
        self.anchors.extend(self.parent.clone());
        let mut left: Vec<_> = results.iter().map(Some).collect();
        for (call, id) in calls.iter().zip(&ids) {
            let found = left.iter_mut().find(|result| result.is_some_and(|(of, _)| *of == call.id));
            let text = found.and_then(Option::take).map_or(NO_RESULT, |(_, text)| said(text));
            self.user(json!([{"type": "tool_result", "tool_use_id": id, "content": text}]));
        }
    }

    fn entry(&mut self, kind: &str, message: Value) {
        let uuid = Uuid::now_v7().to_string();
        let line = Object::default()
            .with("parentUuid", self.parent.take())
            .with("isSidechain", false)
            .with("type", kind)
            .with("message", message)
            .with("uuid", uuid.clone())
            .with("timestamp", self.time.clone())
            .with("userType", "external")
            .with("cwd", self.cwd.to_string_lossy())
            .with("sessionId", self.session);
        self.lines.push(line);
        self.parent = Some(uuid);
    }

    /// An id that the provider takes and that no call before has.
    fn unused_id(&mut self, id: &str) -> String {
        let id = Some(valid(id)).filter(|id| !id.is_empty()).unwrap_or_else(|| "call".to_owned());
        let count = self.ids.entry(id.clone()).and_modify(|count| *count += 1).or_insert(0);
        if *count == 0 { id } else { format!("{id}_{}", Uuid::now_v7().simple()) }
    }
}

/// A user's message, with its files in front.
fn content(text: &str, attachments: &[Attachment]) -> Value {
    if attachments.is_empty() {
        return said(text).into();
    }
    let text = (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}));
    attachments.iter().map(block).chain(text).collect()
}

fn said(text: &str) -> &str {
    if text.trim().is_empty() { NOTHING } else { text }
}

/// The text with `_` for what neither an id nor a name of a tool may have.
fn valid(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// What a tool was called with; the provider takes only objects.
fn arguments(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({"arguments": arguments}),
    }
}
