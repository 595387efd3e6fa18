//! Decides what a provider meant by what it sent with status 200: an answer, a part of one, or a failure.
//!
//! | what came | what it means |
//! |---|---|
//! | a known good `finish_reason`, or `[DONE]` alone, or a whole message that is not streamed | the answer |
//! | …without text and without calls, whatever was thought | an empty answer: made once more, then a failure |
//! | `finish_reason` `length` and its like | the answer as far as it goes; its calls never run |
//! | `finish_reason` `content_filter` and its like | the same |
//! | …without text and without calls | a failure that says so |
//! | a `finish_reason` that says that the context is full, and no text | the context is too long |
//! | any other `finish_reason` (`error`, `network_error`, one that is not known) | a failure that names it |
//! | `error` in a chunk, a choice or a delta; an event or a line named `error`; `object` or `type` `"error"` | a failure in the provider's words |
//! | a chunk without choices that has an error's members (`errors`, `message` with `code`, `detail`, `base_resp`, …) | the same |
//! | an error whose words or kind say that the context is too long | the context is too long |
//! | lines of JSON without `data:` | chunks like others |
//! | other lines that are no field, a document without choices, HTML | a body that cannot be read |
//! | `[DONE]` before any choice | an empty answer |
//! | the end of the body, or of the connection, before the end of the answer | an answer that was cut off |
//!
//! An error wins over whatever came before it.

use serde_json::{Map, Value};

use super::failure::Failure;
use super::lenient::repaired;
use super::provider::Provider;
use crate::contract::Truncated;

/// What a `finish_reason` says, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finish {
    Good,
    Cut(Cut),
    Bad,
}

/// Why an answer ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    Length,
    ContextFull,
    Filter,
}

const GOOD: [&str; 15] = [
    "stop",
    "tool_calls",
    "tool_call",
    "tool_use",
    "function_call",
    "end_turn",
    "stop_sequence",
    "eos",
    "eos_token",
    "end",
    "end_of_turn",
    "complete",
    "completed",
    "done",
    "finish",
];
const LENGTH: [&str; 7] = [
    "length",
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "max_length",
    "token_limit",
    "model_length",
];
const CONTEXT_FULL: [&str; 4] =
    ["context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded", "context_length"];
const FILTER: [&str; 12] = [
    "content_filter",
    "content_filtered",
    "safety",
    "recitation",
    "blocklist",
    "prohibited_content",
    "spii",
    "image_safety",
    "language",
    "sensitive",
    "refusal",
    "guardrail_intervened",
];

/// What a `finish_reason` says.
pub(super) fn finish(reason: &str) -> Finish {
    let reason = reason.trim().to_ascii_lowercase().replace('-', "_");
    // Gemini's own names may come with the name of their kind.
    let reason =
        reason.strip_prefix("finishreason.").or(reason.strip_prefix("finish_reason_")).unwrap_or(&reason);
    let is_in = |list: &[&str]| list.contains(&reason);
    if is_in(&GOOD) {
        Finish::Good
    } else if is_in(&LENGTH) {
        Finish::Cut(Cut::Length)
    } else if is_in(&CONTEXT_FULL) {
        Finish::Cut(Cut::ContextFull)
    } else if is_in(&FILTER) {
        Finish::Cut(Cut::Filter)
    } else {
        Finish::Bad
    }
}

/// What an answer has come to, as far as its meaning depends on it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "any of these facts may stand beside any other")]
pub(super) struct Outcome<'a> {
    /// The worst of the reasons that were given, and its name.
    pub(super) finish: Option<(Finish, &'a str)>,
    /// The server has said that nothing follows, or the answer came whole.
    pub(super) is_done: bool,
    pub(super) has_choice: bool,
    /// All choices have ended.
    pub(super) has_ended: bool,
    /// It has text that is more than white space, or calls.
    pub(super) says_something: bool,
    /// Lines that could not be read.
    pub(super) unread: &'a [u8],
}

