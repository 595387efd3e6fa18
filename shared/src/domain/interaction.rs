//! Interactions: a question of the agent to a person, which pauses the turn.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::job::names;
use super::{InteractionId, SessionId, TurnId};

names! {
    /// What is asked for.
    InteractionKind {
        /// Whether a tool may be called.
        Permission = "permission",
        /// Questions with options.
        Question = "question",
        /// The approval of a plan.
        Plan = "plan",
    }
}

names! {
    /// What became of a question.
    InteractionState {
        /// It waits for an answer.
        Open = "open",
        /// A person has answered.
        Answered = "answered",
        /// Nobody answered in time.
        Expired = "expired",
        /// Its turn has ended without an answer.
        Cancelled = "cancelled",
        /// Its run was lost; the question is asked anew where it is still open.
        Superseded = "superseded",
    }
}

names! {
    /// How a person decided.
    Decision {
        /// Yes.
        Allow = "allow",
        /// No.
        Deny = "deny",
    }
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InteractionAnswer {
    /// Yes or no.
    pub decision: Decision,
    /// Answers to questions, by question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub answers: Option<serde_json::Map<String, serde_json::Value>>,
    /// A word to the agent, above all with a no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Other arguments for the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub updated_input: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A question, as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Interaction {
    /// Its id.
    pub id: InteractionId,
    /// The session.
    pub session: SessionId,
    /// The turn that waits.
    pub turn: TurnId,
    /// What is asked for.
    pub kind: InteractionKind,
    /// What became of it.
    pub state: InteractionState,
    /// The question, as it is shown.
    pub payload: serde_json::Value,
    /// The answer.
    pub answer: Option<InteractionAnswer>,
    /// When it was asked.
    pub created_ms: i64,
    /// Until when it may be answered.
    pub expires_ms: i64,
    /// When it was answered or closed.
    pub resolved_ms: Option<i64>,
}
