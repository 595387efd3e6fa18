//! What a request's context means: the variables, and what the last lines ask for.
//!
//! A *final answer* is an assistant message without a tool call; an interrupt marker ends a turn as well. Commands
//! before the last final answer only count for the variables. Those after it are answered, each with a reply of its own;
//! a line in which nothing is understood with `I heard: <the line>`. An unknown variable is not zero: `add 1 to x`
//! without an `x` says `I don't know X`, so that a forgotten `X = 5` shows.
//!
//! *How* a reply is sent (`slow`, `fail`) is decided by the newest user message alone, so that a message that failed or
//! was cancelled does not fail or slow down every one after it.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use crate::{
    clean::{self, Piece},
    tools::{Kind, Tool},
    usage::{Usage, words},
    words::{Command, commands},
};

/// How much of a line that is not understood comes back.
const MAX_HEARD: usize = 200;

/// A request as all three protocols have it.
#[derive(Debug, Default)]
pub(crate) struct Conversation<'a> {
    entries: Vec<Entry<'a>>,
    /// The tools offered.
    pub(crate) tools: Vec<Tool<'a>>,
    words: u64,
    words_before_last_user: u64,
    user_messages: u64,
}

#[derive(Debug)]
enum Entry<'a> {
    User(Cow<'a, str>),
    Final,
    Call { id: Cow<'a, str>, kind: Option<Kind> },
    Result { id: Cow<'a, str>, text: String },
}

impl<'a> Conversation<'a> {
    /// Adds text that is only counted: a system prompt, or what an assistant said beside a call.
    pub(crate) fn aside(&mut self, text: &str) {
        self.words += words(text);
    }

    /// Adds the texts of one user message.
    pub(crate) fn user(&mut self, texts: Vec<Cow<'a, str>>) {
        if texts.is_empty() {
            return;
        }
        self.words_before_last_user = self.words;
        self.user_messages += 1;
        for text in texts {
            self.words += words(&text);
            match text {
                Cow::Borrowed(text) => self.pieces(clean::pieces(text), Cow::Borrowed),
                Cow::Owned(text) => self.pieces(clean::pieces(&text), |t| Cow::Owned(t.to_owned())),
            }
        }
    }

    fn pieces<'t>(&mut self, pieces: Vec<Piece<'t>>, text: impl Fn(&'t str) -> Cow<'a, str>) {
        self.entries.extend(pieces.into_iter().map(|piece| match piece {
            Piece::Said(said) => Entry::User(text(said)),
            Piece::Interrupted => Entry::Final,
        }));
    }

    /// Adds an assistant message without a tool call.
    pub(crate) fn answer(&mut self, text: &str) {
        self.words += words(text);
        self.entries.push(Entry::Final);
    }

    /// Adds a tool call of the assistant.
    pub(crate) fn call(&mut self, id: Cow<'a, str>, name: &str) {
        self.entries.push(Entry::Call { id, kind: Kind::of(name) });
    }

    /// Adds what a tool returned; `text` is what is said of it, `sent` what is counted.
    pub(crate) fn result(&mut self, id: Cow<'a, str>, text: &str, sent: &str) {
        self.words += words(sent);
        let (text, messages) = clean::tool_result(text);
        self.entries.push(Entry::Result { id, text });
        self.pieces(messages, |t| Cow::Owned(t.to_owned()));
    }

    /// The usage of this request, if it is answered with `reply`.
    pub(crate) fn usage(&self, reply: &str) -> Usage {
        let cached_tokens = if self.user_messages > 1 { self.words_before_last_user } else { 0 };
        Usage { input_tokens: self.words, cached_tokens, output_tokens: words(reply) }
    }

    /// What is to be done now.
    pub(crate) fn turn(&self) -> Turn {
        let start = self.entries.iter().rposition(|e| matches!(e, Entry::Final)).map_or(0, |at| at + 1);
        let mut reader = Reader { calls: self.calls(start), ..Reader::default() };
        for (at, entry) in self.entries.iter().enumerate() {
            if let Entry::User(text) = entry {
                if at < start {
                    reader.remember(text);
                } else {
                    reader.answer(text);
                }
            }
        }
        reader.turn
    }

    /// The calls made in the running turn, in order, with what they returned.
    fn calls(&self, start: usize) -> Vec<Made> {
        let entries = &self.entries[start..];
        let result = |wanted: &str| {
            entries.iter().find_map(|entry| match entry {
                Entry::Result { id, text } if id == wanted => Some(text.clone()),
                _ => None,
            })
        };
        entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Call { id, kind: Some(kind) } => {
                    Some(Made { kind: *kind, returned: result(id).unwrap_or_default(), told: false })
                }
                _ => None,
            })
            .collect()
    }
}

