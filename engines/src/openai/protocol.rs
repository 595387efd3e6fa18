//! The wire of Chat Completions, as much of it as we use.
//!
//! What is read is permissive: any field may be missing or null, and unknown ones are passed over.

use bytes::Bytes;
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::conversation::Entry;
use super::lenient::{Count, Text};
use super::message::Message;
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
    pub(super) instructions: &'a str,
    pub(super) entries: &'a [Entry],
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
        body.serialize_entry("messages", &Messages(self))?;
        body.end()
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

struct Messages<'a>(&'a Request<'a>);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Text<'a> {
            role: &'static str,
            content: &'a str,
        }

        let Request { instructions, entries, .. } = self.0;
        let mut list = serializer.serialize_seq(None)?;
        if !instructions.is_empty() {
            list.serialize_element(&Text { role: "system", content: instructions })?;
        }
        let spoken = spoken_by_user(entries);
        for (index, Entry { message, .. }) in entries.iter().enumerate() {
            match message {
                Message::System { content } if spoken == Some(index) => {
                    list.serialize_element(&Text { role: "user", content })?;
                }
                message => list.serialize_element(message)?,
            }
        }
        list.end()
    }
}

/// Some models take no conversation that does not begin with a person's message. Where a summary has replaced it, the
/// summary is sent as one.
fn spoken_by_user(entries: &[Entry]) -> Option<usize> {
    let first = entries.iter().position(|entry| !matches!(entry.message, Message::System { .. }))?;
    if matches!(entries[first].message, Message::User { .. }) { None } else { first.checked_sub(1) }
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Text<'a>,
    /// `OpenAI` puts a refusal here, in the place of content.
    #[serde(borrow)]
    pub(super) refusal: Text<'a>,
    /// Reasoning, as vLLM, `DeepSeek` and llama.cpp name it.
    #[serde(borrow)]
    pub(super) reasoning_content: Text<'a>,
    /// Reasoning, as Ollama and `OpenRouter` name it. Some send both, with the same text.
    #[serde(borrow)]
    pub(super) reasoning: Text<'a>,
    pub(super) tool_calls: Option<Vec<Value>>,
}
