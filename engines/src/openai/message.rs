//! Messages of a conversation, and what of the contract becomes them.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::attachments::Part;
use super::conversation::Tokens;
use super::opaque::Record;
use super::toolbox::wire_name;
use crate::contract::{Attachment, ToolCall};
use crate::tools::bounded::cut;

/// How much of a text, or of what a tool returned, a summary is made from.
const SHOWN_TEXT_BYTES: usize = 16 * 1024;
const SHOWN_RESULT_BYTES: usize = 4 * 1024;

/// One message of the conversation. How it is sent is the replay's matter.
#[derive(Debug, Clone)]
pub(super) enum Message {
    System {
        content: String,
    },
    User {
        content: Content,
    },
    Assistant {
        content: String,
        tool_calls: Vec<Called>,
        /// What its maker gets back with it.
        record: Option<Arc<Record>>,
    },
    Tool {
        tool_call_id: String,
        content: String,
    },
}

/// A text alone stays a text: not every server takes parts.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Clone)]
pub(super) struct Called {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Message {
    pub(super) fn user(text: String, attachments: &[Attachment]) -> Self {
        if attachments.is_empty() {
            return Self::User { content: Content::Text(text) };
        }
        let said = (!text.is_empty()).then_some(Part::Text { text });
        Self::User {
            content: Content::Parts(said.into_iter().chain(attachments.iter().map(Part::of)).collect()),
        }
    }

    pub(super) fn assistant(content: String, tool_calls: &[ToolCall], record: Option<Record>) -> Self {
        let tool_calls = tool_calls.iter().map(Called::new).collect();
        Self::Assistant { content, tool_calls, record: record.map(Arc::new) }
    }

    /// Whether it has an image.
    pub(super) fn has_images(&self) -> bool {
        match self {
            Self::User { content: Content::Parts(parts) } => parts.iter().any(Part::is_image),
            _ => false,
        }
    }

    pub(super) fn tokens(&self) -> Tokens {
        /// What a message needs around its content.
        const FRAME: Tokens = Tokens(4);

        let content = match self {
            Self::System { content } | Self::Tool { content, .. } => Tokens::of(content),
            Self::User { content: Content::Text(text) } => Tokens::of(text),
            Self::User { content: Content::Parts(parts) } => parts.iter().map(Part::tokens).sum(),
            Self::Assistant { content, tool_calls, .. } => {
                let calls = tool_calls
                    .iter()
                    .map(|Called { name, arguments, .. }| Tokens::of(name) + Tokens::of(arguments) + FRAME);
                Tokens::of(content) + calls.sum()
            }
        };
        content + FRAME
    }

    /// The message as a text of bounded length, for a summary.
    pub(super) fn shown(&self) -> String {
        let text = |text: &str| cut(text, SHOWN_TEXT_BYTES / 2, SHOWN_TEXT_BYTES / 2);
        let short = |text: &str| cut(text, SHOWN_RESULT_BYTES / 2, SHOWN_RESULT_BYTES / 2);
        match self {
            Self::System { content } => format!("Note: {}", text(content)),
            Self::User { content } => format!("User: {}", text(&content.shown())),
            Self::Tool { content, .. } => format!("Result: {}", short(content)),
            Self::Assistant { content, tool_calls, .. } => {
                let is_said = !content.trim().is_empty() || tool_calls.is_empty();
                let said = is_said.then(|| format!("Assistant: {}", text(content)));
                let calls = tool_calls
                    .iter()
                    .map(|call| format!("Call of {}: {}", call.name, short(&call.arguments)));
                said.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl Content {
    /// What a person said, without files.
    pub(super) fn said(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Parts(parts) => Cow::Borrowed(parts.first().map(Part::shown).unwrap_or_default()),
        }
    }

    /// What a text can show of it.
    pub(super) fn shown(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Parts(parts) => Cow::Owned(parts.iter().map(Part::shown).collect::<Vec<_>>().join("\n")),
        }
    }
}

impl Called {
    fn new(call: &ToolCall) -> Self {
        Self { id: call.id.clone(), name: wire_name(&call.name), arguments: arguments(&call.arguments) }
    }
}

/// The arguments as they go back to the server. Many read them, and fail at what is no JSON object.
fn arguments(written: &str) -> String {
    if serde_json::from_str::<Map<String, Value>>(written).is_ok() {
        written.to_owned()
    } else if written.trim().is_empty() {
        "{}".to_owned()
    } else {
        Value::from(Map::from_iter([("invalid_arguments".to_owned(), Value::from(written))])).to_string()
    }
}
