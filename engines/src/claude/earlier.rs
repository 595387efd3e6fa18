//! A turn that was cut off goes on: what of it the transcript has already, and what is still to be said.

use std::fs;

use serde_json::Value;

use super::protocol::content_text;
use super::transcript::{Entry, Seen, Transcripts};
use super::usage::Meter;
use crate::contract::{Earlier, EngineError, EngineEvent, InputMessage, Native, Usage};
use crate::openai::usage::sum;
use crate::tools::bounded;

/// Told to the model in the place of the message that it has already.
pub(super) const NOTE: &str = "[The host was interrupted and this turn was cut off. Tool calls without a result may or may not have \
run: check before you repeat one. A call that failed because the permission stream was closed has not run. Go on with what was \
asked.]";

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
}

/// Looks the messages up. Blocks.
pub(super) fn look_up(
    transcripts: &Transcripts,
    native: &Native,
    messages: Vec<InputMessage>,
    earlier: &Earlier,
    meter: &Meter,
) -> Result<Continuation, EngineError> {
    let mut found = Continuation::default();
    let mut joined = String::new();
    let mut entries: Vec<Entry> = Vec::new();
    for message in messages {
        let seen = transcripts.find(native, &message.id)?;
        found.is_open |= matches!(seen, Seen::Open(_));
        match seen {
            // The first message of several stands in the transcript for all.
            Seen::Absent if !message.text.trim().is_empty() && joined.contains(&message.text) => {
                found.delivered.push(message.id);
            }
            Seen::Absent => found.unsent.push(message),
            Seen::Open(after) | Seen::Answered(after) => {
                joined = text_of(transcripts, native, &message.id).unwrap_or_default();
                found.delivered.push(message.id);
                // A message that came later, was answered together with this one or after it.
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

/// The text of a message as the transcript has it.
fn text_of(transcripts: &Transcripts, native: &Native, id: &str) -> Option<String> {
    let content = fs::read_to_string(transcripts.path(native)).ok()?;
    let lines = content.lines().filter(|line| line.contains(id));
    let mut entries = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let entry = entries.find(|entry| entry["type"] == "user" && entry["uuid"] == id)?;
    Some(content_text(&entry["message"]["content"]))
}
