//! Messages and questions as clients see them: in events and in lists the same.

use serde::Serialize;

use super::answer::dollars;
use super::{
    Decision, Interaction, InteractionId, InteractionKind, InteractionState, JobId, Message, MessageId, Role,
    SessionId, Truncated, TurnId,
};
use crate::clock::rfc3339;

/// A message as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    /// Its id, ascending within the session.
    pub id: MessageId,
    /// The session.
    pub session_id: SessionId,
    /// The turn that consumed or wrote it.
    pub turn_id: Option<TurnId>,
    /// The job that brought it.
    pub job_id: Option<JobId>,
    /// Who wrote it.
    pub role: Role,
    /// The text.
    pub content: String,
    /// Reasoning text.
    pub thinking_content: Option<String>,
    /// Tool calls.
    pub tool_calls: Option<serde_json::Value>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// The model that wrote it.
    pub model: Option<String>,
    /// Input tokens that were not read from the provider's cache.
    pub input_tokens: Option<i64>,
    /// Output tokens.
    pub output_tokens: Option<i64>,
    /// Input tokens read from the provider's cache.
    pub cache_tokens: Option<i64>,
    /// Cost in US dollars; `null` where it is not known.
    pub cost: Option<f64>,
    /// Output tokens that were reasoning.
    pub thinking_tokens: Option<i64>,
    /// Attachments.
    pub attachments: Option<serde_json::Value>,
    /// The engine's own ids of this point of its native session.
    pub engine_metadata: Option<serde_json::Value>,
    /// An id from outside.
    pub external_id: Option<String>,
    /// Where it came from.
    pub origin: String,
    /// Whether it was cut off by a cancel.
    pub cancelled: bool,
    /// Whether the turn failed while the model wrote it: it is the beginning of a message.
    pub failed: bool,
    /// Why the provider cut it short; `null` where it did not.
    pub truncated: Option<Truncated>,
    /// When it arrived.
    pub created_at: String,
}

impl From<Message> for MessageView {
    fn from(message: Message) -> Self {
        Self {
            id: message.id,
            session_id: message.session,
            turn_id: message.turn,
            job_id: message.job,
            role: message.role,
            content: message.content,
            thinking_content: message.thinking,
            tool_calls: message.tool_calls,
            tool_call_id: message.tool_call_id,
            model: message.model,
            input_tokens: message.usage.map(|usage| usage.input_tokens),
            output_tokens: message.usage.map(|usage| usage.output_tokens),
            cache_tokens: message.usage.map(|usage| usage.cache_tokens),
            cost: message.usage.and_then(|usage| usage.cost_nanos).map(dollars),
            thinking_tokens: message.thinking_tokens,
            attachments: message.attachments.map(without_data),
            // Other rows have an anchor for cuts only.
            engine_metadata: message.engine_metadata.filter(|_| message.role == Role::Assistant),
            external_id: message.external_id,
            origin: message.origin,
            cancelled: message.cancelled,
            failed: message.failed,
            truncated: message.truncated,
            created_at: rfc3339(message.created_ms),
        }
    }
}

/// What files there are, without their content.
fn without_data(mut files: serde_json::Value) -> serde_json::Value {
    for file in files.as_array_mut().into_iter().flatten() {
        if let Some(file) = file.as_object_mut() {
            file.remove("data");
        }
    }
    files
}

/// A question as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractionView {
    /// Its id.
    pub id: InteractionId,
    /// The session.
    pub session_id: SessionId,
    /// The turn that waits.
    pub turn_id: TurnId,
    /// What is asked for.
    pub kind: InteractionKind,
    /// What became of it.
    pub state: InteractionState,
    /// The question: for a permission `{toolCallId, tool, input}`, for questions `{questions}`.
    pub payload: serde_json::Value,
    /// How a person decided, if one did.
    pub decision: Option<Decision>,
    /// When it was asked.
    pub created_at: String,
    /// Until when it may be answered.
    pub expires_at: String,
}

impl From<Interaction> for InteractionView {
    fn from(of: Interaction) -> Self {
        Self {
            id: of.id,
            session_id: of.session,
            turn_id: of.turn,
            kind: of.kind,
            state: of.state,
            payload: of.payload,
            decision: of.answer.map(|answer| answer.decision),
            created_at: rfc3339(of.created_ms),
            expires_at: rfc3339(of.expires_ms),
        }
    }
}
