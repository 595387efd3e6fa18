//! Puts an answer together from its chunks.

use std::collections::{HashSet, VecDeque};

use serde_json::Value;

use super::calls::Calls;
use super::failure::Failure;
use super::lenient::repaired;
use super::protocol::{Chunk, Delta};
use super::provider::Provider;
use super::usage::ReportedUsage;
use crate::contract::{AssistantMessage, EngineEvent, Usage};

/// An answer under construction.
#[derive(Debug, Default)]
pub(super) struct Answer {
    content: String,
    thinking: String,
    model: Option<String>,
    usage: Option<ReportedUsage>,
    finish_reason: Option<String>,
    has_choice: bool,
    is_done: bool,
    calls: Calls,
}

impl Answer {
    /// Whether the model has said that it is finished.
    pub(super) fn is_complete(&self) -> bool {
        self.finish_reason.is_some() || self.is_done
    }

    /// Whether the server has said that nothing follows.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether the model calls tools. Its finish reason is no guide: Ollama says `stop`.
    pub(super) fn calls_tools(&self) -> bool {
        !self.calls.is_empty()
    }

    /// What it has used, as far as the server has said so.
    pub(super) fn usage(&self, provider: &Provider) -> Option<Usage> {
        self.usage.map(|usage| usage.priced(provider.rates))
    }

    /// The message, once it is complete. Its calls have ids that are not among `ids`, and are put there.
    pub(super) fn into_message(self, provider: &Provider, ids: &mut HashSet<String>) -> AssistantMessage {
        // One of the reasons that we know nothing of is as good as `stop`.
        tracing::debug!(finish_reason = self.finish_reason, model = self.model, "the model has answered");
        let usage = self.usage(provider).unwrap_or_default();
        let thinking = (!self.thinking.is_empty()).then_some(self.thinking);
        let tool_calls = self.calls.finish(ids);
        AssistantMessage {
            content: self.content,
            thinking,
            tool_calls,
            model: self.model,
            usage,
            anchor: None,
        }
    }

    /// Takes one event's data, or a whole body; what there is to tell of it goes to `events`.
    pub(super) fn take(
        &mut self,
        data: &[u8],
        events: &mut VecDeque<EngineEvent>,
        provider: &Provider,
    ) -> Result<(), Failure> {
        if data.trim_ascii() == b"[DONE]" {
            if !self.has_choice {
                return Err(Failure::empty());
            }
            self.is_done = true;
            return Ok(());
        }
        if let Ok(chunk) = serde_json::from_slice(data) {
            return self.take_chunk(chunk, data, events, provider);
        }
        match serde_json::from_str(&repaired(data)) {
            Ok(chunk) => self.take_chunk(chunk, data, events, provider),
            // A piece of the answer may be in it, so it cannot be passed over.
            Err(_) => Err(Failure::unreadable(data, provider)),
        }
    }

    /// Takes the body of a server that does not stream.
    pub(super) fn take_body(
        &mut self,
        data: &[u8],
        events: &mut VecDeque<EngineEvent>,
        provider: &Provider,
    ) -> Result<(), Failure> {
        self.take(data, events, provider)?;
        if !self.has_choice {
            return Err(Failure::unreadable(data, provider));
        }
        self.is_done = true;
        Ok(())
    }

    fn take_chunk(
        &mut self,
        chunk: Chunk<'_>,
        data: &[u8],
        events: &mut VecDeque<EngineEvent>,
        provider: &Provider,
    ) -> Result<(), Failure> {
        if let Some(error) = chunk.error.as_ref().filter(|error| is_set(error)) {
            return Err(Failure::reported(error, provider));
        }
        if chunk.object.is("error") {
            return Err(error_event(data, provider));
        }
        if self.model.is_none() && !chunk.model.is_empty() {
            self.model = Some(chunk.model.into_string());
        }
        // The last one counts: some servers send a running total with each chunk.
        self.usage = chunk.usage.or(self.usage);
        for choice in chunk.choices.unwrap_or_default() {
            if choice.index.0 > 0 {
                continue;
            }
            self.has_choice = true;
            self.usage = choice.usage.or(self.usage);
            if let Some(delta) = choice.delta.or(choice.message) {
                self.take_delta(delta, events);
            }
            if !choice.finish_reason.is_empty() {
                self.finish_reason = Some(choice.finish_reason.into_string());
            }
        }
        Ok(())
    }

    fn take_delta(&mut self, delta: Delta<'_>, events: &mut VecDeque<EngineEvent>) {
        let Delta { content, refusal, reasoning_content, reasoning, tool_calls } = delta;
        let thinking = if reasoning_content.is_empty() { reasoning } else { reasoning_content };
        if !thinking.is_empty() {
            let thinking = thinking.into_string();
            self.thinking.push_str(&thinking);
            events.push_back(EngineEvent::ThinkingDelta(thinking));
        }
        let content = if content.is_empty() { refusal } else { content };
        if !content.is_empty() {
            let content = content.into_string();
            self.content.push_str(&content);
            events.push_back(EngineEvent::Delta(content));
        }
        for piece in tool_calls.iter().flatten() {
            self.calls.take(piece);
        }
    }
}

/// An event that says of itself that it is an error.
pub(super) fn error_event(data: &[u8], provider: &Provider) -> Failure {
    match serde_json::from_str::<Value>(&repaired(data)) {
        Ok(event) => {
            Failure::reported(event.get("error").filter(|error| is_set(error)).unwrap_or(&event), provider)
        }
        Err(_) => Failure::reported(&Value::String(String::from_utf8_lossy(data).into_owned()), provider),
    }
}

/// Some servers have an empty error in each chunk.
fn is_set(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    }
}