/// What an answer means that nothing is added to any more: whether it was cut short, or why it is none.
pub(super) fn decide(outcome: Outcome<'_>, provider: &Provider) -> Result<Option<Truncated>, Failure> {
    let Outcome { finish, is_done, has_choice, has_ended, says_something, unread } = outcome;
    if let Some((Finish::Bad, reason)) = finish {
        return Err(Failure::bad_end(reason, provider));
    }
    if !(is_done || has_ended) {
        return Err(match (has_choice, unread.is_empty()) {
            (false, false) => Failure::unreadable(unread, provider),
            _ => Failure::truncated(unread, provider),
        });
    }
    if !has_choice {
        return Err(Failure::empty("the stream ended with [DONE] before any choice"));
    }
    match finish {
        Some((Finish::Cut(Cut::Filter), _)) if !says_something => Err(Failure::withheld()),
        Some((Finish::Cut(Cut::ContextFull), reason)) if !says_something => {
            Err(Failure::context_full(reason))
        }
        Some((Finish::Cut(Cut::Length), _)) if !says_something => Err(Failure::cut_before_text()),
        Some((Finish::Cut(Cut::Filter), _)) => Ok(Some(Truncated::ContentFilter)),
        Some((Finish::Cut(Cut::Length | Cut::ContextFull), _)) => Ok(Some(Truncated::Length)),
        _ if !says_something => Err(Failure::empty("the model gave neither text nor a call")),
        _ => Ok(None),
    }
}

/// Some servers have an empty error in each chunk.
pub(super) fn is_set(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::String(text) => !text.trim().is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(list) => list.iter().any(is_set),
        Value::Object(object) => object.values().any(is_set),
    }
}

/// The error in a chunk that has no choices: not all servers put it into a member of that name.
pub(super) fn error_in(chunk: &Value) -> Option<&Value> {
    /// Members that hold the error itself.
    const HOLDERS: [&str; 3] = ["error", "errors", "base_resp"];
    /// Members that come with an error's words where those are members of the chunk.
    const SIGNS: [&str; 6] = ["code", "error_code", "status", "status_code", "success", "request_id"];
    const WORDS: [&str; 6] = ["message", "msg", "detail", "error_msg", "error_message", "error_description"];

    let object = chunk.as_object()?;
    let held = HOLDERS.iter().filter_map(|name| object.get(*name)).find(|error| is_set(error));
    if let Some(error) = held.filter(|error| !is_success(error)) {
        return Some(match error {
            Value::Array(list) if !list.is_empty() => &list[0],
            error => error,
        });
    }
    let is = |name: &str, value: &str| object.get(name).and_then(Value::as_str) == Some(value);
    if is("object", "error") || is("type", "error") {
        return Some(chunk);
    }
    let has_words =
        WORDS.iter().any(|name| object.get(*name).is_some_and(|words| words.is_string() || words.is_array()));
    let is_bare = !["choices", "usage"].iter().any(|name| object.get(*name).is_some_and(is_set));
    let has_sign = SIGNS.iter().any(|name| object.contains_key(*name)) || object.len() == 1;
    (is_bare && has_words && has_sign && !is_success(chunk)).then_some(chunk)
}

/// Whether what looks like an error says that all is well.
fn is_success(error: &Value) -> bool {
    let codes = ["status_code", "code"].iter().filter_map(|name| error.get(*name));
    codes.clone().count() > 0 && codes.into_iter().all(|code| matches!(code.as_i64(), Some(0 | 200)))
}

/// What calls itself an error.
pub(super) fn error_event(data: &[u8], provider: &Provider) -> Failure {
    let text = repaired(data);
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(event)) => {
            Failure::reported(inner(&event).unwrap_or(&Value::Object(event.clone())), provider)
        }
        Ok(event) => Failure::reported(&event, provider),
        Err(_) => Failure::reported(&Value::String(text), provider),
    }
}

