//! The wire of Chat Completions, as much of it as we use.
//!
//! What is read is permissive: any field may be missing or null, and unknown ones are passed over.

use bytes::Bytes;
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::lenient::{Count, Text};
use super::usage::ReportedUsage;
use crate::contract::{ContextMessage, EngineError, TurnInput};

/// Members of the request that the engine sets itself.
pub(super) const OWN_MEMBERS: [&str; 4] = ["model", "messages", "stream", "stream_options"];

/// One message of the request.
#[derive(Debug, Serialize)]
pub(super) struct Message {
    role: &'static str,
    content: String,
}

/// The context of a turn. What the turn answers becomes one message: some servers refuse two of a person in a row.
pub(super) fn context(input: TurnInput) -> Vec<Message> {
    let question = match <[_; 1]>::try_from(input.messages) {
        Ok([message]) => message.text,
        Err(messages) => messages.iter().map(|message| &*message.text).collect::<Vec<_>>().join("\n\n"),
    };
    let history = input.history.into_iter().map(|message| match message {
        ContextMessage::User(content) => Message { role: "user", content },
        ContextMessage::Assistant(content) => Message { role: "assistant", content },
        ContextMessage::System(content) => Message { role: "system", content },
    });
    history.chain([Message { role: "user", content: question }]).collect()
}

/// A request's body.
pub(super) struct Request<'a> {
    pub(super) model: &'a str,
    pub(super) instructions: &'a str,
    pub(super) messages: &'a [Message],
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
            body.serialize_entry(name, value)?;
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
        struct System<'a> {
            role: &'static str,
            content: &'a str,
        }

        let Request { instructions, messages, .. } = self.0;
        let mut list = serializer.serialize_seq(None)?;
        if !instructions.is_empty() {
            list.serialize_element(&System { role: "system", content: instructions })?;
        }
        for message in *messages {
            list.serialize_element(message)?;
        }
        list.end()
    }
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
