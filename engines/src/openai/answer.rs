//! Puts an answer together from its chunks.

use std::collections::{HashSet, VecDeque};

use serde_json::{Map, Value, json};

use super::calls::{Calls, Made};
use super::failure::Failure;
use super::lenient::repaired;
use super::opaque::{self, Maker, Record};
use super::protocol::{Chunk, Delta};
use super::provider::Provider;
use super::usage::{ReportedUsage, Used};
use super::verdict::{self, Finish, Outcome, error_in, is_set};
use crate::contract::{AssistantMessage, EngineEvent, Truncated, Usage};

/// How much of the lines that cannot be read is kept.
const UNREAD_BYTES: usize = 64 * 1024;

/// An answer under construction.
#[derive(Debug, Default)]
pub(super) struct Answer {
    content: String,
    /// Text of other choices than the first: the answer's, where the first has none.
    beside: String,
    thinking: String,
    model: Option<String>,
    used: Option<Used>,
    finish: Option<(Finish, String)>,
    choices: Vec<Choice>,
    is_done: bool,
    /// A whole message came in one piece.
    is_whole: bool,
    /// The call of a server that knows no others.
    function_call: Calls,
    /// What is to be sent back with the message.
    members: Map<String, Value>,
    /// Lines that are no part of an answer, as far as they are known.
    unread: Vec<u8>,
    /// Whether the last thing taken was a part of the answer.
    has_progressed: bool,
}

/// What is to be known of one of the answer's choices. There ought to be one; some servers put calls into others.
#[derive(Debug)]
struct Choice {
    index: u64,
    has_ended: bool,
    calls: Calls,
}

impl Answer {
    /// Whether the model has said that it is finished.
    pub(super) fn is_complete(&self) -> bool {
        self.is_done || self.is_whole || self.has_ended()
    }

    fn has_ended(&self) -> bool {
        let is_needed = |choice: &&Choice| choice.index == 0 || !choice.calls.is_empty();
        let mut needed = self.choices.iter().filter(is_needed).peekable();
        match needed.peek() {
            Some(_) => needed.all(|choice| choice.has_ended),
            None => !self.choices.is_empty() && self.choices.iter().all(|choice| choice.has_ended),
        }
    }

