//! A body read as server-sent events, or as one JSON document where it is that.
//!
//! Our own reader and not `eventsource-stream`, because that one has no bound, reads a long line anew with each
//! piece, and gives up at a broken character.

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
    is_error: bool,
    after_cr: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// Only white space has come.
    #[default]
    Unknown,
    Stream,
    Json,
}

impl Events {
    /// Adds a piece of the body.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let piece = if self.form == Form::Unknown { self.recognise(piece) } else { piece };
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

    /// Decides by the first character, since servers' content types are not to be trusted: no line of an event
    /// stream begins with a brace.
    fn recognise<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
        let blanks = piece.iter().take_while(|byte| is_blank(byte)).count();
        let piece = &piece[blanks..];
        if let Some(first) = piece.first() {
            self.form = if *first == b'{' { Form::Json } else { Form::Stream };
        }
        piece
    }

    /// Moves on to the next event, if there is a complete one; then [`Events::data`] is its data.
    pub(super) fn advance(&mut self) -> bool {
        if std::mem::take(&mut self.given) {
            self.data.clear();
            self.is_error = false;
        }
        if self.form == Form::Json {
            return false;
        }
        while let Some(end) = self.end_of_line() {
            let is_blank = self.start == end;
            self.read_line(end);
            self.after_cr = self.buffer[end] == b'\r';
            self.start = end + 1;
            self.scanned = self.start;
            if is_blank && !self.data.is_empty() {
                self.given = true;
                return true;
            }
            // A name without data is no event.
            self.is_error &= !is_blank;
        }
        false
    }

    /// At the end of the body: whether an event is left that has no blank line behind it.
    pub(super) fn advance_to_end(&mut self) -> bool {
        let end = self.buffer.len();
        match self.form {
            Form::Json => self.data.append(&mut self.buffer),
            Form::Unknown | Form::Stream => self.read_line(end),
        }
        self.start = self.buffer.len();
        self.scanned = self.start;
        self.given = true;
        !self.data.is_empty()
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Whether the event calls itself an error.
    pub(super) fn is_error(&self) -> bool {
        self.is_error
    }

    /// Whether the body is one JSON document.
    pub(super) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    fn end_of_line(&mut self) -> Option<usize> {
        if self.after_cr && self.start < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.start] == b'\n' {
                self.start += 1;
                self.scanned = self.start;
            }
        }
        let found = self.buffer[self.scanned..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        if found.is_none() {
            self.scanned = self.buffer.len();
        }
        found.map(|at| self.scanned + at)
    }

    /// Only `data` and the event's name mean anything to us; comments, ids and the rest are passed over.
    fn read_line(&mut self, end: usize) {
        let line = &self.buffer[self.start..end];
        if let Some(value) = field(line, b"data") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        } else if let Some(name) = field(line, b"event") {
            self.is_error = name == b"error";
        }
    }
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}
