//! A command line, cut into commands and words as a shell would.
//!
//! It knows quotes, escapes, expansions, substitutions, redirections and what separates commands; of the grammar above that it
//! knows nothing: here-documents, for one, are read as commands. What it does not understand is never more literal than it is.

/// How deep substitutions may be nested.
const DEPTH: usize = 16;

/// A word of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Without quotes and escapes.
    pub(super) text: String,
    /// An expansion decides what the word is, or how many words it is.
    pub(super) is_open: bool,
}

/// The words of one command, without redirections.
pub(super) type Command = Vec<Word>;

/// All commands of a line, those in substitutions included. `None`: it is nested too deep to be read.
pub(super) fn commands(line: &str) -> Option<Vec<Command>> {
    let mut commands = Vec::new();
    Lexer { chars: line.chars().collect(), at: 0, commands: &mut commands, depth: 0 }.run()?;
    Some(commands)
}

struct Lexer<'a> {
    chars: Vec<char>,
    at: usize,
    commands: &'a mut Vec<Command>,
    depth: usize,
}

/// The command that is read now.
#[derive(Default)]
struct Current {
    words: Command,
    word: Option<Word>,
    /// The next word says where a redirection goes.
    is_target: bool,
    /// Something in the word is quoted.
    is_quoted: bool,
}

impl Current {
    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    fn push(&mut self, c: char) {
        self.word().text.push(c);
    }

    fn open(&mut self) {
        self.word().is_open = true;
    }

    fn end_word(&mut self) {
        let is_target = self.is_target;
        self.is_quoted = false;
        if let Some(word) = self.word.take() {
            self.is_target = false;
            if !is_target {
                self.words.push(word);
            }
        }
    }

    fn end(&mut self) -> Command {
        self.end_word();
        self.is_target = false;
        std::mem::take(&mut self.words)
    }

