//! The conversation as the next model call gets it.

use std::collections::{HashSet, VecDeque};
use std::iter::Sum;
use std::ops::Add;
use std::sync::Arc;

use super::message::Message;
use super::opaque::{Maker, Record};
use super::{cuts, refusals};
use crate::contract::{AssistantMessage, ContextMessage, InputMessage, ToolCall, Usage};
use crate::tools::bounded;

/// A count of tokens, estimated or reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tokens(pub(super) u64);

impl Tokens {
    /// The usual estimate.
    pub(super) fn of(text: &str) -> Self {
        Self(text.len().div_ceil(4) as u64)
    }

    pub(super) fn percent(self, percent: u64) -> Self {
        Self(self.0.saturating_mul(percent) / 100)
    }

    /// As much of `whole` as this is of `other`.
    fn scaled(self, whole: Self, other: Self) -> Self {
        Self(self.0.saturating_mul(whole.0) / other.0.max(1))
    }
}

impl Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(tokens: I) -> Self {
        tokens.fold(Self::default(), Add::add)
    }
}

/// One message, with what is to be known of it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) message: Message,
    tokens: Tokens,
    /// How many messages of the contract's context it stands for.
    stands_for: usize,
    /// How many of those come before its own.
    before: usize,
}

impl Entry {
    fn new(message: Message, stands_for: usize) -> Self {
        Self { tokens: message.tokens(), message, stands_for, before: 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// Shared with the running model call alone, so that a change copies nothing.
    entries: Arc<Vec<Entry>>,
    /// Ids of calls that are taken.
    ids: HashSet<String>,
    /// Messages of the context that were left out before the first entry.
    left_out: usize,
    /// Where the last person's message is that the turn began with.
    exchange: usize,
    /// That message, where a summary has replaced it.
    replaced_question: Option<String>,
    /// Calls at its end that have not begun: the turn was cut off before.
    open: Vec<ToolCall>,
    /// What the last model call reported for the entries before this index.
    reported: Option<(Tokens, usize)>,
}

impl Conversation {
    /// What the worker replays. Servers refuse calls without results and results without calls, and such can come of
    /// single messages that were deleted: the ones get a result, the others are left out.
    pub(super) fn new(context: Vec<ContextMessage>, maker: &Maker) -> Self {
        let mut conversation = Self::default();
        let mut context = VecDeque::from(context);
        while let Some(message) = context.pop_front() {
            match message {
                ContextMessage::System(content) => conversation.push(Message::System { content }, 1),
                ContextMessage::User { text, attachments, opaque } => {
                    conversation.exchange = conversation.entries.len();
                    let refused = Record::read(opaque, maker).and_then(|record| record.refused);
                    conversation.push(refusals::without(text, attachments, refused), 1);
                }
                ContextMessage::Assistant { text, tool_calls, opaque } => {
                    let record = Record::read(opaque, maker);
                    let is_cut = record.as_ref().is_some_and(|record| record.is_cut);
                    conversation.push(Message::assistant(text, &tool_calls, record), 1);
                    conversation.results(&tool_calls, is_cut, &mut context, maker);
                }
                ContextMessage::Tool { .. } => conversation.leave_out(1),
            }
        }
        conversation
    }

    /// The results of calls, in the calls' order; those of a message that was cut short never run.
    fn results(
        &mut self,
        calls: &[ToolCall],
        is_cut: bool,
        context: &mut VecDeque<ContextMessage>,
        maker: &Maker,
    ) {
        let mut found = Vec::new();
        while let Some(ContextMessage::Tool { call, text, opaque }) =
            context.pop_front_if(|message| matches!(message, ContextMessage::Tool { .. }))
        {
            let is_refused = Record::read(opaque, maker).is_some_and(|record| record.refused.is_some());
            found.push(Some((call, if is_refused { refusals::RESULT.to_owned() } else { text })));
        }
        for call in calls {
            self.ids.insert(call.id.clone());
            let result =
                found.iter_mut().find(|result| result.as_ref().is_some_and(|(id, _)| *id == call.id));
            let (text, stands_for) = match result.and_then(Option::take) {
                Some((_, text)) => (text, 1),
                None if context.is_empty() && is_cut => (cuts::NOT_RUN.to_owned(), 0),
                None if context.is_empty() => {
                    self.open.push(call.clone());
                    continue;
                }
                None => ("[The result is no longer there.]".to_owned(), 0),
            };
            self.push(result_message(&call.id, text), stands_for);
        }
        self.leave_out(found.iter().flatten().count());
    }

    fn push(&mut self, message: Message, stands_for: usize) {
        let before = std::mem::take(&mut self.left_out);
        let entry = Entry { before, ..Entry::new(message, stands_for + before) };
        Arc::make_mut(&mut self.entries).push(entry);
    }

    fn leave_out(&mut self, count: usize) {
        match Arc::make_mut(&mut self.entries).last_mut() {
            Some(last) => last.stands_for += count,
            None => self.left_out += count,
        }
    }

    pub(super) fn entries(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.entries)
    }

    /// Which message of the contract's context an entry is.
    pub(super) fn place(&self, entry: usize) -> Option<usize> {
        let earlier: usize = self.entries.get(..entry)?.iter().map(|entry| entry.stands_for).sum();
        self.entries
            .get(entry)
            .filter(|entry| entry.stands_for > entry.before)
            .map(|entry| earlier + entry.before)
    }

    /// The calls that the turn has to begin with.
    pub(super) fn take_open(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.open)
    }

