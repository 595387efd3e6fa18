//! A turn that was cut off goes on: what of it the transcript has already, and what is still to be said.

use std::fs;

use serde_json::Value;

use super::protocol::text;
use super::transcript::{Entry, Seen, Transcripts};
use super::usage::Meter;
use crate::contract::{Earlier, EngineError, EngineEvent, InputMessage, Native, Usage};
use crate::openai::usage::sum;
use crate::tools::bounded;

macro_rules! note {
    ($why:literal) => {
        concat!(
            "[",
            $why,
            " and this turn was cut off. Tool calls without a result may or may not have run: check before you repeat one. \
             A call that failed because the permission stream was closed has not run. Go on with what was asked.]"
        )
    };
}

/// Told to the model in the place of the message that it has already.
pub(super) const fn note(stopped: bool) -> &'static str {
    if stopped { note!("The host was stopped for maintenance") } else { note!("The host was interrupted") }
}

/// How a turn goes on.
#[derive(Debug, Default)]
pub(super) struct Continuation {
    /// What the transcript has and nobody was told yet.
    pub(super) events: Vec<EngineEvent>,
    /// What was told of the model's messages has used.
    pub(super) usage: Usage,
    pub(super) iterations: u32,
    /// The messages that the model has.
    pub(super) delivered: Vec<String>,
    /// Those that it does not have.
    pub(super) unsent: Vec<InputMessage>,
    /// One that it has is not answered.
    pub(super) is_open: bool,
    /// The host was stopped on purpose when the turn was cut off.
    pub(super) stopped: bool,
    /// The messages behind these have an answer of their own, or will have: it is for a turn of theirs to find out.
    pub(super) has_more: bool,
}

/// Looks the messages up: those that have one answer, or will have it. The others are left to the next turn, so that each is
/// given its own. Blocks.
pub(super) fn look_up(
    transcripts: &Transcripts,
    native: &Native,
    messages: &[InputMessage],
    earlier: &Earlier,
    meter: &Meter,
) -> Result<Continuation, EngineError> {
    let mut found = Continuation {
        usage: meter.priced(Usage::default()),
        stopped: earlier.stopped,
        ..Continuation::default()
    };
    // How far the line reaches that was found last: several messages stand in the transcript under the id of the first.
    let mut line_end = 0;
    let mut entries: Vec<Entry> = Vec::new();
    let mut is_answered = false;
    for (at, message) in messages.iter().enumerate() {
        let seen = transcripts.find(native, &message.id)?;
        let is_others = match &seen {
            Seen::Absent => is_answered && line_end <= at,
            Seen::Open(_) => is_answered,
            Seen::Answered(after) => at > 0 && !(is_answered && after.last() == entries.last()),
        };
        if is_others {
            found.has_more = true;
            break;
        }
        is_answered |= matches!(seen, Seen::Answered(_));
        found.is_open |= matches!(seen, Seen::Open(_));
        match seen {
            Seen::Absent if at < line_end => found.delivered.push(message.id.clone()),
            Seen::Absent => found.unsent.push(message.clone()),
            Seen::Open(after) | Seen::Answered(after) => {
                let content = content_of(transcripts, native, &message.id);
                line_end = at + sent_as_one(&content, &messages[at..]);
                found.delivered.push(message.id.clone());
                // A message that came later, was answered together with this one.
                let fresh: Vec<_> = after.into_iter().filter(|entry| !entries.contains(entry)).collect();
                entries.extend(fresh);
            }
        }
    }
    for entry in entries {
        found.tell(entry, earlier, meter);
    }
    Ok(found)
}

impl Continuation {
    fn tell(&mut self, entry: Entry, earlier: &Earlier, meter: &Meter) {
        match entry {
            Entry::Message(mut message) => {
                if message.anchor.as_ref().is_some_and(|anchor| earlier.anchors.contains(anchor)) {
                    return;
                }
                message.usage = meter.priced(message.usage);
                self.usage = sum(self.usage, message.usage);
                self.iterations += 1;
                self.events.push(EngineEvent::MessageDone(message));
            }
            Entry::Result { call, name, success, text, anchor } => {
                if !earlier.results.contains(&call) {
                    let (name, result) = (name.unwrap_or_default(), bounded::result(text));
                    let anchor = Some(anchor);
                    self.events.push(EngineEvent::ToolDone { id: call, name, success, result, anchor });
                }
            }
        }
    }
}

/// How many of these messages, from the first, were sent in one line ([`input::line`](super::input::line)), of which the
/// transcript has this content. What stands before them in it was sent with the first, such as a note of ours.
fn sent_as_one(content: &Value, messages: &[InputMessage]) -> usize {
    let (said, blocks) = match content {
        Value::Array(blocks) => (blocks.last().map_or("", |last| text(&last["text"])), blocks.len()),
        content => (text(content), 1),
    };
    let is_line = |count: &usize| {
        let messages = &messages[..*count];
        let joined: Vec<_> = messages.iter().map(|message| &*message.text).collect();
        let joined = joined.join("\n\n");
        let files: usize = messages.iter().map(|message| message.attachments.len()).sum();
        let texts = usize::from(!joined.trim().is_empty());
        files + texts <= blocks && (texts == 0 || said.trim_end().ends_with(joined.trim_end()))
    };
    (2..=messages.len()).rev().find(is_line).unwrap_or(1)
}

/// The content of a message as the transcript has it.
fn content_of(transcripts: &Transcripts, native: &Native, id: &str) -> Value {
    let content = fs::read_to_string(transcripts.path(native)).unwrap_or_default();
    let lines = content.lines().filter(|line| line.contains(id));
    let entries = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut contents = entries.filter_map(|entry| match text(&entry["type"]) {
        "user" if entry["uuid"] == id => Some(entry["message"]["content"].clone()),
        // It came during a turn.
        "attachment" if entry["attachment"]["source_uuid"] == id => {
            Some(entry["attachment"]["prompt"].clone())
        }
        _ => None,
    });
    contents.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::Attachment;

    fn message(text: &str, files: usize) -> InputMessage {
        let file = Attachment { name: "a.png".into(), media_type: "image/png".into(), data: "PNG".into() };
        InputMessage { id: String::new(), text: text.to_owned(), attachments: vec![file; files] }
    }

    /// How many of these were sent in one line that has `sent` of them.
    fn as_one(messages: &[InputMessage], sent: usize) -> usize {
        let line = crate::claude::input::line("U", &messages[..sent], true);
        sent_as_one(&line["message"]["content"], messages)
    }

    #[test]
    fn only_what_was_sent_in_one_line_is_found_by_the_first() {
        let several = [
            vec![message("sleep 1 then say what is X", 0), message("what is X", 0)],
            vec![message("a\n\nb", 0), message("b", 0), message("b", 0)],
            vec![message("look", 1), message("", 1), message("and", 0), message("", 2)],
            vec![message("", 1), message("", 1), message(" \n", 1), message("a", 0)],
            vec![message("a", 0), message("", 1), message("a\n", 0)],
        ];
        for messages in several {
            for sent in 1..=messages.len() {
                assert_eq!(as_one(&messages, sent), sent, "{messages:?}");
            }
        }
        let with_note = json!(format!("{}\n\na\n\nb", note(false)));
        assert_eq!(sent_as_one(&with_note, &[message("a", 0), message("b", 0), message("b", 0)]), 2);
        assert_eq!(sent_as_one(&Value::Null, &[message("a", 0), message("b", 0)]), 1);
    }
}