/// What the lines since the last final answer ask for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Turn {
    /// One for each command, in order.
    pub(crate) wants: Vec<Want>,
    /// Over how long the reply is spread.
    pub(crate) slow: Option<Duration>,
    /// The failures asked for, in order.
    pub(crate) fails: Vec<Fail>,
}

/// One reply of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    Say(String),
    Count(u32),
    /// A tool is to be called with this.
    Use(Kind, ToolInput),
}

/// What a tool is called with, before it takes the shape that the tool wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolInput {
    /// A command, a question, a plan or a message to an agent.
    pub(crate) text: String,
    /// About how long it takes, in whole seconds.
    pub(crate) seconds: u64,
    /// The agent that the message is for.
    pub(crate) agent: String,
    /// Whether its answer comes later, or what the command brings.
    pub(crate) later: bool,
}

impl ToolInput {
    fn of(text: &str) -> ToolInput {
        ToolInput { text: text.to_owned(), ..ToolInput::default() }
    }
}

/// A failure asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fail {
    pub(crate) status: u16,
    /// For `once`: stands for this command in this context.
    pub(crate) once: Option<u64>,
}

struct Made {
    kind: Kind,
    returned: String,
    told: bool,
}

#[derive(Default)]
struct Reader {
    values: HashMap<String, i64>,
    seen: DefaultHasher,
    calls: Vec<Made>,
    turn: Turn,
}

impl Reader {
    /// Reads a message that has been answered.
    fn remember(&mut self, text: &str) {
        text.hash(&mut self.seen);
        for command in text.lines().flat_map(commands) {
            self.assign(command);
        }
    }

    /// Reads a message that wants an answer.
    fn answer(&mut self, text: &str) {
        text.hash(&mut self.seen);
        self.turn.slow = None;
        self.turn.fails.clear();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let found = commands(line);
            if found.is_empty() {
                let heard: String = line.chars().take(MAX_HEARD).collect();
                self.say(format!("I heard: {heard}"));
            }
            for command in found {
                self.obey(command);
            }
        }
    }

    /// Sets or adds, and gives the variable's name as spoken.
    fn assign(&mut self, command: Command<'_>) -> Option<String> {
        let (name, value, add) = match command {
            Command::Set { name, value } => (name.to_uppercase(), value, false),
            Command::Add { name, value } => (name.to_uppercase(), value, true),
            _ => return None,
        };
        if !add {
            self.values.insert(name.clone(), value);
        } else if let Some(old) = self.values.get_mut(&name) {
            *old = old.saturating_add(value);
        }
        Some(name)
    }

    fn obey(&mut self, command: Command<'_>) {
        match command {
            Command::Set { .. } | Command::Add { .. } => {
                if let Some(name) = self.assign(command) {
                    self.tell(&name);
                }
            }
            Command::Get { name } => self.tell(&name.to_uppercase()),
            Command::Say(text) => self.say(text.to_owned()),
            Command::Count(to) => self.turn.wants.push(Want::Count(to)),
            Command::Sleep { seconds, say, background } => {
                let text = format!("sleep {seconds} && echo {}", crate::tools::shell_word(say));
                let seconds = seconds.split('.').next().and_then(|whole| whole.parse().ok()).unwrap_or(0);
                let input = ToolInput { text, seconds, later: background, ..ToolInput::default() };
                self.call(Kind::Shell, input);
            }
            Command::Ask(text) => self.call(Kind::Ask, ToolInput::of(text)),
            Command::Plan(text) => self.call(Kind::Plan, ToolInput::of(text)),
            Command::Spawn { agent, message, wait } => {
                let input = ToolInput { agent: agent.to_owned(), later: !wait, ..ToolInput::of(message) };
                self.call(Kind::Spawn, input);
            }
            Command::Slow(spread) => self.turn.slow = Some(spread),
            Command::Fail { status, once } => {
                let once = once.then(|| {
                    let mut key = self.seen.clone();
                    self.turn.fails.len().hash(&mut key);
                    key.finish()
                });
                self.turn.fails.push(Fail { status, once });
            }
        }
    }

    /// The n-th command that needs a kind of tool belongs to the n-th call of that kind in this turn.
    fn call(&mut self, kind: Kind, input: ToolInput) {
        match self.calls.iter_mut().find(|made| made.kind == kind && !made.told) {
            Some(made) => {
                made.told = true;
                let returned = std::mem::take(&mut made.returned);
                self.say(returned);
            }
            None => self.turn.wants.push(Want::Use(kind, input)),
        }
    }

    fn tell(&mut self, name: &str) {
        let reply = match self.values.get(name) {
            Some(value) => format!("{name} = {value}"),
            None => format!("I don't know {name}"),
        };
        self.say(reply);
    }

    fn say(&mut self, text: String) {
        self.turn.wants.push(Want::Say(text));
    }
}

#[cfg(test)]
mod tests;
