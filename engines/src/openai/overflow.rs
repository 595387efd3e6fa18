//! Recognises that a context was too long for the model. Each server says it in its own way.

use serde_json::Value;

/// Where an error has a kind, and which of them mean it: `OpenAI`, llama.cpp, others.
const KINDS: [&str; 4] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "context_window_exceeded",
    "context_length_error",
];

/// Of which a text has to have one of each.
const SUBJECTS: [&str; 7] = [
    "context length",
    "context size",
    "context window",
    "context limit",
    "input length",
    "prompt length",
    "input token count",
];
const COMPLAINTS: [&str; 8] =
    ["exceed", "maximum", "too long", "longer than", "greater than", "too large", "is full", "larger than"];

/// What says it alone: `LiteLLM`, Anthropic, Bedrock, vLLM, Gemini, `OpenAI`, Groq, `DashScope`.
const PHRASES: [&str; 8] = [
    "reduce the length of the messages",
    "range of input length",
    "contextwindowexceeded",
    "prompt is too long",
    "input is too long",
    "maximum model length",
    "exceeds the maximum number of tokens",
    "input tokens exceed the configured limit",
];

/// Whether an error, with what it says in words, means that the context was too long. Not all of the error is read as
/// words: it may repeat the request.
pub(super) fn is_meant(error: &Value, words: Option<&str>) -> bool {
    let mut kinds = ["code", "type"].iter().filter_map(|key| error.get(key)?.as_str());
    kinds.any(|kind| KINDS.contains(&kind)) || words.is_some_and(is_said)
}

fn is_said(text: &str) -> bool {
    let text = text.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
    says(&PHRASES) || (says(&SUBJECTS) && says(&COMPLAINTS))
}
