//! The turn that the worker has sent, and how it ends.

use std::time::Duration;

use super::failure;
use super::protocol::TurnResult;
use crate::contract::{AssistantMessage, EngineError, EngineEvent, TurnDone, Usage};
use crate::openai::usage::sum;

/// A line that we have written and that the CLI has not yet answered.
#[derive(Debug, Default)]
pub(super) struct Command {
    /// The messages that its result answers.
    pub(super) answers: Vec<String>,
    /// Those whose delivery it is.
    pub(super) delivers: Vec<String>,
}

/// Why a turn is being ended.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    Interrupted,
    NoProgress { after: Duration, last: String },
    Limit(String),
}

impl Ending {
    pub(super) fn event(self) -> EngineEvent {
        match self {
            Self::Interrupted => EngineEvent::Interrupted,
            Self::NoProgress { after, last } => EngineEvent::Failed(EngineError::NoProgress { after, last }),
            Self::Limit(reason) => EngineEvent::Failed(EngineError::Limit(reason)),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The uuids of the lines that it is about.
    pub(super) lines: Vec<String>,
    /// The messages of the model that it has brought: one a model call.
    pub(super) iterations: u32,
    /// What was used before it was cut off.
    pub(super) usage: Usage,
    pub(super) ending: Option<Ending>,
    /// The last message of it is an answer: it calls no tools.
    pub(super) has_answer: bool,
    pub(super) has_called_tools: bool,
}

impl Turn {
    /// It is about any of these lines.
    pub(super) fn is_about(&self, lines: &[String]) -> bool {
        self.lines.iter().any(|line| lines.contains(line))
    }

    /// What its tools have started may still run: the CLI ends a tool that is interrupted, but not all that the tool has put
    /// into the background.
    pub(super) fn leaves_processes(&self) -> bool {
        self.ending.is_some() && self.has_called_tools
    }

    /// Its last events.
    pub(super) fn end(self, result: &TurnResult, used: Usage, answered: Vec<String>) -> Vec<EngineEvent> {
        // What was used before may have no price; what is known is more than nothing.
        let cost_nanos = used.cost_nanos.map(|now| now.saturating_add(self.usage.cost_nanos.unwrap_or(0)));
        let usage = Usage { cost_nanos, ..sum(used, self.usage) };
        let error = failure::of_result(result).map(EngineEvent::Failed);
        if let Some(end) = self.ending.map(Ending::event).or(error) {
            return vec![EngineEvent::Used(usage), end];
        }
        let mut events = Vec::new();
        if !self.has_answer {
            // A command of the CLI's own, or a turn that a tool has ended.
            let message = AssistantMessage { content: result.text.clone(), ..AssistantMessage::default() };
            events.push(EngineEvent::MessageDone(message));
        }
        let iterations = self.iterations.max(1);
        events.push(EngineEvent::TurnDone(TurnDone { iterations, usage, answered }));
        events
    }
}