    /// Whether the word so far is only the number of a file, or a variable for one, and so a part of the redirection.
    fn is_descriptor(&self) -> bool {
        !self.is_quoted
            && self.word.as_ref().is_some_and(|word| {
                let name = word.text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
                let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                word.text.chars().all(|c| c.is_ascii_digit()) || name.is_some_and(is_name)
            })
    }
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        Some(next)
    }

    fn run(&mut self) -> Option<()> {
        let mut current = Current::default();
        while let Some(c) = self.next() {
            match c {
                ' ' | '\t' => current.end_word(),
                '#' if current.word.is_none() => self.skip_comment(),
                '&' if self.peek(0) == Some('>') => self.redirection(&mut current),
                ';' | '|' | '(' | ')' | '&' => self.end(&mut current),
                c if c.is_control() => self.end(&mut current),
                '<' | '>' if self.peek(0) == Some('(') => {
                    self.at += 1;
                    self.nested(')')?;
                    current.open();
                }
                '<' | '>' => {
                    if current.is_descriptor() {
                        current.word = None;
                    }
                    self.at -= 1;
                    self.redirection(&mut current);
                }
                '{' | '}' if current.word.is_none() && self.stands_alone() => self.end(&mut current),
                _ => self.in_word(c, &mut current)?,
            }
        }
        self.end(&mut current);
        Some(())
    }

    fn end(&mut self, current: &mut Current) {
        let command = current.end();
        if !command.is_empty() {
            self.commands.push(command);
        }
    }

    /// Whether nothing of a word follows.
    fn stands_alone(&self) -> bool {
        self.peek(0).is_none_or(|c| c.is_whitespace() || ";|&()".contains(c))
    }

    fn skip_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    /// The signs of a redirection; the word behind them is its target.
    fn redirection(&mut self, current: &mut Current) {
        current.end_word();
        let start = self.at;
        while self.peek(0).is_some_and(|c| "<>&|".contains(c)) {
            self.at += 1;
        }
        let sign: String = self.chars[start..self.at].iter().collect();
        let has_dash = self.peek(0) == Some('-') && (sign == "<<" || sign.ends_with('&'));
        self.at += usize::from(has_dash);
        // `>&-` closes, and names nothing.
        current.is_target = !(has_dash && sign.ends_with('&'));
    }

    fn in_word(&mut self, c: char, current: &mut Current) -> Option<()> {
        match c {
            '\\' => match self.next() {
                Some('\n') => {}
                Some(escaped) => {
                    current.is_quoted = true;
                    current.push(escaped);
                }
                None => current.push('\\'),
            },
            '\'' => {
                current.is_quoted = true;
                current.word();
                self.until_quote(current);
            }
            '"' => {
                current.is_quoted = true;
                current.word();
                self.double_quoted(current)?;
            }
            '`' => self.backquoted(current)?,
            '$' => self.dollar(current, false)?,
            '*' | '?' => {
                current.push(c);
                current.open();
            }
            // `[` alone is a command.
            '[' if current.word.is_some() || !self.stands_alone() => {
                current.push(c);
                current.open();
            }
            '{' if self.peek(0) == Some('}') => {
                self.at += 1;
                current.word().text.push_str("{}");
            }
            '{' => self.brace(current),
            // White space that is none to a shell; whoever reads along may think otherwise.
            c if c.is_whitespace() => {
                current.push(c);
                current.open();
            }
            c => current.push(c),
        }
        Some(())
    }

    /// `{a,b}` is several words; `{fd}` is a descriptor before a redirection.
    fn brace(&mut self, current: &mut Current) {
        let rest = &self.chars[self.at..];
        let end = rest.iter().position(|c| *c == '}' || c.is_whitespace());
        let is_list =
            end.is_none_or(|end| rest[..end].iter().any(|c| !(c.is_ascii_alphanumeric() || *c == '_')));
        current.push('{');
        if is_list {
            current.open();
        }
    }

    fn until_quote(&mut self, current: &mut Current) {
        while let Some(c) = self.next() {
            if c == '\'' {
                return;
            }
            current.push(c);
        }
    }

    fn double_quoted(&mut self, current: &mut Current) -> Option<()> {
        while let Some(c) = self.next() {
            match c {
                '"' => return Some(()),
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(escaped @ ('$' | '`' | '"' | '\\')) => current.push(escaped),
                    Some(other) => current.word().text.extend(['\\', other]),
                },
                '`' => self.backquoted(current)?,
                '$' => self.dollar(current, true)?,
                c => current.push(c),
            }
        }
        Some(())
    }

    fn dollar(&mut self, current: &mut Current, is_quoted: bool) -> Option<()> {
        match self.peek(0) {
            Some('\'') if !is_quoted => {
                self.at += 1;
                current.is_quoted = true;
                current.word();
                self.ansi_quoted(current);
            }
            Some('"') if !is_quoted => {
                self.at += 1;
                current.is_quoted = true;
                self.double_quoted(current)?;
            }
            Some('(') => {
                self.at += 1;
                current.open();
                self.nested(')')?;
            }
            Some('{') => {
                self.at += 1;
                current.open();
                self.nested('}')?;
            }
            Some(c) if c.is_alphanumeric() || "_@*#?-$!".contains(c) => {
                current.open();
                self.at += 1;
                while c != '@' && self.peek(0).is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    self.at += 1;
                }
            }
            _ => current.push('$'),
        }
        Some(())
    }

    /// Reads up to the closing sign, and what stands there as commands.
    fn nested(&mut self, close: char) -> Option<()> {
        let start = self.at;
        let open = if close == ')' { '(' } else { '{' };
        let mut depth = 1;
        let mut quote = None;
        while let Some(c) = self.next() {
            match (quote, c) {
                (None | Some('"'), '\\') => self.at += 1,
                (None, '\'' | '"') => quote = Some(c),
                (Some(quoted), c) if c == quoted => quote = None,
                (None, c) if c == open => depth += 1,
                (None, c) if c == close => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                _ => {}
            }
        }
        let end = if depth == 0 { self.at - 1 } else { self.chars.len() };
        self.inner(self.chars[start..end.max(start)].to_vec())
    }

    fn backquoted(&mut self, current: &mut Current) -> Option<()> {
        let mut inner = Vec::new();
        while let Some(c) = self.next() {
            match (c, self.peek(0)) {
                ('`', _) => break,
                ('\\', Some(escaped @ ('`' | '\\' | '$'))) => {
                    self.at += 1;
                    inner.push(escaped);
                }
                _ => inner.push(c),
            }
        }
        current.open();
        self.inner(inner)
    }

    fn inner(&mut self, chars: Vec<char>) -> Option<()> {
        if self.depth == DEPTH {
            return None;
        }
        Lexer { chars, at: 0, commands: self.commands, depth: self.depth + 1 }.run()
    }

    /// `$'…'`, with the escapes of C.
    fn ansi_quoted(&mut self, current: &mut Current) {
        while let Some(c) = self.next() {
            match c {
                '\'' => return,
                '\\' => match self.next() {
                    Some('x') => self.number(16, 2, current),
                    Some('u') => self.number(16, 4, current),
                    Some('U') => self.number(16, 8, current),
                    Some('0'..='7') => {
                        self.at -= 1;
                        self.number(8, 3, current);
                    }
                    Some('a' | 'b' | 'e' | 'E' | 'f' | 'n' | 'r' | 't' | 'v') => current.push(' '),
                    Some('c') => {
                        self.at += 1;
                        current.open();
                    }
                    Some(other) => current.push(other),
                    None => {}
                },
                c => current.push(c),
            }
        }
    }

    fn number(&mut self, base: u32, most: usize, current: &mut Current) {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = self.peek(0).and_then(|c| c.to_digit(base)) else { break };
            value = value * base + digit;
            self.at += 1;
        }
        match char::from_u32(value).filter(char::is_ascii) {
            // A shell ends the word's text here.
            Some('\0') | None => current.open(),
            Some(c) => current.push(c),
        }
    }
}

#[cfg(test)]
mod tests;
