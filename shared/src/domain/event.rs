//! Events: a session's ordered stream, as clients read it.
//!
//! An event's data is JSON from the moment it is made: it travels over the bus and to the clients as it is.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{
    ChatResult, Decision, EngineKind, EventId, InteractionId, InteractionState, JobId, JobKind, MessageId,
    SessionId, SessionStatus, TokenUsage, TurnId,
};
use crate::problem::Problem;

use super::view::{InteractionView, MessageView};

macro_rules! event_names {
    ($($variant:ident = $name:literal,)*) => {
        /// The type of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventName { $(#[doc = concat!("`", $name, "`")] $variant,)* }

        impl EventName {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that clients see.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

event_names! {
    SessionSnapshot = "session.snapshot",
    Resync = "resync",
    JobAccepted = "job.accepted",
    JobStarted = "job.started",
    JobCancelled = "job.cancelled",
    UserMessage = "chat.user_message",
    InjectionDelivered = "injection.delivered",
    TurnStarted = "turn.started",
    TurnCompleted = "turn.completed",
    TurnFailed = "turn.failed",
    MessageDelta = "message.delta",
    ThinkingDelta = "thinking.delta",
    MessageCompleted = "message.completed",
    ToolStarted = "tool.started",
    ToolOutput = "tool.output",
    ToolCompleted = "tool.completed",
    InteractionRequested = "interaction.requested",
    InteractionResolved = "interaction.resolved",
    ContextReset = "context.reset",
    ContextCompacted = "context.compacted",
    EngineRetry = "engine.retry",
    ChatResponse = "chat.response",
    SessionTrimmed = "session.trimmed",
    SessionReset = "session.reset",
    SessionForked = "session.forked",
    SessionUpdated = "session.updated",
    Done = "done",
    Error = "error",
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happened, beside where. One variant for each row of the contract's table.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum EventKind {
    /// A job was admitted.
    JobAccepted {
        /// What became of the message.
        kind: JobKind,
    },
    /// A turn took the job.
    JobStarted {
        /// What it asks for.
        kind: JobKind,
    },
    /// The job was cancelled.
    JobCancelled {
        /// What it asked for.
        kind: JobKind,
    },
    /// A user's message was stored.
    UserMessage {
        /// Its text.
        content: String,
        /// Where it came from.
        origin: String,
        /// Whether the agent was at work.
        injected: bool,
    },
    /// A message sent while the agent worked is in its context.
    InjectionDelivered {
        /// The jobs whose messages reached the engine as one.
        merged: Vec<JobId>,
    },
    /// A turn has begun.
    TurnStarted {
        /// What runs it.
        engine: EngineKind,
        /// The model asked for.
        model: Option<String>,
    },
    /// A turn has ended well.
    TurnCompleted {
        /// What it used.
        usage: TokenUsage,
        /// Its model calls.
        iterations: i64,
    },
    /// A turn has ended otherwise.
    TurnFailed {
        /// Why.
        problem: Problem,
    },
    /// A piece of the answer.
    MessageDelta {
        /// The text.
        text: String,
    },
    /// A piece of reasoning.
    ThinkingDelta {
        /// The text.
        text: String,
    },
    /// A message is complete and stored.
    MessageCompleted {
        /// The message.
        message: Box<MessageView>,
    },
    /// A tool begins.
    ToolStarted {
        /// The call.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// Its arguments; text where the model wrote no JSON.
        input: serde_json::Value,
    },
    /// A running tool says something.
    ToolOutput {
        /// The call.
        tool_call_id: String,
        /// The text.
        text: String,
    },
    /// A tool has ended.
    ToolCompleted {
        /// The call.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// Whether it did what it was called for.
        success: bool,
        /// What the model is told, bounded.
        result: String,
    },
    /// The agent asks a person.
    InteractionRequested {
        /// The question.
        interaction: Box<InteractionView>,
    },
    /// A question was answered or closed.
    InteractionResolved {
        /// The question.
        interaction_id: InteractionId,
        /// What became of it.
        state: InteractionState,
        /// How a person decided, if one did.
        decision: Option<Decision>,
    },
    /// The engine has lost its conversation and begins again with what is stored.
    ContextReset {
        /// Why.
        reason: &'static str,
    },
    /// The older part of the context was summarised.
    ContextCompacted {
        /// Why.
        reason: &'static str,
        /// How many messages the summary stands for.
        compact_size: i64,
    },
    /// The engine waits for its provider.
    EngineRetry {
        /// Which try failed, from 1.
        attempt: u32,
        /// How long it waits, in milliseconds.
        delay_ms: u64,
        /// The provider's HTTP status.
        status: Option<u16>,
    },
    /// The answer to a job.
    ChatResponse(Box<ChatResult>),
    /// The end of the conversation is gone, after the message that the event names: reload.
    SessionTrimmed {
        /// How many messages are gone.
        deleted: i64,
    },
    /// All messages are gone: reload.
    SessionReset {
        /// How many they were.
        deleted: i64,
    },
    /// Another session has a copy of this one, up to the message that the event names.
    SessionForked {
        /// The other session.
        forked_session_id: SessionId,
    },
    /// A session's own data was changed.
    SessionUpdated {},
}

impl EventKind {
    /// The event's type.
    pub const fn name(&self) -> EventName {
        match self {
            Self::JobAccepted { .. } => EventName::JobAccepted,
            Self::JobStarted { .. } => EventName::JobStarted,
            Self::JobCancelled { .. } => EventName::JobCancelled,
            Self::UserMessage { .. } => EventName::UserMessage,
            Self::InjectionDelivered { .. } => EventName::InjectionDelivered,
            Self::TurnStarted { .. } => EventName::TurnStarted,
            Self::TurnCompleted { .. } => EventName::TurnCompleted,
            Self::TurnFailed { .. } => EventName::TurnFailed,
            Self::MessageDelta { .. } => EventName::MessageDelta,
            Self::ThinkingDelta { .. } => EventName::ThinkingDelta,
            Self::MessageCompleted { .. } => EventName::MessageCompleted,
            Self::ToolStarted { .. } => EventName::ToolStarted,
            Self::ToolOutput { .. } => EventName::ToolOutput,
            Self::ToolCompleted { .. } => EventName::ToolCompleted,
            Self::InteractionRequested { .. } => EventName::InteractionRequested,
            Self::InteractionResolved { .. } => EventName::InteractionResolved,
            Self::ContextReset { .. } => EventName::ContextReset,
            Self::ContextCompacted { .. } => EventName::ContextCompacted,
            Self::EngineRetry { .. } => EventName::EngineRetry,
            Self::ChatResponse(_) => EventName::ChatResponse,
            Self::SessionTrimmed { .. } => EventName::SessionTrimmed,
            Self::SessionReset { .. } => EventName::SessionReset,
            Self::SessionForked { .. } => EventName::SessionForked,
            Self::SessionUpdated {} => EventName::SessionUpdated,
        }
    }
}

/// Where an event belongs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scope {
    /// The job.
    pub job: Option<JobId>,
    /// The turn.
    pub turn: Option<TurnId>,
    /// The message.
    pub message: Option<MessageId>,
    /// Which attempt of the turn.
    pub attempt: Option<i64>,
}

/// An event that has no number yet: it gets one where it is appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Its type.
    pub name: EventName,
    /// The job it belongs to.
    pub job: Option<JobId>,
    /// The turn it belongs to.
    pub turn: Option<TurnId>,
    /// Its data, a JSON object.
    pub data: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<TurnId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<i64>,
    #[serde(flatten)]
    kind: &'a EventKind,
}

impl NewEvent {
    /// An event of `session` that happened at `at_ms`.
    pub fn new(session: SessionId, at_ms: i64, scope: Scope, kind: &EventKind) -> Self {
        let Scope { job, turn, message, attempt } = scope;
        let at = crate::clock::rfc3339(at_ms);
        let data = match kind {
            // A result says by itself where it belongs.
            EventKind::ChatResponse(_) => {
                Data { session_id: None, at, job_id: None, turn_id: None, message_id: None, attempt, kind }
            }
            _ => Data {
                session_id: Some(session),
                at,
                job_id: job,
                turn_id: turn,
                message_id: message,
                attempt,
                kind,
            },
        };
        // Plain data of ours with string keys always serialises.
        let data = serde_json::to_string(&data).unwrap_or_else(|_| "{}".to_owned());
        Self { name: kind.name(), job, turn, data }
    }
}

/// One entry of a session's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub id: EventId,
    /// Its type.
    pub name: EventName,
    /// The job it belongs to.
    pub job: Option<JobId>,
    /// The turn it belongs to.
    pub turn: Option<TurnId>,
    /// Its data, a JSON object.
    pub data: Arc<str>,
}

/// What a client needs to know before it follows a stream: the data of `session.snapshot` and of `resync`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The session.
    pub session_id: SessionId,
    /// When it was taken.
    pub at: String,
    /// What the session does.
    pub status: SessionStatus,
    /// Its newest message.
    pub last_message_id: Option<MessageId>,
    /// The turn that runs.
    pub active_turn_id: Option<TurnId>,
    /// The questions that are open.
    pub interactions: Vec<InteractionView>,
    /// Why the client has to start afresh; only in `resync`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_says_where_and_what() {
        let (session, job) = (SessionId::generate(), JobId::generate());
        let scope = Scope { job: Some(job), ..Scope::default() };
        let event = NewEvent::new(session, 0, scope, &EventKind::JobAccepted { kind: JobKind::Chat });
        assert_eq!(
            event.data,
            format!(
                r#"{{"sessionId":"{session}","at":"1970-01-01T00:00:00.000Z","jobId":"{job}","kind":"chat"}}"#
            )
        );
        assert_eq!(event.name.as_str(), "job.accepted");
    }

    #[test]
    fn names_read_back() {
        for name in EventName::ALL {
            assert_eq!(EventName::from_name(name.as_str()), Some(*name));
        }
    }
}
