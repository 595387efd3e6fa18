//! Why a turn has failed.

use std::process::ExitStatus;

use super::protocol::TurnResult;
use crate::contract::EngineError;

/// What the CLI says of a native session that is not there.
const NO_CONVERSATION: &str = "No conversation found with session ID";

/// The most that an error's text quotes.
const QUOTED_BYTES: usize = 4096;

/// What a result says that went wrong, if anything. A `success` may be an error.
pub(super) fn of_result(result: &TurnResult) -> Option<EngineError> {
    if !result.is_error && !result.subtype.starts_with("error") {
        return None;
    }
    let errors = result.errors.join("\n");
    let told = if errors.is_empty() { &result.text } else { &errors };
    let detail = if told.is_empty() { &result.subtype } else { told };
    Some(match &*result.subtype {
        "error_max_turns" => {
            EngineError::Limit("it has made all the model calls that max_iterations allows".to_owned())
        }
        _ if errors.contains(NO_CONVERSATION) => EngineError::ResumeDropped(quoted(&errors)),
        _ => EngineError::Provider { status: result.status, retry_after: None, detail: quoted(detail) },
    })
}

/// What the end of the process means for the turn that ran. `odd` is the last of its output that was no JSON.
pub(super) fn of_exit(status: Option<ExitStatus>, stderr: &str, odd: &str) -> EngineError {
    let said = if stderr.trim().is_empty() { odd.trim() } else { stderr.trim() };
    if said.contains(NO_CONVERSATION) {
        return EngineError::ResumeDropped(quoted(said));
    }
    let status = status.map_or_else(|| "it could not be ended".to_owned(), |status| status.to_string());
    let said = said.replace('\0', "\u{FFFD}");
    let last = said[said.ceil_char_boundary(said.len().saturating_sub(QUOTED_BYTES))..].to_owned();
    EngineError::Died { status, stderr_tail: last }
}

fn quoted(text: &str) -> String {
    text[..text.floor_char_boundary(QUOTED_BYTES)].to_owned()
}
