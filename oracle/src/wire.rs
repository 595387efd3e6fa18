//! What the three protocols have in common: a request to read, an answer to write whole or as server-sent events.

use std::borrow::Cow;

use serde_json::Value;

use crate::{context::Conversation, log::Protocol, reply::Reply, usage::Usage};

/// `created` in answers. A clock would make two equal requests differ.
pub(crate) const CREATED: u64 = 1_700_000_000;

/// A request, read.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) conversation: Conversation<'a>,
    pub(crate) model: Cow<'a, str>,
    pub(crate) stream: bool,
    /// The stream is to end with the usage (Chat Completions only; the others always tell it).
    pub(crate) include_usage: bool,
}

/// An answer, before it takes the shape of its protocol.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    /// Unique, and safe in ids of any kind.
    pub(crate) id: &'a str,
    pub(crate) model: &'a str,
    pub(crate) reply: &'a Reply,
    pub(crate) text: &'a str,
    pub(crate) usage: Usage,
    pub(crate) include_usage: bool,
}

/// A streamed answer: `deltas` are what a slow reply spreads.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) head: String,
    pub(crate) deltas: Vec<String>,
    pub(crate) tail: String,
}

/// One of the three protocols.
pub(crate) trait Wire {
    const PROTOCOL: Protocol;

    /// Reads a request; the error says what is wrong with it.
    fn read(body: &[u8]) -> Result<Request<'_>, String>;

    fn whole(answer: &Answer<'_>) -> Value;

    fn events(answer: &Answer<'_>) -> Events;

    fn error(status: u16, message: &str) -> Value;
}

/// Appends a server-sent event whose name is the `type` of its data, as Anthropic and Responses have it.
pub(crate) fn push_typed(to: &mut String, data: &Value) {
    if let Some(kind) = data["type"].as_str() {
        to.extend(["event: ", kind, "\n"]);
    }
    push(to, data);
}

/// Appends a server-sent event without a name.
pub(crate) fn push(to: &mut String, data: &Value) {
    to.extend(["data: ", &data.to_string(), "\n\n"]);
}

/// The arguments of a call in two parts, as models send them, so that clients have something to join.
pub(crate) fn halves(text: &str) -> [&str; 2] {
    let (one, two) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [one, two]
}
