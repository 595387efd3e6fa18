//! What an entry says: the content blocks of its message.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::entry::{Entry, Kind};
use crate::contract::{ToolCall, Usage};

/// The model's name in messages that the CLI has made up itself: failures, and what it puts behind a turn that was cut off.
const MADE_UP: &str = "<synthetic>";

/// The message of an entry. Of the model's messages it is one block of several with the same id.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    /// The API's id of the whole message.
    pub(super) id: Option<String>,
    /// The model that wrote it.
    pub(super) model: Option<String>,
    stop_reason: Option<String>,
    content: Option<Box<RawValue>>,
    usage: Option<Tokens>,
}

/// What a message cost.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct Tokens {
    #[serde(rename = "input_tokens")]
    input: u64,
    #[serde(rename = "cache_creation_input_tokens")]
    cached: u64,
    #[serde(rename = "cache_read_input_tokens")]
    from_cache: u64,
    #[serde(rename = "output_tokens")]
    output: u64,
    #[serde(rename = "output_tokens_details")]
    of_output: OfOutput,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct OfOutput {
    #[serde(rename = "thinking_tokens")]
    thinking: u64,
}

/// A content block, as far as it is of use here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) thinking: String,
    id: String,
    name: String,
    input: Option<Box<RawValue>>,
    tool_use_id: String,
    content: Option<Value>,
    is_error: Option<bool>,
}

/// A tool's result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToolResult {
    pub(super) call: String,
    pub(super) success: bool,
    pub(super) text: String,
}

impl Entry {
    /// The message of the entry; empty where it has none.
    pub(super) fn message(&self) -> Message {
        self.line.get("message").unwrap_or_default()
    }

    /// The message that the model wrote; `None` where it is not the model's.
    pub(super) fn model_message(&self) -> Option<Message> {
        let is_candidate = self.kind == Kind::Assistant && !self.line.is("isApiErrorMessage");
        is_candidate.then(|| self.message()).filter(|message| message.model.as_deref() != Some(MADE_UP))
    }

    /// The results of tools that it carries.
    pub(super) fn results(&self) -> Vec<ToolResult> {
        if self.kind != Kind::User {
            return Vec::new();
        }
        self.message().blocks().into_iter().filter_map(Block::into_result).collect()
    }

    /// Whether the model was stopped in the middle of it.
    pub(super) fn is_cut_off(&self) -> bool {
        self.line.is("isAbortedMidStream")
    }
}

impl Message {
    /// The blocks; a text alone is one.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let Some(content) = self.content.as_deref().map(RawValue::get) else { return Vec::new() };
        if let Ok(text) = serde_json::from_str(content) {
            return vec![Block { kind: "text".to_owned(), text, ..Block::default() }];
        }
        let blocks: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
        blocks.into_iter().filter_map(|block| serde_json::from_str(block.get()).ok()).collect()
    }

    /// Whether the model had said all, and waits for no tool.
    pub(super) fn has_ended_turn(&self) -> bool {
        let goes_on = ["tool_use", "pause_turn", "max_tokens"];
        self.stop_reason.as_deref().is_some_and(|reason| !goes_on.contains(&reason))
    }

    /// What it cost. A cost in money is not written down.
    pub(super) fn usage(&self) -> Usage {
        let Tokens { input, cached, from_cache, output, of_output } = self.usage.unwrap_or_default();
        Usage {
            input_tokens: input.saturating_add(cached),
            output_tokens: output,
            cache_tokens: from_cache,
            thinking_tokens: of_output.thinking,
            cost_nanos: None,
        }
    }
}

impl Block {
    /// The call of a tool that it is.
    pub(super) fn call(&self) -> Option<ToolCall> {
        let arguments = || self.input.as_deref().map_or("{}", RawValue::get).to_owned();
        (self.kind == "tool_use").then(|| ToolCall {
            id: self.id.clone(),
            name: self.name.clone(),
            arguments: arguments(),
        })
    }

    fn into_result(self) -> Option<ToolResult> {
        (self.kind == "tool_result").then(|| ToolResult {
            call: self.tool_use_id,
            success: !self.is_error.unwrap_or_default(),
            text: self.content.map(shown).unwrap_or_default(),
        })
    }
}

/// The text of a tool's result.
fn shown(content: Value) -> String {
    match content {
        Value::String(text) => text,
        Value::Array(parts) => {
            let part = |part: &Value| match part["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}]", part["type"].as_str().unwrap_or("unknown")),
            };
            parts.iter().map(part).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The calls in these entries that have no result among them.
pub(super) fn open_calls<'a>(entries: impl Iterator<Item = &'a Entry> + Clone) -> Vec<(&'a Entry, ToolCall)> {
    let answered: HashSet<String> =
        entries.clone().flat_map(Entry::results).map(|result| result.call).collect();
    let calls = |entry: &'a Entry| {
        let blocks = entry.model_message().map(|message| message.blocks()).unwrap_or_default();
        blocks.into_iter().filter_map(move |block| Some((entry, block.call()?)))
    };
    entries.flat_map(calls).filter(|(_, call)| !answered.contains(&call.id)).collect()
}
