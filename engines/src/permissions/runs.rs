//! What a shell command runs, for rules that ask or deny: read as a shell does (`lexer`), through quotes, wrappers such as
//! `timeout`, the strings of `sh -c` and git's own options. What cannot be told is said.

use super::command::ENDS;
use super::git;
use super::lexer::{self, Word};
use super::programs::{self, Wrapper};

/// How deep commands within commands are read.
const DEPTH: usize = 8;

/// The most commands that a line is read for.
const MOST: usize = 2_000;

/// Something that a line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Run {
    /// A command with its words, its name without the path. `inner`: another one runs it.
    Command { words: Vec<Word>, is_inner: bool },
    /// These words may be a command, or only arguments of one.
    Perhaps(Vec<Word>),
    /// An alias of git's with its arguments, which may run anything.
    Alias(Vec<Word>),
    /// Something that the line does not tell.
    Unknown,
}

/// How surely a command begins with some words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    No,
    Perhaps,
    Yes,
}

impl Run {
    /// Whether it is an alias that begins with these words.
    pub(super) fn is_alias(&self, beginning: &[String]) -> bool {
        matches!(self, Self::Alias(words) if begins(words, beginning) == Match::Yes)
    }

    /// Whether it begins with these words.
    pub(super) fn begins(&self, beginning: &[String]) -> Match {
        match self {
            Self::Unknown | Self::Alias(_) => Match::Perhaps,
            Self::Command { words, .. } => begins(words, beginning),
            Self::Perhaps(words) => begins(words, beginning).min(Match::Perhaps),
        }
    }
}

fn begins(words: &[Word], beginning: &[String]) -> Match {
    for (index, expected) in beginning.iter().enumerate() {
        match words.get(index) {
            // It may be any word, or several, or none.
            Some(word) if word.is_open => return Match::Perhaps,
            Some(word) if word.text == *expected => {}
            _ => return Match::No,
        }
    }
    Match::Yes
}

/// All that a line runs.
pub(super) fn runs(line: &str) -> Vec<Run> {
    let mut reader = Reader { found: Vec::new() };
    reader.line(line, false, 0);
    if reader.found.len() > MOST {
        return vec![Run::Unknown];
    }
    reader.found
}

struct Reader {
    found: Vec<Run>,
}

impl Reader {
    fn line(&mut self, line: &str, is_inner: bool, depth: usize) {
        match lexer::commands(line).filter(|_| depth < DEPTH) {
            Some(commands) => {
                for command in commands {
                    self.command(&command, is_inner, depth);
                }
            }
            None => self.found.push(Run::Unknown),
        }
    }

    /// A text that may be run as a line.
    fn hint(&mut self, text: &str, depth: usize) {
        let mut inner = Self { found: Vec::new() };
        inner.line(text, true, depth + 1);
        for run in inner.found {
            match run {
                Run::Command { words, .. } | Run::Perhaps(words) => self.found.push(Run::Perhaps(words)),
                // What is only text has much that cannot be read.
                Run::Unknown | Run::Alias(_) => {}
            }
        }
    }

    fn command(&mut self, words: &[Word], is_inner: bool, depth: usize) {
        if self.found.len() > MOST {
            return;
        }
        let words = self.without_assignments(words, depth);
        let Some(first) = words.first() else { return };
        if first.is_open {
            self.found.push(Run::Unknown);
            self.arguments("", words, depth);
            return;
        }
        let name = first.text.rsplit('/').next().unwrap_or_default().to_owned();
        let mut named = words.to_vec();
        named[0].text.clone_from(&name);
        if name == "git" {
            let read = git::read(&named);
            if read.is_opaque {
                self.found.push(Run::Unknown);
            }
            if read.is_alias {
                self.found.push(Run::Alias(read.words.clone()));
            }
            self.found.push(Run::Command { words: read.words, is_inner });
            return;
        }
        self.found.push(Run::Command { words: named.clone(), is_inner });
        self.inside(&name, &named, depth);
    }

    /// What a command runs in its turn.
    fn inside(&mut self, name: &str, words: &[Word], depth: usize) {
        let arguments = &words[1..];
        if let Some(wrapper) = programs::wrapper(name) {
            self.wrapped(name, wrapper, arguments, depth);
        } else if programs::is_shell(name) {
            self.shell(arguments, depth);
        } else if name == "eval" || name == "trap" {
            let code = if name == "trap" { arguments.get(..1).unwrap_or_default() } else { arguments };
            self.code(code, depth);
            return;
        } else if name == "find" || name == "fd" {
            self.found_files(arguments, depth);
        } else if programs::is_opaque(name) {
            self.found.push(Run::Unknown);
        } else if programs::assigns(name) {
            self.without_assignments(arguments, depth);
            return;
        } else if programs::is_awk(name) {
            // A program in the line that starts no other is read here; one in a file is not.
            let starts = |text: &str| {
                text.starts_with("-f") || ["system", "|", "getline"].iter().any(|word| text.contains(word))
            };
            if arguments.iter().any(|word| word.is_open || starts(&word.text)) {
                self.found.push(Run::Unknown);
            }
            return;
        } else if let Some(options) = programs::inline_code(name)
            && arguments
                .iter()
                .any(|word| word.is_open || options.iter().any(|option| word.text.starts_with(option)))
        {
            self.found.push(Run::Unknown);
        }
        if !programs::runs_nothing(name) {
            self.arguments(name, arguments, depth);
        }
    }

