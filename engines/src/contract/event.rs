//! What an engine says.

use std::time::Duration;

use super::{EngineError, ToolCall};

/// What an engine asks of whoever runs it. The turn waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Whether a tool may be called.
    Permission {
        /// The call.
        call: ToolCall,
    },
    /// Questions of the agent to a person: `{questions: [{question, header?, options?, multiSelect?}]}`.
    Question(serde_json::Value),
    /// A plan that a person is to approve before it is carried out: `{plan}`.
    Plan(serde_json::Value),
    /// Another agent is to work on something.
    Spawn {
        /// The id of the call that asks: a turn that goes on after a crash asks anew by it, and finds the same work.
        call: String,
        /// The agent's name.
        agent: String,
        /// What it is told.
        message: String,
        /// Whether the turn waits for what it says; otherwise it says it later, by a message.
        wait: bool,
    },
}

/// What is answered to an engine that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Permission, perhaps with other arguments.
    Allow {
        /// The arguments to use in the place of the model's.
        input: Option<serde_json::Value>,
    },
    /// No permission, or no answer; the model is told why.
    Deny(String),
    /// What was asked for, as text for the model.
    Text(String),
    /// Answers to questions.
    Given {
        /// By the text of the question.
        answers: serde_json::Map<String, serde_json::Value>,
        /// What the person says beside them.
        message: Option<String>,
    },
}

/// What happens in a turn.
#[derive(Debug, Clone)]
pub enum EngineEvent {
    /// A piece of the answer's text.
    Delta(String),
    /// A piece of reasoning text.
    ThinkingDelta(String),
    /// The engine waits for its provider before it tries again.
    Retry {
        /// Which try this was, from 1.
        attempt: u32,
        /// How long the engine waits before the next one.
        delay: Duration,
        /// The provider's HTTP status, where it answered at all.
        status: Option<u16>,
    },
    /// One message of the model is complete. The tools that it calls run only once the next event is asked for, so whoever
    /// keeps messages can keep this one first.
    MessageDone(AssistantMessage),
    /// A tool begins.
    ToolStarted(ToolCall),
    /// A running tool says something; bounded, and not all of it.
    ToolOutput {
        /// The call.
        id: String,
        /// The text.
        text: String,
    },
    /// A tool has ended. The next model call comes only once the next event is asked for.
    ToolDone {
        /// The call.
        id: String,
        /// The tool's name.
        name: String,
        /// Whether it did what it was called for.
        success: bool,
        /// What the model is told, bounded.
        result: String,
        /// The engine's own id of this point of its native session.
        anchor: Option<String>,
    },
    /// The model has these messages now, or is about to be called with them, within the running turn: proof that they were
    /// delivered. Said once for each message that was sent or injected, by engines that take messages at any time; what
    /// the others are given is in their next model call.
    Delivered(Vec<String>),
    /// A message of the model that no message of ours asked for: a background task ended, a late answer came. It answers
    /// nothing.
    Autonomous(AssistantMessage),
    /// The engine stands before a model call of the running turn and goes on with [`EngineSession::proceed`](super::EngineSession::proceed).
    Boundary,
    /// The engine asks for something and goes on with [`EngineSession::answer`](super::EngineSession::answer).
    Asked {
        /// By which the answer is joined.
        id: String,
        /// What it asks for.
        asked: Asked,
    },
    /// What the engine has asked for is not wanted any more: it will not take the answer.
    Withdrawn {
        /// By which it was asked.
        id: String,
    },
    /// The older part of the context was summarised.
    Compacted {
        /// What stands for it from now on.
        summary: String,
        /// How many messages of the turn's context, from the first, it stands for; an earlier summary counts as one. 0
        /// where the engine keeps its own context and the summary in it.
        replaced: usize,
        /// What the summary cost.
        usage: Usage,
    },
    /// The provider refuses to read a message of the context, and the turn is about to fail for it. The record is to be
    /// stored with that message and given back as its `opaque`, so that the next turn goes without what was refused.
    Refused {
        /// The message, counted from the first of the turn's context as for [`EngineEvent::Compacted`].
        at: usize,
        /// The record.
        opaque: serde_json::Value,
    },
    /// A model call that brought nothing to keep has used this: its answer broke off, or was of no use. It is no iteration.
    Spent(Usage),
    /// What this attempt of the turn has used so far, all in all, like [`TurnDone::usage`]: more than its messages tell, for
    /// an answer that was cut off is paid for too. Of a turn that does not end well, nothing else says it; without it, what
    /// the messages and summaries have told is all.
    Used(Usage),
    /// The turn has ended well: the last [`EngineEvent::MessageDone`] is its answer.
    TurnDone(TurnDone),
    /// The turn was ended by [`EngineSession::interrupt`](super::EngineSession::interrupt); what was written so far came as deltas,
    /// and as a last message where the engine's own conversation keeps it.
    Interrupted,
    /// The turn has failed. The session can be used again unless the error says otherwise.
    Failed(EngineError),
}

impl EngineEvent {
    /// Whether this event is the last one of its turn.
    pub const fn ends_turn(&self) -> bool {
        matches!(self, Self::TurnDone(_) | Self::Interrupted | Self::Failed(_))
    }
}

/// One complete message of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssistantMessage {
    /// The text.
    pub content: String,
    /// Reasoning text, where the model shows it.
    pub thinking: Option<String>,
    /// The tools it calls. Empty: it is the turn's answer.
    pub tool_calls: Vec<ToolCall>,
    /// The model that wrote it, as the provider names it.
    pub model: Option<String>,
    /// What this message cost.
    pub usage: Usage,
    /// The engine's own id of this point of its native session.
    pub anchor: Option<String>,
    /// Why the provider cut the message short, if it did.
    pub truncated: Option<Truncated>,
    /// What the provider has to get back with this message when it is replayed. Only the engine reads it.
    pub opaque: Option<serde_json::Value>,
}

/// Why a provider cut a message short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncated {
    /// It has reached the longest length that the request or the model allows.
    Length,
    /// A filter of the provider has withheld the rest.
    ContentFilter,
}

/// How a turn ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnDone {
    /// Model calls in this attempt of the turn, at least 1.
    pub iterations: u32,
    /// What this attempt used, all in all, with what was told of in [`EngineEvent::Compacted`] and [`EngineEvent::Spent`];
    /// never cumulative over turns.
    pub usage: Usage,
    /// The messages that are answered, where the engine says so; empty: all that the turn was given. What is not among
    /// them is still the engine's, and comes with the next turn.
    pub answered: Vec<String>,
}

/// Tokens and cost, as the provider reported them. All 0 without a cost: nothing was reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that were not read from the provider's cache.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_tokens: u64,
    /// Output tokens that were reasoning.
    pub thinking_tokens: u64,
    /// Cost in billionths of a US dollar; `None` where no price is known.
    pub cost_nanos: Option<i64>,
}
