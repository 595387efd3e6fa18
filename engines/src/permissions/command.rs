//! Shell commands, read for permissions.
//!
//! No shell grammar: cutting too often costs a question too many, cutting too rarely would let something slip through.

/// Where one command may end and another begin. Brackets and braces are those of `$(…)`, subshells and groups.
const ENDS: [char; 8] = [';', '&', '|', '`', '(', ')', '{', '}'];

/// Redirections that change nothing but where the shell tool's own output goes.
const HARMLESS: [&str; 5] = ["2>&1", ">/dev/null", "2>/dev/null", "&>/dev/null", "</dev/null"];

/// Words that are followed by a command.
const WRAPPERS: [&str; 20] = [
    "!", "builtin", "command", "do", "doas", "elif", "else", "env", "eval", "exec", "if", "nice", "nohup",
    "setsid", "sudo", "then", "time", "until", "while", "xargs",
];

/// What may run as one command of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// As it is written, without harmless redirections.
    words: Vec<&'a str>,
    /// Nothing in it writes to a file, or is more than words.
    is_plain: bool,
    /// The command as a shell may see it.
    bare: Vec<String>,
}

impl<'a> Part<'a> {
    fn new(text: &'a str) -> Option<Self> {
        let words: Vec<_> =
            text.split([' ', '\t']).filter(|word| !word.is_empty() && !HARMLESS.contains(word)).collect();
        if words.is_empty() {
            return None;
        }
        let is_plain = !words.iter().any(|word| word.contains(is_odd));
        let bare = bare(&words);
        Some(Self { words, is_plain, bare })
    }

    /// Whether it certainly begins with these words.
    pub(super) fn is_plainly(&self, beginning: &[String]) -> bool {
        self.is_plain
            && self.words.len() >= beginning.len()
            && self.words.iter().zip(beginning).all(|(a, b)| a == b)
    }

    /// Whether it may begin with these words.
    pub(super) fn may_be(&self, beginning: &[String]) -> bool {
        self.bare.starts_with(beginning)
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

/// Whether the `&` at `at` belongs to a harmless redirection.
fn is_harmless(command: &str, at: usize) -> bool {
    let start = command[..at].rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |blank| blank + 1);
    let end = command[at..].find(|c: char| c.is_ascii_whitespace()).map_or(command.len(), |blank| at + blank);
    HARMLESS.contains(&&command[start..end])
}

/// The words without quotes, escapes and redirections, from the command's own name on, and that without its path.
fn bare(words: &[&str]) -> Vec<String> {
    let words = without_redirections(words);
    let mut bare = words.iter().map(|word| word.replace(['\'', '"', '\\'], "")).peekable();
    while bare.next_if(|word| word.is_empty() || is_assignment(word) || WRAPPERS.contains(&&**word)).is_some()
    {
    }
    let mut bare: Vec<_> = bare.collect();
    if let Some(name) = bare.first_mut()
        && let Some((_, last)) = name.rsplit_once('/')
    {
        *name = last.to_owned();
    }
    bare
}

/// A redirection may be glued to the word before it, and may stand before the command's name.
fn without_redirections<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut target_follows = false;
    for word in words {
        if std::mem::take(&mut target_follows) {
            continue;
        }
        match word.split_once(['<', '>']) {
            None => kept.push(*word),
            Some((before, target)) => {
                if !before.bytes().all(|byte| byte.is_ascii_digit()) {
                    kept.push(before);
                }
                target_follows = target.trim_start_matches(['<', '>']).is_empty();
            }
        }
    }
    kept
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_+".contains(c))
    })
}
