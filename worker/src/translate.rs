//! Between the engines' words and the domain's: the only place that knows both.

use roundhouse_engines::contract::{
    AssistantMessage, ContextMessage, EngineError, InputMessage, Usage as EngineUsage,
};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Role, Usage};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{Claimed, ContextEntry, WrittenMessage};

pub(crate) fn history(entries: Vec<ContextEntry>) -> Vec<ContextMessage> {
    let message = |entry: ContextEntry| match entry.role {
        Role::User => ContextMessage::User(entry.content),
        Role::Assistant => ContextMessage::Assistant(entry.content),
        Role::System | Role::Tool => ContextMessage::System(entry.content),
    };
    entries.into_iter().map(message).collect()
}

pub(crate) fn input(job: &Claimed) -> InputMessage {
    InputMessage { id: job.job.to_string(), text: job.text.clone() }
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

pub(crate) fn written(message: AssistantMessage) -> WrittenMessage {
    WrittenMessage {
        content: message.content,
        thinking: message.thinking,
        model: message.model,
        usage: usage(message.usage),
        thinking_tokens: count(message.usage.thinking_tokens),
    }
}

pub(crate) fn problem(error: &EngineError) -> Problem {
    let code = match error {
        EngineError::Unavailable(_) => Code::EngineUnavailable,
        EngineError::Provider { .. } | EngineError::NoProgress(_) => Code::EngineFailed,
    };
    Problem::with_detail(code, error.to_string())
}