    /// Arguments of a program of which nothing is known: any of them may begin a command, or be a line of its own.
    fn arguments(&mut self, name: &str, arguments: &[Word], depth: usize) {
        for (index, word) in arguments.iter().enumerate() {
            if self.found.len() > MOST {
                return;
            }
            let text = word.text.rsplit('/').next().unwrap_or_default();
            if !word.is_open && !text.is_empty() {
                let mut words = arguments[index..].to_vec();
                words.truncate(16);
                text.clone_into(&mut words[0].text);
                self.found.push(Run::Perhaps(words));
            }
            if depth < DEPTH
                && name != "eval"
                && word.text.contains(|c: char| c.is_whitespace() || ENDS.contains(&c))
            {
                self.hint(&word.text, depth);
            }
        }
    }

    /// Reads the options of a wrapper, and the command behind them.
    fn wrapped(&mut self, name: &str, wrapper: Wrapper, arguments: &[Word], depth: usize) {
        let mut at = 0;
        let mut operands = wrapper.operands;
        while let Some(word) = arguments.get(at) {
            if word.is_open {
                // It may be an option, a value or the command.
                self.found.push(Run::Unknown);
                return;
            }
            let text = &*word.text;
            if name == "command" && text.starts_with('-') && text.contains(['v', 'V']) {
                return;
            }
            if name == "env"
                && (text.starts_with("-S") || text.starts_with("--split-string") || is_cluster(text, 'S'))
            {
                self.found.push(Run::Unknown);
                return;
            }
            if text == "--" {
                at += 1;
            } else if text.starts_with('-') && text.len() > 1 {
                let takes_next = wrapper.valued.contains(&text);
                at += 1 + usize::from(takes_next);
                continue;
            }
            if operands > 0 {
                operands -= 1;
                at += 1;
                continue;
            }
            break;
        }
        let rest = arguments.get(at..).unwrap_or_default();
        let rest = if wrapper.assigns { self.without_assignments(rest, depth) } else { rest };
        let mut inner = rest.to_vec();
        if name == "xargs" {
            // What it adds.
            inner.push(Word { text: String::new(), is_open: true });
        }
        if depth < DEPTH {
            self.command(&inner, true, depth + 1);
        } else {
            self.found.push(Run::Unknown);
        }
    }

    /// `sh -c STRING`; a file or standard input cannot be read here.
    fn shell(&mut self, arguments: &[Word], depth: usize) {
        let option = arguments.iter().position(|word| !word.is_open && is_cluster(&word.text, 'c'));
        let before = &arguments[..option.unwrap_or(arguments.len())];
        let is_told = before.iter().all(|word| !word.is_open && word.text.starts_with(['-', '+']));
        match option {
            Some(option) if is_told => {
                let behind =
                    arguments[option + 1..].iter().skip_while(|word| word.text.starts_with(['-', '+']));
                let code: Vec<Word> = behind.take(1).cloned().collect();
                self.code(&code, depth);
                // Startup files and the like.
                if before.iter().any(|word| word.text.contains("file") || is_cluster(&word.text, 'i')) {
                    self.found.push(Run::Unknown);
                }
            }
            _ if matches!(arguments, [word] if word.text == "--version" || word.text == "--help") => {}
            _ => self.found.push(Run::Unknown),
        }
    }

    /// Words that together are a line.
    fn code(&mut self, words: &[Word], depth: usize) {
        if words.iter().any(|word| word.is_open) {
            self.found.push(Run::Unknown);
        }
        let line = words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ");
        self.line(&line, true, depth + 1);
    }

    /// `find … -exec COMMAND ;`
    fn found_files(&mut self, arguments: &[Word], depth: usize) {
        let is_exec = |word: &Word| {
            matches!(
                &*word.text,
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch"
            )
        };
        for (index, _) in arguments.iter().enumerate().filter(|(_, word)| is_exec(word)) {
            let command: Vec<Word> = arguments[index + 1..]
                .iter()
                .take_while(|word| word.text != ";" && word.text != "+")
                .cloned()
                .collect();
            if depth < DEPTH {
                self.command(&command, true, depth + 1);
            }
        }
    }

    /// The words behind keywords and assignments. A value may be run later, by whatever reads the variable.
    fn without_assignments<'w>(&mut self, words: &'w [Word], depth: usize) -> &'w [Word] {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if programs::is_keyword(&word.text) && !word.is_open {
                at += 1;
                continue;
            }
            let Some((name, value)) = assignment(&word.text) else { break };
            if programs::redirects_programs(name) {
                self.found.push(Run::Unknown);
            }
            if depth < DEPTH && !value.is_empty() {
                self.hint(value, depth);
            }
            at += 1;
        }
        words.get(at..).unwrap_or_default()
    }
}

/// The variable and its value.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && name.starts_with(|c: char| !c.is_ascii_digit())).then_some((name, value))
}

/// Whether a word is short options with this one among them.
fn is_cluster(word: &str, option: char) -> bool {
    word.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && rest.contains(option))
}
