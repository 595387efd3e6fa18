//! Shell commands as they are written, for rules that allow: cut wherever a command could end, quoted or not, and each part
//! taken word by word. What is allowed has to be written plainly.

use super::runs::{Run, runs};

/// Where one command may end and another begin. Brackets and braces are those of `$(…)`, subshells and groups.
pub(super) const ENDS: [char; 8] = [';', '&', '|', '`', '(', ')', '{', '}'];

/// Redirections that change nothing but where the shell tool's own output goes.
const HARMLESS: [&str; 5] = ["2>&1", ">/dev/null", "2>/dev/null", "&>/dev/null", "</dev/null"];

/// What may run as one command of its own, as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Without harmless redirections.
    words: Vec<&'a str>,
    /// Nothing in it writes to a file, or is more than words.
    is_plain: bool,
}

impl<'a> Part<'a> {
    fn new(text: &'a str) -> Option<Self> {
        let words: Vec<_> =
            text.split([' ', '\t']).filter(|word| !word.is_empty() && !HARMLESS.contains(word)).collect();
        let is_plain = !words.iter().any(|word| word.contains(is_odd));
        (!words.is_empty()).then_some(Self { words, is_plain })
    }

    /// Whether it certainly begins with these words.
    pub(super) fn is_plainly(&self, beginning: &[String]) -> bool {
        self.is_plain
            && self.words.len() >= beginning.len()
            && self.words.iter().zip(beginning).all(|(a, b)| a == b)
    }

    /// It as a shell reads it by itself.
    pub(super) fn as_run(&self) -> Vec<Run> {
        runs(&self.words.join(" "))
    }
}

/// The parts of a command.
pub(super) fn parts(command: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, found) in command.char_indices() {
        if (found.is_control() && found != '\t') || (ENDS.contains(&found) && !is_harmless(command, at)) {
            parts.extend(Part::new(&command[start..at]));
            start = at + found.len_utf8();
        }
    }
    parts.extend(Part::new(&command[start..]));
    parts
}

/// The words of a text that is one plain command.
pub(super) fn plain_words(text: &str) -> Option<Vec<&str>> {
    let is_odd = |c: char| is_odd(c) || c.is_control() || ENDS.contains(&c);
    (!text.contains(is_odd)).then(|| text.split(' ').filter(|word| !word.is_empty()).collect())
}

/// Redirections, and white space that is none to a shell.
fn is_odd(c: char) -> bool {
    matches!(c, '<' | '>') || (c.is_whitespace() && !c.is_ascii())
}

/// Whether the sign at `at` is the `&` of a harmless redirection.
fn is_harmless(command: &str, at: usize) -> bool {
    // Long enough for each of them, and no longer: a line may be long, and full of signs.
    const REACH: usize = 16;
    let (from, to) = (at.saturating_sub(REACH), command.len().min(at + REACH));
    let around = command.as_bytes().get(from..to).unwrap_or_default();
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    let here = at - from;
    let start = around[..here].iter().rposition(is_blank).map(|blank| blank + 1);
    let end = around[here..].iter().position(is_blank).map(|blank| here + blank);
    let start = start.or((from == 0).then_some(0));
    let end = end.or((to == command.len()).then_some(around.len()));
    let (Some(start), Some(end)) = (start, end) else { return false };
    command.as_bytes()[at] == b'&' && HARMLESS.iter().any(|word| word.as_bytes() == &around[start..end])
}
