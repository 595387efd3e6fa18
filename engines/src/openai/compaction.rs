//! Replaces the older part of a conversation by a summary before the conversation no longer fits.

use std::sync::Arc;

use super::call::{Answered, Prompt};
use super::conversation::{Conversation, Tokens};
use super::turn::{CallError, Turn, does_not_fit};
use crate::contract::{ContextMessage, EngineError, EngineEvent};
use crate::tools::bounded;

/// How much of the window, in percent, a conversation may fill before it is summarised.
const FULL: u64 = 80;

/// How much of it may stay as it is.
const REST: u64 = 30;

/// How much of it the summarised part may fill in the call that summarises it.
const TRANSCRIPT: u64 = 60;

/// How much of the message that the summary has replaced is kept word for word.
const QUESTION_BYTES: usize = 8 * 1024;

const INSTRUCTIONS: &str = "\
You are given the beginning of a conversation between a user and an assistant that uses tools. It is about to be \
replaced by your summary, and the assistant will go on with nothing but that and the newest messages. Write down all \
that it needs: what the user wants and has decided, names, numbers, paths and facts that came up, what was done with \
which result, and what is still open. Keep the wording where it matters. Do not answer the user, do not go on with the \
work, do not call tools. Write only the summary.";

#[derive(Debug, Default)]
pub(super) struct Compaction {
    /// It has failed in this turn; another try is made only when there is no other way.
    has_failed: bool,
}

impl Turn {
    /// Summarises if the conversation fills too much of the window. A failure is passed over as long as it still fits.
    pub(super) async fn compact_in_time(&mut self) -> Result<(), EngineError> {
        let Some(window) = self.provider.settings.context_window.map(Tokens) else {
            return Ok(());
        };
        let tokens = self.tokens();
        if tokens <= window.percent(FULL) || (self.compaction.has_failed && tokens < window) {
            return Ok(());
        }
        let Some(cut) = self.conversation.cut(window.percent(REST), self.tokens_around()) else {
            return Ok(());
        };
        match self.compact(cut, window).await {
            Err(error) if tokens < window => {
                tracing::warn!(%error, "the conversation could not be summarised");
                self.compaction.has_failed = true;
                Ok(())
            }
            other => other.map_err(|error| does_not_fit(error, ", and could not be summarised")),
        }
    }

    /// Summarises after the server has found the conversation too long, and said so with this error.
    pub(super) async fn compact_after(&mut self, error: EngineError) -> Result<(), EngineError> {
        // What was sent did not fit, so the window is not larger than that, whatever the settings say.
        let sent = self.tokens();
        let window = self.provider.settings.context_window.map_or(sent, |window| sent.min(Tokens(window)));
        let Some(cut) = self.conversation.cut(window.percent(REST), self.tokens_around()) else {
            return Err(does_not_fit(error, ""));
        };
        let summarised = self.compact(cut, window).await;
        summarised.map_err(|error| does_not_fit(error, ", and could not be summarised"))
    }

    async fn compact(&mut self, cut: usize, window: Tokens) -> Result<(), EngineError> {
        let transcript = self.conversation.transcript(cut, window.percent(TRANSCRIPT));
        let question = ContextMessage::User {
            text: format!("<conversation>\n{transcript}\n</conversation>\n\nSummarise this conversation."),
            attachments: Vec::new(),
            opaque: None,
        };
        let maker = self.provider.maker(&self.place.model);
        let prompt = Prompt {
            model: Arc::clone(&self.place.model),
            instructions: INSTRUCTIONS.into(),
            entries: Conversation::new(vec![question], &maker).entries(),
            tools: None,
        };
        let Answered { answer, truncated, rest } =
            self.call(prompt, false).await.map_err(|error| match error {
                CallError::Overflow(error) | CallError::Other(error) => error,
            })?;
        if let Some(rest) = rest {
            rest.finish().await;
        }
        let answer = answer.into_message(truncated, &maker, &self.provider, self.conversation.ids());
        if answer.content.trim().is_empty() {
            self.spend(answer.usage).await;
            return Err(EngineError::Provider {
                status: None,
                retry_after: None,
                detail: "the model gave an empty summary".to_owned(),
            });
        }
        self.spending.add(answer.usage);
        let summary = self.framed(answer.content.trim(), cut);
        let replaced = self.conversation.replace(cut, summary.clone());
        self.host.tell(EngineEvent::Compacted { summary, replaced, usage: answer.usage }).await;
        Ok(())
    }

    /// The summary as the model will read it, with what it is working on.
    fn framed(&self, summary: &str, cut: usize) -> String {
        let framed = format!("Summary of the conversation before the messages that follow:\n\n{summary}");
        match self.conversation.question_before(cut) {
            None => framed,
            Some(question) => {
                let question = bounded::cut(&question, QUESTION_BYTES / 2, QUESTION_BYTES / 2);
                format!("{framed}\n\nThe message that is being worked on, word for word:\n\n{question}")
            }
        }
    }
}
