//! Messages: what is displayed, and what engines that replay are given.

use serde::{Deserialize, Serialize};

use super::job::names;
use super::{JobId, MessageId, SessionId, TurnId, Usage};
use std::fmt;

names! {
    /// Who wrote a message.
    Role {
        /// A person or a program, over the API.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// A tool that the agent called.
        Tool = "tool",
        /// Roundhouse itself.
        System = "system",
    }
}

/// Why a provider cut a message short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Truncated {
    /// It has reached the longest length that the request or the model allows.
    Length,
    /// A filter of the provider has withheld the rest.
    ContentFilter,
}

impl Truncated {
    /// The name in the API and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Length, Self::ContentFilter].into_iter().find(|truncated| truncated.as_str() == name)
    }
}

/// A point of an engine's own conversation. It means nothing in any other: an engine's copy may have new ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The native session.
    pub native: String,
    /// The engine's id of the point.
    pub at: String,
}

/// One message, as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its id, ascending within the session.
    pub id: MessageId,
    /// The session.
    pub session: SessionId,
    /// Its place in the order of arrival.
    pub seq: i64,
    /// The turn that consumed or wrote it.
    pub turn: Option<TurnId>,
    /// The job that brought it.
    pub job: Option<JobId>,
    /// Who wrote it.
    pub role: Role,
    /// The text.
    pub content: String,
    /// Reasoning text.
    pub thinking: Option<String>,
    /// Tool calls, as a JSON array.
    pub tool_calls: Option<serde_json::Value>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// The model that wrote it.
    pub model: Option<String>,
    /// What it used; `None` for messages that no model wrote.
    pub usage: Option<Usage>,
    /// Output tokens that were reasoning.
    pub thinking_tokens: Option<i64>,
    /// Attachments, as a JSON array.
    pub attachments: Option<serde_json::Value>,
    /// The engine's own ids of this point of its native session.
    pub engine_metadata: Option<serde_json::Value>,
    /// An id from outside.
    pub external_id: Option<String>,
    /// Where it came from: `user`, `agent:<name>`, `engine`.
    pub origin: String,
    /// Whether it was cut off by a cancel.
    pub cancelled: bool,
    /// Whether the turn failed while the model wrote it: it is the beginning of a message.
    pub failed: bool,
    /// Why the provider cut it short, if it did.
    pub truncated: Option<Truncated>,
    /// When it arrived.
    pub created_ms: i64,
}
