//! One message of the model, put together from the stream and from its blocks.

use serde_json::Value;

use super::protocol::{Block, text};
use super::usage::tokens;
use crate::contract::{AssistantMessage, EngineEvent, ToolCall, Truncated, Usage};

/// A message that is being written. The stream tells its usage and its end, the blocks its content.
#[derive(Debug, Default)]
pub(super) struct Writing {
    id: Option<String>,
    /// It is told piece by piece, so its end is told too.
    is_streamed: bool,
    message: AssistantMessage,
    usage: Usage,
    has_blocks: bool,
}

/// What a piece of the stream means.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a piece is taken apart where it is made")]
pub(super) enum Piece {
    Delta(EngineEvent),
    /// The message is complete.
    End,
    Nothing,
}

impl Writing {
    /// Whether a block belongs to another message than this one.
    pub(super) fn is_another(&self, block: &Block) -> bool {
        self.id.as_ref().is_some_and(|id| *id != block.message)
    }

    /// Whether its end is known by its stream.
    pub(super) fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// Begins with a streamed message.
    pub(super) fn start(event: &Value) -> Self {
        let message = &event["message"];
        Self {
            id: message["id"].as_str().map(str::to_owned),
            is_streamed: true,
            usage: tokens(&message["usage"], Usage::default()),
            message: AssistantMessage {
                model: message["model"].as_str().map(str::to_owned),
                ..AssistantMessage::default()
            },
            has_blocks: false,
        }
    }

    pub(super) fn piece(&mut self, event: &Value) -> Piece {
        match text(&event["type"]) {
            "content_block_delta" => {
                let delta = &event["delta"];
                match text(&delta["type"]) {
                    "text_delta" => Piece::Delta(EngineEvent::Delta(text(&delta["text"]).to_owned())),
                    "thinking_delta" => {
                        Piece::Delta(EngineEvent::ThinkingDelta(text(&delta["thinking"]).to_owned()))
                    }
                    _ => Piece::Nothing,
                }
            }
            "message_delta" => {
                self.usage = tokens(&event["usage"], self.usage);
                self.message.truncated = match text(&event["delta"]["stop_reason"]) {
                    "max_tokens" | "model_context_window_exceeded" => Some(Truncated::Length),
                    "refusal" => Some(Truncated::ContentFilter),
                    _ => None,
                };
                Piece::Nothing
            }
            "message_stop" => Piece::End,
            _ => Piece::Nothing,
        }
    }

    pub(super) fn add(&mut self, block: Block) {
        self.id.get_or_insert(block.message);
        self.has_blocks = true;
        if !self.is_streamed {
            self.usage = tokens(&block.usage, self.usage);
        }
        let message = &mut self.message;
        message.model = block.model.or(message.model.take());
        message.anchor = block.uuid.or(message.anchor.take());
        for part in &block.content {
            match text(&part["type"]) {
                "text" => message.content.push_str(text(&part["text"])),
                "thinking" => {
                    message.thinking.get_or_insert_default().push_str(text(&part["thinking"]));
                }
                "tool_use" => message.tool_calls.push(ToolCall {
                    id: text(&part["id"]).to_owned(),
                    name: text(&part["name"]).to_owned(),
                    arguments: part["input"].to_string(),
                }),
                _ => {}
            }
        }
    }

    /// The message, if there is one.
    pub(super) fn finish(self) -> Option<AssistantMessage> {
        let thinking = self.message.thinking.filter(|thinking| !thinking.is_empty());
        self.has_blocks.then_some(AssistantMessage { usage: self.usage, thinking, ..self.message })
    }
}
