//! What of a turn is in the transcript already.

use std::collections::{HashMap, HashSet};

use super::Entry as Said;
use super::Seen;
use super::chain;
use super::entry::{Entry, Kind};
use super::message::{Block, Message};
use crate::contract::AssistantMessage;

/// The result of a call about which the CLI wanted to ask its host, when that was gone: it did not run, and what the model
/// made of it was meant for nobody.
const NOBODY_TO_ASK: &str = "permission stream closed before response received";

/// What has become of the user's message of that id.
pub(super) fn find(entries: &[Entry], message_id: &str) -> Seen {
    let branch = chain::newest_branch(entries);
    let Some(at) = branch.iter().position(|entry| entry.carries(message_id)) else { return Seen::Absent };
    let mut turn = Turn::default();
    for entry in &branch[at + 1..] {
        let message = entry.model_message();
        let is_new =
            message.as_ref().is_none_or(|message| turn.last_id.is_none() || message.id() != turn.last_id);
        if entry.is_interruption() || is_new && turn.is_answered() {
            break;
        }
        if turn.has_failed && entry.is_prompt() {
            // What is answered from here on is another message.
            break;
        }
        turn.has_failed = entry.is_failure() || turn.has_failed && message.is_none();
        match message {
            Some(message) => turn.block(entry, &message),
            None if entry.kind == Kind::User => turn.results(entry),
            None => {}
        }
    }
    if turn.is_answered() { Seen::Answered(turn.said) } else { Seen::Open(turn.said) }
}

/// What a turn has brought.
#[derive(Default)]
struct Turn {
    said: Vec<Said>,
    /// Where the messages are in it, by their ids: the result of a call can stand before the message's next block.
    places: HashMap<String, usize>,
    /// The names of the tools that were called, by the ids of the calls.
    names: HashMap<String, String>,
    open: HashSet<String>,
    last_id: Option<String>,
    has_ended: bool,
    /// The provider has failed, and the CLI has given up.
    has_failed: bool,
    /// Its host was gone while it ran.
    is_orphaned: bool,
}

impl Turn {
    fn block(&mut self, entry: &Entry, message: &Message) {
        self.last_id = message.id();
        let known = self.last_id.as_ref().and_then(|id| self.places.get(id)).copied();
        let place = known.unwrap_or(self.said.len());
        if known.is_none() {
            let new = AssistantMessage { model: message.model(), ..AssistantMessage::default() };
            self.said.push(Said::Message(new));
            self.places.extend(self.last_id.clone().map(|id| (id, place)));
        }
        self.has_ended = message.has_ended_turn() && !entry.is_cut_off();
        let Some(Said::Message(said)) = self.said.get_mut(place) else { return };
        said.anchor = Some(entry.uuid.clone());
        said.usage = message.usage();
        for block in message.blocks() {
            match block {
                Block::Text(text) => said.content.push_str(&text),
                Block::Thinking(text) if !text.is_empty() => {
                    said.thinking.get_or_insert_default().push_str(&text);
                }
                Block::Call(call) => {
                    self.open.insert(call.id.clone());
                    self.names.insert(call.id.clone(), call.name.clone());
                    said.tool_calls.push(call);
                }
                _ => {}
            }
        }
    }

    fn results(&mut self, entry: &Entry) {
        let results = entry.results();
        if results.is_empty() {
            // A prompt, such as our own to go on.
            self.is_orphaned = false;
        }
        for result in results {
            self.is_orphaned |= !result.success && result.text.contains(NOBODY_TO_ASK);
            self.open.remove(&result.call);
            let name = self.names.get(&result.call).cloned();
            self.said.push(Said::Result {
                call: result.call,
                name,
                success: result.success,
                text: result.text,
                anchor: entry.uuid.clone(),
            });
            self.has_ended = false;
        }
    }

    fn is_answered(&self) -> bool {
        self.has_ended && self.open.is_empty() && !self.is_orphaned
    }
}
