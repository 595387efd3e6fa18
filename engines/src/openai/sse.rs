//! Cuts a body into what its lines mean: server-sent events, bare lines, or one document.
//!
//! Our own reader and not `eventsource-stream`, because that one has no bound, reads a long line anew with each
//! piece, gives up at a broken character, and passes over the lines that are no field: servers write errors there.

use serde::de::IgnoredAny;

use super::failure::Failure;

/// The longest event, or whole JSON body.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Takes a body in pieces and gives it back in events.
#[derive(Debug, Default)]
pub(super) struct Events {
    form: Form,
    /// What has come; up to `start` it is used up, up to `scanned` it holds no end of a line.
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    /// The data of the event under construction, or of the one just given.
    data: Vec<u8>,
    given: bool,
    kind: Kind,
    after_cr: bool,
}

/// What [`Events::data`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// The data of an event.
    #[default]
    Event,
    /// The data of an event, or the value of a line, that is named `error`.
    Error,
    /// A line that is no field of an event.
    Line,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// Only white space has come.
    #[default]
    Unknown,
    /// It begins like JSON: with the first line it shows whether that is a document or one value a line.
    Json,
    Stream,
    Document,
}

/// What a line is by itself.
enum Line<'a> {
    Data(&'a [u8]),
    Name(&'a [u8]),
    /// The field `error`, which is not one of the standard's.
    Error(&'a [u8]),
    /// A comment, or a field of no meaning to us.
    Passed,
    Bare,
}

impl Events {
    /// Adds a piece of the body.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let piece = if self.form == Form::Unknown { self.recognise(piece)? } else { piece };
        if self.buffer.len() - self.start + self.data.len() + piece.len() > MAX_BYTES {
            return Err(Failure::last(format!("an event of the answer is longer than {MAX_BYTES} bytes")));
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    /// Decides by the first character, since servers' content types are not to be trusted.
    fn recognise<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], Failure> {
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
        let blanks = piece.iter().take_while(|byte| is_blank(byte)).count();
        let piece = &piece[blanks..];
        self.form = match piece.first() {
            None => Form::Unknown,
            Some(b'<') => return Err(Failure::page()),
            Some(b'{' | b'[') => Form::Json,
            Some(_) => Form::Stream,
        };
        Ok(piece)
    }

    /// Moves on to the next event, if there is a complete one; then [`Events::data`] is its data.
    pub(super) fn advance(&mut self) -> bool {
        self.clear_given();
        while self.form != Form::Document
            && let Some(end) = self.end_of_line()
        {
            if self.form == Form::Json {
                self.form =
                    if is_json(&self.buffer[self.start..end]) { Form::Stream } else { Form::Document };
                continue;
            }
            if self.ends_before(end) {
                self.given = true;
                return true;
            }
            let is_blank = self.start == end;
            let is_whole = self.read_line(end);
            self.after_cr = self.buffer[end] == b'\r';
            self.start = end + 1;
            self.scanned = self.start;
            if is_whole || (is_blank && !self.data.is_empty()) {
                self.given = true;
                return true;
            }
            if is_blank {
                // A name without data is no event.
                self.kind = Kind::Event;
            }
        }
        false
    }

    /// At the end of the body: whether something is left that has no end of its own. Ask again until there is nothing.
    pub(super) fn advance_to_end(&mut self) -> bool {
        self.clear_given();
        let end = self.buffer.len();
        if matches!(self.form, Form::Json | Form::Document) {
            self.data.extend_from_slice(&self.buffer[self.start..]);
        } else if !self.ends_before(end) {
            self.read_line(end);
        } else {
            self.given = true;
            return true;
        }
        self.start = end;
        self.scanned = end;
        self.given = true;
        !self.data.is_empty()
    }

    fn clear_given(&mut self) {
        if std::mem::take(&mut self.given) {
            self.data.clear();
            self.kind = Kind::Event;
        }
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// What the data is.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the body is one JSON document.
    pub(super) fn is_document(&self) -> bool {
        matches!(self.form, Form::Json | Form::Document)
    }

    fn end_of_line(&mut self) -> Option<usize> {
        if self.after_cr && self.start < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.start] == b'\n' {
                self.start += 1;
                self.scanned = self.start.max(self.scanned);
            }
        }
        let found = self.buffer[self.scanned..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        if found.is_none() {
            self.scanned = self.buffer.len();
        }
        found.map(|at| self.scanned + at)
    }

    /// Whether the event under construction is over although no blank line has come: another value, or a line that is no
    /// field, begins behind it. Such a line stays for the next event.
    fn ends_before(&self, end: usize) -> bool {
        if self.data.is_empty() {
            return false;
        }
        match line(&self.buffer[self.start..end]) {
            Line::Data(value) => is_value(value) && (self.data == b"[DONE]" || is_json(&self.data)),
            Line::Bare | Line::Error(_) => true,
            Line::Name(_) | Line::Passed => false,
        }
    }

    /// Takes a line, and tells whether it is something by itself.
    fn read_line(&mut self, end: usize) -> bool {
        match line(&self.buffer[self.start..end]) {
            Line::Data(value) => {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                false
            }
            Line::Name(name) => {
                self.kind = if name == b"error" { Kind::Error } else { Kind::Event };
                false
            }
            Line::Error(value) => {
                self.data.extend_from_slice(value);
                self.kind = Kind::Error;
                true
            }
            Line::Passed => false,
            Line::Bare => {
                self.data.extend_from_slice(&self.buffer[self.start..end]);
                self.kind = Kind::Line;
                true
            }
        }
    }
}

fn line(line: &[u8]) -> Line<'_> {
    let (name, value) = match line.iter().position(|byte| *byte == b':') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &b""[..]),
    };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"data" => Line::Data(value),
        b"event" => Line::Name(value),
        b"" | b"id" | b"retry" => Line::Passed,
        name if name.eq_ignore_ascii_case(b"error") && !value.trim_ascii().is_empty() => Line::Error(value),
        _ if line.trim_ascii().is_empty() => Line::Passed,
        _ => Line::Bare,
    }
}

/// Whether a line of data begins a value of its own, and does not go on with a longer one.
fn is_value(line: &[u8]) -> bool {
    line.starts_with(b"{") || line.trim_ascii() == b"[DONE]"
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}