fn inner(event: &Map<String, Value>) -> Option<&Value> {
    event.get("error").filter(|error| is_set(error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::openai::settings::Settings;

    fn provider() -> Provider {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Provider::new(Settings { base_url: "http://127.0.0.1:1/v1".to_owned(), ..Settings::default() })
            .unwrap()
    }

    #[test]
    fn only_known_reasons_are_good() {
        for reason in ["stop", "STOP", "tool_calls", "eos", "end_turn", "FinishReason.STOP"] {
            assert_eq!(finish(reason), Finish::Good, "{reason}");
        }
        for reason in ["length", "MAX_TOKENS", "model_length"] {
            assert_eq!(finish(reason), Finish::Cut(Cut::Length), "{reason}");
        }
        for reason in ["content_filter", "SAFETY", "content-filter"] {
            assert_eq!(finish(reason), Finish::Cut(Cut::Filter), "{reason}");
        }
        for reason in ["error", "network_error", "because", "malformed_function_call", "abort"] {
            assert_eq!(finish(reason), Finish::Bad, "{reason}");
        }
    }

    #[test]
    fn what_an_answer_has_come_to_decides_what_it_means() {
        let whole = Outcome {
            finish: Some((Finish::Good, "stop")),
            is_done: true,
            has_choice: true,
            has_ended: true,
            says_something: true,
            unread: b"",
        };
        let none = Outcome { finish: None, has_ended: false, ..whole };
        let length = Some((Finish::Cut(Cut::Length), "length"));
        let filter = Some((Finish::Cut(Cut::Filter), "content_filter"));
        let full = Some((Finish::Cut(Cut::ContextFull), "context_length_exceeded"));
        let cases = [
            (whole, Ok(None)),
            (none, Ok(None)),
            (Outcome { finish: length, ..whole }, Ok(Some(Truncated::Length))),
            (Outcome { finish: full, ..whole }, Ok(Some(Truncated::Length))),
            (Outcome { finish: filter, ..whole }, Ok(Some(Truncated::ContentFilter))),
            (Outcome { says_something: false, ..whole }, Err("the answer was empty: the model gave")),
            (
                Outcome { finish: filter, says_something: false, ..whole },
                Err("the provider's content filter"),
            ),
            (
                Outcome { finish: length, says_something: false, ..whole },
                Err("the answer was cut off by its"),
            ),
            (Outcome { finish: Some((Finish::Bad, "error")), ..whole }, Err("the provider ended its answer")),
            (Outcome { is_done: false, ..none }, Err("the answer was cut off: the stream ended")),
            (Outcome { is_done: false, unread: b"oops", ..none }, Err("the answer was cut off")),
            (
                Outcome { is_done: false, unread: b"oops", has_choice: false, says_something: false, ..none },
                Err("the answer cannot be read: oops"),
            ),
            (
                Outcome { has_choice: false, says_something: false, ..none },
                Err("the answer was empty: the stream"),
            ),
        ];
        for (outcome, expected) in cases {
            let meant = decide(outcome, &provider()).map_err(|failure| failure.error.to_string());
            match (meant, expected) {
                (Ok(meant), Ok(expected)) => assert_eq!(meant, expected, "{outcome:?}"),
                (Err(said), Err(expected)) => assert!(said.contains(expected), "{outcome:?}: {said}"),
                (meant, _) => panic!("{outcome:?}: {meant:?}"),
            }
        }
        let overflow = decide(Outcome { finish: full, says_something: false, ..whole }, &provider());
        assert!(overflow.unwrap_err().overflows);
    }

    #[test]
    fn errors_are_found_wherever_servers_put_them() {
        let errors = [
            json!({"error": {"message": "no"}}),
            json!({"errors": [{"code": 10000, "message": "no"}], "success": false}),
            json!({"object": "error", "message": "no"}),
            json!({"type": "error", "message": "no"}),
            json!({"code": "InvalidParameter", "message": "no", "request_id": "r"}),
            json!({"detail": "no"}),
            json!({"base_resp": {"status_code": 1004, "status_msg": "no"}}),
        ];
        for error in errors {
            assert!(error_in(&error).is_some(), "{error}");
        }
        let others = [
            json!({"type": "ping"}),
            json!({}),
            json!({"error": null}),
            json!({"error": {"code": 0, "message": ""}}),
            json!({"base_resp": {"status_code": 0, "status_msg": "success"}}),
            json!({"id": "c", "object": "chat.completion.chunk", "choices": []}),
            json!({"choices": [], "usage": {"prompt_tokens": 1}}),
        ];
        for other in others {
            assert!(error_in(&other).is_none(), "{other}");
        }
    }
}
