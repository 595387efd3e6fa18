//! Messages with calls that were cut short: their calls never run, since nobody knows what else they would have said.

use super::turn::Turn;
use crate::contract::{EngineError, EngineEvent, ToolCall, Truncated};

/// How often in a row the model is told that its message was cut.
const MOST: u32 = 2;

/// The result of a call that was cut, where the turn goes on after a crash.
pub(super) const NOT_RUN: &str = "(not run: the message with this call was cut off before its end)";

impl Turn {
    /// Tells the model for each call that it was not run, and why; fails once that has not helped.
    pub(super) async fn leave_cut_calls(
        &mut self,
        calls: Vec<ToolCall>,
        why: Truncated,
    ) -> Result<(), EngineError> {
        self.cuts += 1;
        for ToolCall { id, name, .. } in calls {
            let text = result(why).to_owned();
            self.conversation.add_result(&id, text.clone());
            self.host
                .tell(EngineEvent::ToolDone { id, name, success: false, result: text, anchor: None })
                .await;
        }
        if self.cuts <= MOST {
            return Ok(());
        }
        let by = match why {
            Truncated::Length => "its length limit (max_tokens)",
            Truncated::ContentFilter => "the provider's content filter",
        };
        Err(EngineError::Provider {
            status: None,
            retry_after: None,
            detail: format!(
                "the model's message was cut off by {by} {} times in a row, and its calls were not run",
                MOST + 1
            ),
        })
    }
}

const fn result(why: Truncated) -> &'static str {
    match why {
        Truncated::Length => {
            "This call was not run: your message was cut off at the longest length that it may have. Call again with \
             shorter arguments, or do it in several smaller steps."
        }
        Truncated::ContentFilter => {
            "This call was not run: a content filter of the provider has cut off your message. Go on without it, or \
             call again in other words."
        }
    }
}
