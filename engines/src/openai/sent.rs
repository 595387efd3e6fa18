//! Messages of a request, and how they are written.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::attachments::Part;
use super::message::Called;

/// One message of a request, with the entries that it is made of.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) entries: Vec<usize>,
    pub(super) said: Said<'a>,
}

#[derive(Debug)]
pub(super) enum Said<'a> {
    System(Cow<'a, str>),
    User(Vec<Piece<'a>>),
    Assistant(Assistant<'a>),
    Tool { tool_call_id: Cow<'a, str>, content: &'a str },
}

/// A piece of a person's message.
#[derive(Debug, Clone)]
pub(super) enum Piece<'a> {
    Text(Cow<'a, str>),
    Part(&'a Part),
}

#[derive(Debug)]
pub(super) struct Assistant<'a> {
    pub(super) content: Option<Cow<'a, str>>,
    pub(super) calls: Vec<Call<'a>>,
    pub(super) members: Vec<(&'a str, Cow<'a, Value>)>,
}

#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) called: &'a Called,
    pub(super) members: Vec<(&'a str, Cow<'a, Value>)>,
    pub(super) of_function: Vec<(&'a str, &'a Value)>,
}

impl Serialize for Sent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut message = serializer.serialize_map(None)?;
        match &self.said {
            Said::System(content) => {
                message.serialize_entry("role", "system")?;
                message.serialize_entry("content", content)?;
            }
            Said::User(pieces) => {
                message.serialize_entry("role", "user")?;
                match joined(pieces) {
                    Some(text) => message.serialize_entry("content", &text)?,
                    None => message.serialize_entry("content", pieces)?,
                }
            }
            Said::Assistant(Assistant { content, calls, members }) => {
                message.serialize_entry("role", "assistant")?;
                message.serialize_entry("content", content)?;
                if !calls.is_empty() {
                    message.serialize_entry("tool_calls", calls)?;
                }
                for (name, value) in members {
                    message.serialize_entry(name, value)?;
                }
            }
            Said::Tool { tool_call_id, content } => {
                message.serialize_entry("role", "tool")?;
                message.serialize_entry("tool_call_id", tool_call_id)?;
                message.serialize_entry("content", content)?;
            }
        }
        message.end()
    }
}

/// The text of a message that is nothing but text.
fn joined<'b>(pieces: &'b [Piece<'_>]) -> Option<Cow<'b, str>> {
    let mut texts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Text(text) => texts.push(&**text),
            Piece::Part(_) => return None,
        }
    }
    Some(if let [text] = texts[..] { text.into() } else { texts.join("\n\n").into() })
}

impl Serialize for Piece<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => Part::text(&**text).serialize(serializer),
            Self::Part(part) => part.serialize(serializer),
        }
    }
}

impl Serialize for Call<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Function<'a>(&'a Called, &'a [(&'a str, &'a Value)]);

        impl Serialize for Function<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut function = serializer.serialize_map(None)?;
                function.serialize_entry("name", &self.0.name)?;
                function.serialize_entry("arguments", &self.0.arguments)?;
                for (name, value) in self.1 {
                    function.serialize_entry(name, value)?;
                }
                function.end()
            }
        }

        let mut call = serializer.serialize_map(None)?;
        call.serialize_entry("id", &self.id)?;
        call.serialize_entry("type", "function")?;
        call.serialize_entry("function", &Function(self.called, &self.of_function))?;
        for (name, value) in &self.members {
            call.serialize_entry(name, value)?;
        }
        call.end()
    }
}
