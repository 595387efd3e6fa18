//! The little language: finds the commands of one line, in order.
//!
//! A line is cut into tokens: words (`[letter _][letter digit _]*`), numbers (`-?digits[.digits]`, not glued to a
//! letter) and single signs; white space separates and means nothing. At each token the commands below are tried, and
//! where none fits the token is skipped. So commands may be separated by anything (`,` `;` `.` `then` `and`) and may
//! stand in the middle of a sentence. Keywords and names are read in any case; names are spoken in upper case.
//!
//! ```text
//! NAME = INT            add INT to NAME       what is NAME
//! say W                 count to INT          sleep NUM [, ;] [then|and] say W
//! ask: Q                plan: P               slow NUM          fail INT [once]
//! spawn AGENT: M        spawn-async AGENT: M
//! background NUM [, ;] [then|and] say W
//! ```
//! `background` is `sleep` where the tool can leave a command behind and go on at once (Claude Code's can).
//! `W`, `Q`, `P` and `M` are the rest of the line, trimmed, and must not be empty, so each ends its line. `say: W` is `say W`.
//! `what is the …` (and `your`, `my`, `this`, `that`) asks for no variable. Counts run from 1 to [`MAX_COUNT`], statuses
//! from 400 to 599; a number outside makes the words no command.

use std::time::Duration;

/// The largest `count to N`: its reply must stay a small answer.
pub(crate) const MAX_COUNT: u32 = 10_000;

/// The longest `slow S`.
const MAX_SLOW: Duration = Duration::from_hours(1);

const NO_NAMES: [&str; 5] = ["the", "your", "my", "this", "that"];

