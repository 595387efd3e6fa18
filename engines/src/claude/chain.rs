//! The main chain of what a turn brings: the model's messages, and what the tools return that they call.

use std::collections::HashMap;

use serde_json::Value;

use super::message::{Piece, Writing};
use super::protocol::{Block, Ended, Line, text};
use crate::contract::{AssistantMessage, EngineEvent, ToolCall};
use crate::tools::bounded;

/// What has happened on it, in order.
#[derive(Debug)]
pub(super) enum Said {
    Piece(EngineEvent),
    Message {
        message: AssistantMessage,
        /// Its text was told piece by piece.
        was_streamed: bool,
    },
    Tool(EngineEvent),
    /// A message that was cut off by an interrupt, as far as the conversation keeps it.
    Cut(AssistantMessage),
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The message that is being written.
    writing: Option<Writing>,
    /// The calls without a result.
    calls: HashMap<String, ToolCall>,
    /// Results that came before the message that makes their calls was complete.
    early: Vec<Ended>,
}

impl Chain {
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Whether there are calls without a result.
    pub(super) fn has_open_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The arguments of a call that has no result yet.
    pub(super) fn arguments(&self, call: &str) -> Option<Value> {
        serde_json::from_str(&self.calls.get(call)?.arguments).ok()
    }

    /// The turn is over, and what is not complete never will be.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes in a line of the main chain.
    pub(super) fn read(&mut self, line: Line) -> Vec<Said> {
        match line {
            Line::Stream(event) => self.stream(&event),
            Line::Block(block) => self.block(block),
            Line::ToolResult(ended) => self.tool_result(ended),
            _ => Vec::new(),
        }
    }

    fn stream(&mut self, event: &Value) -> Vec<Said> {
        if text(&event["type"]) == "message_start" {
            // What an earlier one has not ended, it never will: the model is asked again.
            self.writing = Some(Writing::start(event));
            return Vec::new();
        }
        match self.writing.as_mut().map(|writing| writing.piece(event)) {
            Some(Piece::Delta(delta)) => vec![Said::Piece(delta)],
            Some(Piece::End) => self.finish(),
            Some(Piece::Nothing) | None => Vec::new(),
        }
    }

    fn block(&mut self, block: Block) -> Vec<Said> {
        if block.is_synthetic {
            return Vec::new();
        }
        if block.is_aborted {
            let mut writing = self.writing.take().unwrap_or_default();
            writing.add(block);
            return writing.finish().map(Said::Cut).into_iter().collect();
        }
        let mut said = Vec::new();
        if self.writing.as_ref().is_some_and(|writing| writing.is_another(&block)) {
            said = self.settle();
            self.writing = None;
        }
        self.writing.get_or_insert_default().add(block);
        said
    }

    /// Something follows the message: of one without a stream nothing else tells the end.
    pub(super) fn settle(&mut self) -> Vec<Said> {
        let is_whole = self.writing.as_ref().is_some_and(|writing| !writing.is_streamed());
        if is_whole { self.finish() } else { Vec::new() }
    }

    /// The message is complete.
    pub(super) fn finish(&mut self) -> Vec<Said> {
        let Some(writing) = self.writing.take() else { return Vec::new() };
        let was_streamed = writing.is_streamed();
        let Some(message) = writing.finish() else { return Vec::new() };
        self.calls.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.clone())));
        let mut said = vec![Said::Message { message, was_streamed }];
        let early = std::mem::take(&mut self.early);
        said.extend(early.into_iter().filter_map(|ended| self.ended(ended)));
        said
    }

    fn tool_result(&mut self, ended: Ended) -> Vec<Said> {
        let mut said = self.settle();
        if self.is_writing() {
            self.early.push(ended);
        } else {
            said.extend(self.ended(ended));
        }
        said
    }

    fn ended(&mut self, Ended { id, is_error, text, uuid: anchor }: Ended) -> Option<Said> {
        let ToolCall { name, .. } = self.calls.remove(&id)?;
        let result = bounded::result(text);
        Some(Said::Tool(EngineEvent::ToolDone { id, name, success: !is_error, result, anchor }))
    }
}
