//! Between the engines' words and the domain's: the only place that knows both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roundhouse_engines::contract::{
    AssistantMessage, Attachment, ContextMessage, Earlier, EngineError, InputMessage, ToolCall,
    Truncated as EngineTruncated, Usage as EngineUsage,
};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Anchor, Role, Truncated, Usage};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{Claimed, ContextEntry, SoFar, Unsent, WrittenMessage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A tool call as it is stored with the message that makes it.
#[derive(Serialize, Deserialize)]
struct StoredCall {
    id: String,
    name: String,
    arguments: String,
}

/// A file as it is stored with its message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredFile {
    name: String,
    media_type: String,
    data: String,
}

pub(crate) fn context(entry: ContextEntry) -> ContextMessage {
    let (text, opaque) = (entry.content, entry.opaque);
    match entry.role {
        Role::User => ContextMessage::User { text, attachments: files(entry.attachments), opaque },
        Role::Assistant => ContextMessage::Assistant { text, tool_calls: calls(entry.tool_calls), opaque },
        Role::Tool => ContextMessage::Tool { call: entry.tool_call_id.unwrap_or_default(), text, opaque },
        Role::System => ContextMessage::System(text),
    }
}

fn calls(stored: Option<Value>) -> Vec<ToolCall> {
    let stored: Vec<StoredCall> =
        stored.and_then(|stored| serde_json::from_value(stored).ok()).unwrap_or_default();
    let call = |StoredCall { id, name, arguments }| ToolCall { id, name, arguments };
    stored.into_iter().map(call).collect()
}

fn files(stored: Option<Value>) -> Vec<Attachment> {
    let stored: Vec<StoredFile> =
        stored.and_then(|stored| serde_json::from_value(stored).ok()).unwrap_or_default();
    let file = |StoredFile { name, media_type, data }| {
        Some(Attachment { name, media_type, data: STANDARD.decode(data).ok()?.into() })
    };
    stored.into_iter().filter_map(file).collect()
}

/// The messages of a turn. What a cut has left unanswered answers to nobody any more: it is a part of the first, and
/// delivered with that.
pub(crate) fn inputs(unsent: &[Unsent], jobs: &[Claimed]) -> Vec<InputMessage> {
    let mut messages: Vec<_> = jobs.iter().map(input).collect();
    if let Some(first) = messages.first_mut() {
        let texts = unsent.iter().map(|message| message.text.as_str());
        first.text = texts.chain([first.text.as_str()]).collect::<Vec<_>>().join("\n\n");
        let before = unsent.iter().flat_map(|message| files(message.attachments.clone()));
        first.attachments = before.chain(first.attachments.drain(..)).collect();
    }
    messages
}

pub(crate) fn input(job: &Claimed) -> InputMessage {
    InputMessage {
        id: job.job.to_string(),
        text: job.text.clone(),
        attachments: files(job.attachments.clone()),
    }
}

/// What a turn has come to before it was cut off.
pub(crate) fn earlier(so_far: SoFar, handed_back: bool) -> Earlier {
    let tokens = |count: i64| u64::try_from(count).unwrap_or_default();
    let Usage { input_tokens, output_tokens, cache_tokens, cost_nanos } = so_far.usage;
    Earlier {
        stopped: handed_back,
        iterations: u32::try_from(so_far.iterations).unwrap_or(u32::MAX),
        usage: EngineUsage {
            input_tokens: tokens(input_tokens),
            output_tokens: tokens(output_tokens),
            cache_tokens: tokens(cache_tokens),
            thinking_tokens: 0,
            cost_nanos,
        },
        anchors: so_far.anchors,
        results: so_far.results,
    }
}

/// Messages that reach the model as one, under the id of the first.
pub(crate) fn together(jobs: &[Claimed]) -> InputMessage {
    InputMessage {
        id: jobs.first().map(|job| job.job.to_string()).unwrap_or_default(),
        text: jobs.iter().map(|job| job.text.as_str()).collect::<Vec<_>>().join("\n\n"),
        attachments: jobs.iter().flat_map(|job| files(job.attachments.clone())).collect(),
    }
}

/// A tool's arguments as JSON; as text where the model wrote none.
pub(crate) fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// A tool's result; `native` is the conversation that its anchor belongs to.
pub(crate) fn tool_result(
    call: &str,
    text: &str,
    anchor: Option<String>,
    native: Option<&str>,
) -> WrittenMessage {
    WrittenMessage {
        role: Role::Tool,
        content: text.to_owned(),
        tool_call_id: Some(call.to_owned()),
        anchor: anchored(anchor, native),
        ..WrittenMessage::default()
    }
}

pub(crate) fn usage(usage: EngineUsage) -> Usage {
    Usage {
        input_tokens: count(usage.input_tokens),
        output_tokens: count(usage.output_tokens),
        cache_tokens: count(usage.cache_tokens),
        cost_nanos: usage.cost_nanos,
    }
}

fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// A message of the model; `native` is the conversation that its anchor belongs to.
pub(crate) fn written(message: AssistantMessage, native: Option<&str>) -> WrittenMessage {
    let call = |ToolCall { id, name, arguments }| StoredCall { id, name, arguments };
    let calls: Vec<_> = message.tool_calls.into_iter().map(call).collect();
    WrittenMessage {
        tool_calls: if calls.is_empty() { None } else { serde_json::to_value(calls).ok() },
        content: message.content,
        thinking: message.thinking,
        model: message.model,
        usage: usage(message.usage),
        thinking_tokens: count(message.usage.thinking_tokens),
        anchor: anchored(message.anchor, native),
        truncated: message.truncated.map(truncated),
        opaque: message.opaque,
        ..WrittenMessage::default()
    }
}

const fn truncated(why: EngineTruncated) -> Truncated {
    match why {
        EngineTruncated::Length => Truncated::Length,
        EngineTruncated::ContentFilter => Truncated::ContentFilter,
    }
}

fn anchored(anchor: Option<String>, native: Option<&str>) -> Option<Anchor> {
    anchor.zip(native).map(|(at, native)| Anchor { native: native.to_owned(), at })
}

pub(crate) fn problem(error: &EngineError) -> Problem {
    let code = match error {
        EngineError::Unavailable(_) => Code::EngineUnavailable,
        // Whoever forks or resumes answers these three themselves; anywhere else they are failures like others.
        EngineError::ForkFailed(_)
        | EngineError::ResumeDropped(_)
        | EngineError::Behind(_)
        | EngineError::Died { .. }
        | EngineError::Provider { .. }
        | EngineError::NoProgress { .. }
        | EngineError::Limit(_) => Code::EngineFailed,
    };
    Problem::with_detail(code, error.to_string())
}