    pub(super) fn ids(&mut self) -> &mut HashSet<String> {
        &mut self.ids
    }

    /// Adds what came at a boundary, each as the message that it will be when the conversation is replayed.
    pub(super) fn add_input(&mut self, messages: Vec<InputMessage>) {
        for InputMessage { text, attachments, .. } in messages {
            self.push(Message::user(text, &attachments), 1);
        }
    }

    /// Adds the model's message, and what the call has reported for all until now.
    pub(super) fn add_answer(&mut self, answer: &AssistantMessage, maker: &Maker) {
        let record = Record::read(answer.opaque.clone(), maker);
        self.push(Message::assistant(answer.content.clone(), &answer.tool_calls, record), 1);
        let Usage { input_tokens, cache_tokens, output_tokens, .. } = answer.usage;
        let reported = Tokens(input_tokens) + Tokens(cache_tokens) + Tokens(output_tokens);
        self.reported = (input_tokens + cache_tokens > 0).then_some((reported, self.entries.len()));
    }

    pub(super) fn add_result(&mut self, call: &str, text: String) {
        self.push(result_message(call, text), 1);
    }

    /// About how many tokens the next call has; `around` is what it has beside the messages.
    pub(super) fn tokens(&self, around: Tokens) -> Tokens {
        let (known, from) = self.reported.unwrap_or((around, 0));
        known + tokens(&self.entries[from..])
    }

    /// Up to where the conversation can be replaced by a summary, so that what is left needs no more than `rest`:
    /// before the running exchange, or where that is too long, within it. At least the newest message stays, and a
    /// call stays with its results. `None`: there is nothing to summarise.
    pub(super) fn cut(&self, rest: Tokens, around: Tokens) -> Option<usize> {
        // By the estimate, which may be far from what the server counts.
        let rest = rest.scaled(around + tokens(&self.entries), self.tokens(around));
        let fits = |at: &usize| tokens(&self.entries[*at..]) <= rest;
        let within = || {
            let may_cut = |at: &usize| !matches!(self.entries[*at].message, Message::Tool { .. });
            let places = (self.exchange + 1..self.entries.len()).filter(may_cut);
            places.clone().find(fits).or_else(|| places.clone().next_back())
        };
        let cut = if fits(&self.exchange) { self.exchange } else { within().unwrap_or(self.exchange) };
        // A summary of nothing but a summary is no gain.
        let is_note = |entry: &Entry| matches!(entry.message, Message::System { .. });
        (!self.entries[..cut].iter().all(is_note)).then_some(cut)
    }

    /// What the part before `cut` says, at most so long.
    pub(super) fn transcript(&self, cut: usize, limit: Tokens) -> String {
        let shown: Vec<_> = self.entries[..cut].iter().map(|entry| entry.message.shown()).collect();
        let bytes = usize::try_from(limit.0.saturating_mul(4)).unwrap_or(usize::MAX);
        bounded::cut(&shown.join("\n\n"), bytes / 2, bytes / 2)
    }

    /// The message that the turn began with, if nothing from `cut` on has it.
    pub(super) fn question_before(&self, cut: usize) -> Option<String> {
        self.replaced_question.clone().or_else(|| match &self.entries.get(self.exchange)?.message {
            Message::User { content } if self.exchange < cut => Some(content.shown().into_owned()),
            _ => None,
        })
    }

    /// Replaces the part before `cut`, and tells how many messages of the contract's context that were.
    pub(super) fn replace(&mut self, cut: usize, summary: String) -> usize {
        self.replaced_question = self.question_before(cut);
        let entries = Arc::make_mut(&mut self.entries);
        let summary = Entry::new(Message::System { content: summary }, 1);
        let replaced = entries.splice(..cut, [summary]).map(|entry| entry.stands_for).sum();
        self.exchange = self.exchange.saturating_sub(cut) + 1;
        self.reported = None;
        replaced
    }
}

fn tokens(entries: &[Entry]) -> Tokens {
    entries.iter().map(|entry| entry.tokens).sum()
}

fn result_message(call: &str, text: String) -> Message {
    Message::Tool { tool_call_id: call.to_owned(), content: bounded::result(text) }
}
