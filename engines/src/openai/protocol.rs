//! The wire of Chat Completions, as much of it as we use.
//!
//! What is read is permissive: any field may be missing or null, and unknown ones are passed over.

use std::fmt;

use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::lenient::{Count, Text};
use super::sent::Sent;
use super::usage::ReportedUsage;
use crate::contract::EngineError;

/// Members of the request that the engine sets itself.
pub(super) const OWN_MEMBERS: [&str; 5] = ["model", "messages", "stream", "stream_options", "tools"];

/// Members by which usage is asked for; not every server takes them.
pub(super) const USAGE_MEMBERS: [&str; 2] = ["stream_options", "include_usage"];

/// Members that servers refuse where there are no tools.
const TOOL_MEMBERS: [&str; 2] = ["tool_choice", "parallel_tool_calls"];

/// A request's body.
pub(super) struct Request<'a> {
    pub(super) model: &'a str,
    pub(super) messages: &'a [Sent<'a>],
    pub(super) tools: Option<&'a RawValue>,
    pub(super) asks_usage: bool,
    pub(super) extra: &'a Map<String, Value>,
}

impl Request<'_> {
    pub(super) fn to_bytes(&self) -> Result<Bytes, EngineError> {
        match serde_json::to_vec(self) {
            Ok(body) => Ok(body.into()),
            Err(error) => Err(EngineError::Provider {
                status: None,
                retry_after: None,
                detail: format!("the request cannot be written: {error}"),
            }),
        }
    }
}

impl Serialize for Request<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", self.model)?;
        body.serialize_entry("stream", &true)?;
        if self.asks_usage {
            body.serialize_entry("stream_options", &StreamOptions { include_usage: true })?;
        }
        for (name, value) in self.extra {
            if OWN_MEMBERS.contains(&&**name) {
                return Err(S::Error::custom(format_args!("{name} is set twice")));
            }
            if self.tools.is_some() || !TOOL_MEMBERS.contains(&&**name) {
                body.serialize_entry(name, value)?;
            }
        }
        if let Some(tools) = self.tools {
            body.serialize_entry("tools", tools)?;
        }
        body.serialize_entry("messages", &self.messages)?;
        body.end()
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// One event of an answer, or the whole answer of a server that does not stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    pub(super) usage: Option<ReportedUsage>,
    pub(super) error: Option<Value>,
    /// Older vLLM names an error here, with the rest beside it.
    #[serde(borrow)]
    pub(super) object: Text<'a>,
    /// Groq's own member: there its usage and its errors are.
    pub(super) x_groq: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    /// In the place of `delta` where the answer is not streamed.
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    /// Some servers report it here.
    pub(super) usage: Option<ReportedUsage>,
    pub(super) error: Option<Value>,
}

/// A piece of a message, or a whole one.
#[derive(Debug, Default)]
pub(super) struct Delta<'a> {
    pub(super) content: Text<'a>,
    /// `OpenAI` puts a refusal here, in the place of content.
    pub(super) refusal: Text<'a>,
    /// Reasoning, as vLLM, `DeepSeek` and llama.cpp name it.
    pub(super) reasoning_content: Text<'a>,
    /// Reasoning, as Ollama and `OpenRouter` name it. Some send both, with the same text.
    pub(super) reasoning: Text<'a>,
    pub(super) tool_calls: Option<Value>,
    /// The one call of servers that know no others.
    pub(super) function_call: Option<Value>,
    pub(super) error: Option<Value>,
    /// All members that are none of these, and both kinds of reasoning again.
    pub(super) others: Vec<(String, Value)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Delta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeltaVisitor)
    }
}

struct DeltaVisitor;

impl<'de> Visitor<'de> for DeltaVisitor {
    type Value = Delta<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message, or a piece of one")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut delta = Delta::default();
        while let Some(name) = members.next_key::<Text<'de>>()? {
            match name.as_str() {
                "content" => delta.content = members.next_value()?,
                "refusal" => delta.refusal = members.next_value()?,
                "reasoning_content" => delta.reasoning_content = members.next_value()?,
                "reasoning" => delta.reasoning = members.next_value()?,
                "tool_calls" => delta.tool_calls = members.next_value()?,
                "function_call" => delta.function_call = members.next_value()?,
                "error" => delta.error = members.next_value()?,
                _ => delta.others.push((name.as_str().to_owned(), members.next_value()?)),
            }
        }
        Ok(delta)
    }

    /// Some have a text in the place of a message.
    fn visit_borrowed_str<E>(self, _: &'de str) -> Result<Self::Value, E> {
        Ok(Delta::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Delta::default())
    }
}
