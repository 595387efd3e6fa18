//! Usage that a test can compute from the request.

use serde::Serialize;

use crate::{
    anthropic::Messages,
    chat::Chat,
    log::Protocol,
    responses::Responses,
    wire::{Request, Wire},
};

/// What one request is said to have used. A token is a word: a run of characters without white space.
///
/// - `input_tokens`: the words of all texts of the request: system prompt or instructions, messages of every role, tool
///   results; as sent, so with whatever a CLI adds. Tool definitions and the arguments of calls do not count.
/// - `cached_tokens`: the part of it that comes before the last user message, if there is a user message before that
///   one; otherwise 0. A user message is one with text: tool results alone are none.
/// - `output_tokens`: the words of the reply, or for a tool call the words of its arguments (JSON) as sent.
///
/// Chat Completions and Responses report `input_tokens` with the cached part in it, Anthropic Messages without it
/// (`input_tokens` + `cache_read_input_tokens` is the sum there), as the real ones do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// All words of the request, the cached ones included.
    pub input_tokens: u64,
    /// The words before the last user message, if it is not the first.
    pub cached_tokens: u64,
    /// The words of the reply.
    pub output_tokens: u64,
}

/// The number of words in a text.
pub fn words(text: &str) -> u64 {
    text.split_ascii_whitespace().count() as u64
}

/// The usage of a request that was answered with `reply`; `None` for a request that cannot be read.
pub fn usage_of(protocol: Protocol, request: &[u8], reply: &str) -> Option<Usage> {
    let read = match protocol {
        Protocol::Chat => Chat::read(request),
        Protocol::Messages | Protocol::CountTokens => Messages::read(request),
        Protocol::Responses => Responses::read(request),
    };
    read.ok().map(|request: Request<'_>| request.conversation.usage(reply))
}
