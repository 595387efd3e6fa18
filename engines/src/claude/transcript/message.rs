//! What an entry says: the content blocks of its message.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::entry::{Entry, Kind};
use super::object::Object;
use crate::claude::protocol::content_text;
use crate::claude::usage::tokens;
use crate::contract::{ToolCall, Usage};

/// The model's name in messages that the CLI has made up itself: failures, and what it puts behind a turn that was cut off.
const MADE_UP: &str = "<synthetic>";

/// The message of an entry. Of the model's messages it is one block of several with the same id.
#[derive(Debug, Default)]
pub(super) struct Message(Object);

/// A content block.
#[derive(Debug)]
pub(super) enum Block {
    Text(String),
    Thinking(String),
    Call(ToolCall),
    Result(ToolResult),
    /// An image, a document, or what is not known.
    Other,
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
        Message(self.line.get("message").unwrap_or_default())
    }

    /// The message that the model wrote; `None` where it is not the model's.
    pub(super) fn model_message(&self) -> Option<Message> {
        let is_candidate = self.kind == Kind::Assistant && !self.is_failure();
        is_candidate.then(|| self.message()).filter(|message| message.model().as_deref() != Some(MADE_UP))
    }

    /// Whether the CLI has noted here that the provider has failed.
    pub(super) fn is_failure(&self) -> bool {
        self.line.is("isApiErrorMessage")
    }

    /// Whether it is something that the model was asked, and no result of a tool.
    pub(super) fn is_prompt(&self) -> bool {
        self.kind == Kind::User && self.results().is_empty()
    }

    /// The results of tools that it carries.
    pub(super) fn results(&self) -> Vec<ToolResult> {
        let blocks = if self.kind == Kind::User { self.message().blocks() } else { Vec::new() };
        let result = |block| if let Block::Result(result) = block { Some(result) } else { None };
        blocks.into_iter().filter_map(result).collect()
    }

    /// Whether the CLI has noted here that the user has interrupted the turn.
    pub(super) fn is_interruption(&self) -> bool {
        let is_note = |block: &Block| matches!(block, Block::Text(text) if text.starts_with("[Request interrupted by user"));
        self.kind == Kind::User && self.message().blocks().iter().any(is_note)
    }

    /// Whether the model was stopped in the middle of it.
    pub(super) fn is_cut_off(&self) -> bool {
        self.line.is("isAbortedMidStream")
    }
}

impl Message {
    /// The API's id of the whole message.
    pub(super) fn id(&self) -> Option<String> {
        self.0.get("id")
    }

    /// The model that wrote it.
    pub(super) fn model(&self) -> Option<String> {
        self.0.get("model")
    }

    /// The blocks; a text alone is one.
    pub(super) fn blocks(&self) -> Vec<Block> {
        if let Some(text) = self.0.get("content") {
            return vec![Block::Text(text)];
        }
        let blocks: Vec<Box<RawValue>> = self.0.get("content").unwrap_or_default();
        blocks.iter().filter_map(|block| Object::parse(block.get().as_bytes())).map(Block::of).collect()
    }

    /// Whether the model had said all, and waits for no tool.
    pub(super) fn has_ended_turn(&self) -> bool {
        let reason: Option<String> = self.0.get("stop_reason");
        reason.is_some_and(|reason| !["tool_use", "pause_turn", "max_tokens"].contains(&&*reason))
    }

    /// What it cost. A cost in money is not written down.
    pub(super) fn usage(&self) -> Usage {
        tokens(&self.0.get("usage").unwrap_or_default(), Usage::default())
    }
}

impl Block {
    #[expect(clippy::needless_pass_by_value, reason = "it becomes the block")]
    fn of(block: Object) -> Self {
        let text = |name| block.get::<String>(name).unwrap_or_default();
        match &*text("type") {
            "text" => Self::Text(text("text")),
            "thinking" => Self::Thinking(text("thinking")),
            "tool_use" => Self::Call(ToolCall {
                id: text("id"),
                name: text("name"),
                arguments: block.raw("input").unwrap_or("{}").to_owned(),
            }),
            "tool_result" => Self::Result(ToolResult {
                call: text("tool_use_id"),
                success: !block.is("is_error"),
                text: content_text(&block.get("content").unwrap_or_default()),
            }),
            _ => Self::Other,
        }
    }
}

/// The calls in these entries that have no result among them, each with its entry.
pub(super) fn open_calls<'a>(entries: impl Iterator<Item = &'a Entry> + Clone) -> Vec<(&'a Entry, ToolCall)> {
    let answered: HashSet<String> =
        entries.clone().flat_map(Entry::results).map(|result| result.call).collect();
    let calls = |entry: &'a Entry| {
        let blocks = entry.model_message().map(|message| message.blocks()).unwrap_or_default();
        let call = move |block| if let Block::Call(call) = block { Some((entry, call)) } else { None };
        blocks.into_iter().filter_map(call)
    };
    entries.flat_map(calls).filter(|(_, call)| !answered.contains(&call.id)).collect()
}