    /// Whether the server has said that nothing follows.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether what was taken since this was last asked was a part of the answer.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progressed)
    }

    /// Whether the model calls tools. Its finish reason is no guide: Ollama says `stop`.
    pub(super) fn calls_tools(&self) -> bool {
        !self.function_call.is_empty() || self.choices.iter().any(|choice| !choice.calls.is_empty())
    }

    /// What it has used, as far as the server has said so.
    pub(super) fn usage(&self, provider: &Provider) -> Option<Usage> {
        self.used.map(|used| used.priced(provider.rates))
    }

    /// What the answer means, once nothing more comes.
    pub(super) fn decide(&self, provider: &Provider) -> Result<Option<Truncated>, Failure> {
        let has_text = !self.content.trim().is_empty() || !self.beside.trim().is_empty();
        let outcome = Outcome {
            finish: self.finish.as_ref().map(|(finish, reason)| (*finish, reason.as_str())),
            is_done: self.is_done || self.is_whole,
            has_choice: !self.choices.is_empty(),
            has_ended: self.has_ended(),
            says_something: has_text || self.calls_tools(),
            unread: &self.unread,
        };
        verdict::decide(outcome, provider)
    }

    /// The message, once it is complete. Its calls have ids that are not among `ids`, and are put there.
    pub(super) fn into_message(
        self,
        truncated: Option<Truncated>,
        maker: &Maker,
        provider: &Provider,
        ids: &mut HashSet<String>,
    ) -> AssistantMessage {
        tracing::debug!(finish = ?self.finish, model = self.model, "the model has answered");
        let usage = self.usage(provider).unwrap_or_default();
        let thinking = (!self.thinking.is_empty()).then_some(self.thinking);
        let content = if self.content.trim().is_empty() && !self.beside.is_empty() {
            self.beside
        } else {
            self.content
        };
        let mut made = Vec::new();
        for choice in self.choices {
            // Another choice may be another version of the first, or have the calls that the first lacks.
            let earlier = made.len();
            for one in choice.calls.finish(ids) {
                if !made[..earlier].iter().any(|other| is_same_call(other, &one)) {
                    made.push(one);
                }
            }
        }
        if made.is_empty() {
            made = self.function_call.finish(ids);
        }
        let (tool_calls, calls): (Vec<_>, Vec<_>) =
            made.into_iter().map(|made| (made.call, made.members)).unzip();
        let is_cut = truncated.is_some() && !tool_calls.is_empty();
        let record = Record { message: self.members, calls, is_cut, ..Record::of(maker) };
        AssistantMessage {
            content,
            thinking,
            tool_calls,
            model: self.model,
            usage,
            anchor: None,
            truncated,
            opaque: record.into_value(),
        }
    }

    /// Takes one event's data; what there is to tell of it goes to `events`.
    pub(super) fn take(
        &mut self,
        data: &[u8],
        events: &mut VecDeque<EngineEvent>,
        provider: &Provider,
    ) -> Result<(), Failure> {
        let data = data.trim_ascii();
        if matches!(data, b"[DONE]" | b"\"[DONE]\"") {
            self.is_done = true;
            self.has_progressed = true;
            return Ok(());
        }
        if let Ok(chunk) = serde_json::from_slice(data) {
            return self.take_chunk(chunk, data, events, provider);
        }
        let text = repaired(data);
        if let Ok(chunk) = serde_json::from_str(&text) {
            return self.take_chunk(chunk, data, events, provider);
        }
        match serde_json::from_str::<Value>(&text) {
            // Gemini puts its error into a list.
            Ok(Value::Array(list)) if list.iter().any(Value::is_object) => {
                list.iter().try_for_each(|one| self.take(one.to_string().as_bytes(), events, provider))
            }
            // A piece of the answer may be in it, so it cannot be passed over.
            _ => Err(Failure::unreadable(data, provider)),
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
        if self.choices.is_empty() {
            return Err(Failure::unreadable(data, provider));
        }
        self.is_done = true;
        Ok(())
    }

    /// Takes a line that belongs to no event: JSON without `data:`, or what somebody between us and the model wrote.
    pub(super) fn take_line(
        &mut self,
        line: &[u8],
        events: &mut VecDeque<EngineEvent>,
        provider: &Provider,
    ) -> Result<(), Failure> {
        let before = self.choices.len();
        match self.take(line, events, provider) {
            Ok(()) if self.has_progressed || before < self.choices.len() => return Ok(()),
            Err(failure) if failure.is_reported => return Err(failure),
            Ok(()) | Err(_) => {}
        }
        if self.unread.len() + line.len() < UNREAD_BYTES {
            if !self.unread.is_empty() {
                self.unread.push(b'\n');
            }
            self.unread.extend_from_slice(line);
        }
        // A document may have been written over several lines.
        if line.trim_ascii().ends_with(b"}") && self.unread.trim_ascii_start().starts_with(b"{") {
            let unread = std::mem::take(&mut self.unread);
            match self.take(&unread, events, provider) {
                Err(failure) if failure.is_reported => return Err(failure),
                Ok(()) if self.has_progressed => {}
                Ok(()) | Err(_) => self.unread = unread,
            }
        }
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
        if let Some(groq) = &chunk.x_groq {
            if let Some(error) = groq.get("error").filter(|error| is_set(error)) {
                return Err(Failure::reported(error, provider));
            }
            let usage = groq.get("usage").cloned().and_then(|usage| serde_json::from_value(usage).ok());
            self.take_usage(usage);
        }
        if chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            let whole: Value = serde_json::from_str(&repaired(data)).unwrap_or_default();
            if let Some(error) = error_in(&whole) {
                return Err(Failure::reported(error, provider));
            }
        } else if chunk.object.as_str() == "error" {
            return Err(verdict::error_event(data, provider));
        }
        if self.model.is_none() && !chunk.model.is_empty() {
            self.model = Some(chunk.model.into_string());
        }
        self.take_usage(chunk.usage);
        for choice in chunk.choices.unwrap_or_default() {
            if let Some(error) = choice.error.as_ref().filter(|error| is_set(error)) {
                return Err(Failure::reported(error, provider));
            }
            self.take_usage(choice.usage);
            let at = self.choice(choice.index.0);
            // Some repeat the whole message behind its pieces.
            let is_whole = choice.delta.is_none() && choice.message.is_some();
            let is_repeated = is_whole && (!self.content.is_empty() || self.calls_tools());
            self.is_whole |= is_whole;
            if let Some(delta) = choice.delta.or(choice.message) {
                if let Some(error) = delta.error.as_ref().filter(|error| is_set(error)) {
                    return Err(Failure::reported(error, provider));
                }
                if !is_repeated {
                    self.take_delta(at, delta, events);
                }
            }
            if !choice.finish_reason.is_empty() {
                self.take_finish(at, choice.finish_reason.into_string());
            }
        }
        Ok(())
    }

    fn take_usage(&mut self, reported: Option<ReportedUsage>) {
        if let Some(reported) = reported {
            self.used.get_or_insert_default().take(reported);
        }
    }

    fn choice(&mut self, index: u64) -> usize {
        self.choices.iter().position(|choice| choice.index == index).unwrap_or_else(|| {
            self.choices.push(Choice { index, has_ended: false, calls: Calls::default() });
            self.choices.len() - 1
        })
    }

    /// Keeps the worst of the reasons.
    fn take_finish(&mut self, at: usize, reason: String) {
        let finish = verdict::finish(&reason);
        if self.finish.as_ref().is_none_or(|(worst, _)| finish >= *worst) {
            self.finish = Some((finish, reason));
        }
        self.choices[at].has_ended = true;
        self.has_progressed = true;
    }

    fn take_delta(&mut self, at: usize, delta: Delta<'_>, events: &mut VecDeque<EngineEvent>) {
        let Delta {
            content, refusal, reasoning_content, reasoning, tool_calls, function_call, others, ..
        } = delta;
        let is_first = self.choices[at].index == 0;
        if is_first {
            for (name, text) in [("reasoning_content", &reasoning_content), ("reasoning", &reasoning)] {
                opaque::take_of_message(&mut self.members, name, Value::String(text.as_str().to_owned()));
            }
            for (name, value) in others {
                self.has_progressed |= opaque::take_of_message(&mut self.members, &name, value);
            }
            let thinking = if reasoning_content.is_empty() { reasoning } else { reasoning_content };
            if !thinking.is_empty() {
                let thinking = thinking.into_string();
                self.thinking.push_str(&thinking);
                events.push_back(EngineEvent::ThinkingDelta(thinking));
                self.has_progressed = true;
            }
        }
        let content = if content.is_empty() { refusal } else { content };
        if !content.is_empty() {
            let content = content.into_string();
            if is_first {
                self.content.push_str(&content);
                events.push_back(EngineEvent::Delta(content));
            } else {
                self.beside.push_str(&content);
            }
            self.has_progressed = true;
        }
        match tool_calls {
            Some(Value::Array(pieces)) => {
                for piece in &pieces {
                    self.has_progressed |= self.choices[at].calls.take(piece);
                }
            }
            Some(piece @ Value::Object(_)) => self.has_progressed |= self.choices[at].calls.take(&piece),
            _ => {}
        }
        if let Some(function @ Value::Object(_)) = function_call {
            self.has_progressed |= self.function_call.take(&json!({"index": 0, "function": function}));
        }
    }
}

fn is_same_call(one: &Made, other: &Made) -> bool {
    one.call.name == other.call.name && one.call.arguments == other.call.arguments
}