/// One command, borrowing from its line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Command<'a> {
    Set { name: &'a str, value: i64 },
    Add { name: &'a str, value: i64 },
    Get { name: &'a str },
    Say(&'a str),
    Count(u32),
    Sleep { seconds: &'a str, say: &'a str, background: bool },
    Ask(&'a str),
    Plan(&'a str),
    Spawn { agent: &'a str, message: &'a str, wait: bool },
    Slow(Duration),
    Fail { status: u16, once: bool },
}

/// The commands of one line, in order.
pub(crate) fn commands(line: &str) -> Vec<Command<'_>> {
    let tokens = tokens(line);
    let scan = Scan { line, tokens: &tokens };
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match scan.command(at) {
            Some((command, next)) => {
                found.push(command);
                at = next;
            }
            None => at += 1,
        }
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Sign,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    end: usize,
}

fn tokens(line: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = line[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (kind, length) = if is_start(first) {
            (Kind::Word, line[at..].find(|c| !is_inner(c)).unwrap_or(line.len() - at))
        } else if let Some(length) = number(&line[at..]) {
            (Kind::Number, length)
        } else {
            (Kind::Sign, first.len_utf8())
        };
        found.push(Token { kind, text: &line[at..at + length], end: at + length });
        at += length;
    }
    found
}

fn is_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_inner(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the number at the start of `text`, if there is one.
fn number(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(sign);
    if whole == 0 {
        return None;
    }
    let mut end = sign + whole;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if fraction > 0 {
            end += 1 + fraction;
        }
    }
    // `5px` is neither a number nor a word that means anything.
    if text[end..].chars().next().is_some_and(is_start) { None } else { Some(end) }
}

#[derive(Clone, Copy)]
struct Scan<'a, 't> {
    line: &'a str,
    tokens: &'t [Token<'a>],
}

impl<'a> Scan<'a, '_> {
    /// The command that starts at token `at`, and the token after it.
    fn command(self, at: usize) -> Option<(Command<'a>, usize)> {
        if let (Some(name), true, Some(value)) = (self.word(at), self.is(at + 1, "="), self.integer(at + 2)) {
            return Some((Command::Set { name, value }, at + 3));
        }
        let keyword = self.word(at)?;
        let is = |word: &str| keyword.eq_ignore_ascii_case(word);
        if is("add") && self.is(at + 2, "to") {
            let (value, name) = (self.integer(at + 1)?, self.word(at + 3)?);
            Some((Command::Add { name, value }, at + 4))
        } else if is("what") && self.is(at + 1, "is") {
            let name = self.word(at + 2).filter(|n| !NO_NAMES.iter().any(|no| n.eq_ignore_ascii_case(no)))?;
            Some((Command::Get { name }, at + 3))
        } else if is("say") {
            self.say(at)
        } else if is("count") && self.is(at + 1, "to") {
            let to = u32::try_from(self.integer(at + 2)?).ok().filter(|n| (1..=MAX_COUNT).contains(n))?;
            Some((Command::Count(to), at + 3))
        } else if is("sleep") || is("background") {
            self.sleep(at, is("background"))
        } else if is("ask") && self.glued_colon(at) {
            Some((Command::Ask(self.rest(at + 1)?), self.tokens.len()))
        } else if is("plan") && self.glued_colon(at) {
            Some((Command::Plan(self.rest(at + 1)?), self.tokens.len()))
        } else if is("spawn") {
            self.spawn(at)
        } else if is("slow") {
            let seconds: f64 = self.seconds(at + 1)?.parse().ok()?;
            let spread = Duration::try_from_secs_f64(seconds).map_or(MAX_SLOW, |d| d.min(MAX_SLOW));
            Some((Command::Slow(spread), at + 2))
        } else if is("fail") {
            let status =
                u16::try_from(self.integer(at + 1)?).ok().filter(|status| (400..=599).contains(status))?;
            let once = self.is(at + 2, "once");
            Some((Command::Fail { status, once }, at + 2 + usize::from(once)))
        } else {
            None
        }
    }

    fn say(self, at: usize) -> Option<(Command<'a>, usize)> {
        let before = if self.glued_colon(at) { at + 1 } else { at };
        Some((Command::Say(self.rest(before)?), self.tokens.len()))
    }

    fn sleep(self, at: usize, background: bool) -> Option<(Command<'a>, usize)> {
        let seconds = self.seconds(at + 1)?;
        let mut next = at + 2;
        next += usize::from(self.is(next, ",") || self.is(next, ";"));
        next += usize::from(self.is(next, "then") || self.is(next, "and"));
        if !self.is(next, "say") {
            return None;
        }
        match self.say(next)? {
            (Command::Say(say), end) => Some((Command::Sleep { seconds, say, background }, end)),
            _ => None,
        }
    }

    fn spawn(self, at: usize) -> Option<(Command<'a>, usize)> {
        let wait = !(self.is(at + 1, "-") && self.is(at + 2, "async"));
        let named = if wait { at + 1 } else { at + 3 };
        let agent = self.word(named).filter(|_| self.glued_colon(named))?;
        Some((Command::Spawn { agent, message: self.rest(named + 1)?, wait }, self.tokens.len()))
    }

    fn of(self, at: usize, kind: Kind) -> Option<&'a str> {
        self.tokens.get(at).filter(|token| token.kind == kind).map(|token| token.text)
    }

    fn word(self, at: usize) -> Option<&'a str> {
        self.of(at, Kind::Word)
    }

    fn integer(self, at: usize) -> Option<i64> {
        self.of(at, Kind::Number)?.parse().ok()
    }

    /// A number of seconds, as written. Twelve characters are enough, and keep a shell's arithmetic sane.
    fn seconds(self, at: usize) -> Option<&'a str> {
        self.of(at, Kind::Number).filter(|text| !text.starts_with('-') && text.len() <= 12)
    }

    fn is(self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.text.eq_ignore_ascii_case(text))
    }

    /// Whether a colon follows token `at` with nothing between.
    fn glued_colon(self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| self.line[token.end..].starts_with(':'))
    }

    fn rest(self, at: usize) -> Option<&'a str> {
        let rest = self.line[self.tokens.get(at)?.end..].trim();
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests;
