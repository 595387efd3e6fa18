//! What a provider refuses to read: it is named once, and the next turn goes without it.

use super::conversation::Entry;
use super::failure::Failure;
use super::message::Message;
use super::needs::{Refusal, refusal};
use super::opaque::{Maker, Record, Refused};
use super::sent::Sent;
use crate::contract::{Attachment, EngineError};
use crate::openai::attachments::Kind;

/// How much of a message is repeated where it is named.
const NAMED_CHARS: usize = 80;

const IMAGES: &str = "[An attachment that the provider refused is left out.]";
const TEXT: &str = "[A message that the provider refused is left out.]";
/// What stands for a result that the provider refuses to read.
pub(super) const RESULT: &str = "[A result that the provider refused is left out.]";

/// A call that failed because the provider refuses to read these entries.
#[derive(Debug)]
pub(super) struct RefusedEntries {
    pub(super) error: EngineError,
    pub(super) entries: Vec<usize>,
    pub(super) what: Refused,
}

/// Finds out which messages a failure refuses to read.
pub(super) fn find(failure: &Failure, entries: &[Entry], sent: &[Sent<'_>]) -> Option<RefusedEntries> {
    let with_images: Vec<_> = (0..entries.len()).filter(|at| entries[*at].message.has_images()).collect();
    let named = |message: Option<usize>| sent.get(message?).map(|sent| &sent.entries[..]);
    let (refused, what) = match refusal(failure, !with_images.is_empty())? {
        Refusal::Images { all: true, message: None } => (with_images, Refused::Images),
        Refusal::Images { message, .. } => {
            let named: Vec<_> = named(message).unwrap_or_default().to_vec();
            let named: Vec<_> = named.into_iter().filter(|at| with_images.contains(at)).collect();
            let newest = with_images.last().copied().into_iter().collect();
            (if named.is_empty() { newest } else { named }, Refused::Images)
        }
        Refusal::Text { message } => {
            let is_read =
                |at: &usize| matches!(entries[*at].message, Message::User { .. } | Message::Tool { .. });
            let named: Vec<_> = named(message).unwrap_or_default().iter().copied().filter(is_read).collect();
            let newest = (0..entries.len()).rev().find(is_read).into_iter().collect();
            (if named.is_empty() { newest } else { named }, Refused::Text)
        }
    };
    let last = *refused.last()?;
    let which = named_message(&entries[last].message);
    let subject = match what {
        Refused::Images => "an attachment of ",
        Refused::Text => "",
    };
    let error = match &failure.error {
        EngineError::Provider { status, retry_after, detail } => EngineError::Provider {
            status: *status,
            retry_after: *retry_after,
            detail: format!(
                "the provider refuses to read {subject}{which}: {detail}. The next turn goes without it"
            ),
        },
        other => other.clone(),
    };
    Some(RefusedEntries { error, entries: refused, what })
}

fn named_message(message: &Message) -> String {
    let (kind, text) = match message {
        Message::User { content } => ("message", content.said()),
        Message::Tool { content, .. } => ("tool result", content.as_str().into()),
        Message::System { content } | Message::Assistant { content, .. } => {
            ("message", content.as_str().into())
        }
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(NAMED_CHARS).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    format!("the {kind} {short:?}")
}

/// The record of a refusal, as it is stored with the message.
pub(super) fn record(what: Refused, maker: &Maker) -> Option<serde_json::Value> {
    Record { refused: Some(what), ..Record::of(maker) }.into_value()
}

/// A person's message without what the provider has refused of it.
pub(super) fn without(text: String, mut attachments: Vec<Attachment>, refused: Option<Refused>) -> Message {
    match refused {
        None => Message::user(text, &attachments),
        Some(Refused::Text) => Message::user(TEXT.to_owned(), &[]),
        Some(Refused::Images) => {
            attachments.retain(|file| !matches!(Kind::of(&file.media_type), Some(Kind::Image(_))));
            let text = if text.is_empty() { IMAGES.to_owned() } else { format!("{text}\n\n{IMAGES}") };
            Message::user(text, &attachments)
        }
    }
}
