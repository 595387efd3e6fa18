//! What is shown of a turn: each text once, whatever part of it came as it was written.

use std::io;

use crate::terminal::{harmless, remark, write};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// The output of one turn.
#[derive(Debug)]
pub(super) struct Screen {
    is_seen: bool,
    /// What is on the screen of the message that is being written.
    current: String,
    /// The last message that is on the screen as a whole.
    complete: Option<String>,
    /// Something was missed: the message is shown when it is whole.
    has_gap: bool,
    is_dim: bool,
}

impl Screen {
    pub(super) fn new(is_seen: bool) -> Self {
        Self { is_seen, current: String::new(), complete: None, has_gap: false, is_dim: false }
    }

    /// A piece of the answer.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        if self.has_gap {
            return Ok(());
        }
        self.end_thinking()?;
        self.current.push_str(text);
        write(&harmless(text))
    }

    /// A piece of reasoning: dimmed, and only for people.
    pub(super) fn thinking(&mut self, text: &str) -> io::Result<()> {
        if !self.is_seen || self.has_gap {
            return Ok(());
        }
        if !self.is_dim {
            self.is_dim = true;
            write(DIM)?;
        }
        write(&harmless(text))
    }

    /// A message is whole: shows what of it is not on the screen yet.
    pub(super) fn message(&mut self, content: &str) -> io::Result<()> {
        if self.current.is_empty() && self.complete.as_deref() == Some(content) {
            return Ok(());
        }
        let rest = self.rest_of(content);
        self.end_thinking()?;
        write(&harmless(&rest))?;
        self.current.clear();
        self.has_gap = false;
        self.complete = Some(content.to_owned());
        Ok(())
    }

    /// What is to be written so that the message stands there as a whole, on lines of its own.
    fn rest_of(&self, content: &str) -> String {
        let end = if content.is_empty() || content.ends_with('\n') { "" } else { "\n" };
        match content.strip_prefix(self.current.as_str()) {
            Some("") if content.is_empty() => String::new(),
            Some(rest) => format!("{rest}{end}"),
            None => format!("\n{content}{end}"),
        }
    }

    /// Something beside the answer, on a line of its own for who sees both.
    pub(super) fn remark(&self, line: &str) {
        let is_inside = self.is_dim || !(self.current.is_empty() || self.current.ends_with('\n'));
        remark(&format!("{}{line}", if self.is_seen && is_inside { "\n" } else { "" }));
    }

    /// Some events are missing.
    pub(super) fn gap(&mut self) {
        self.has_gap = true;
    }

    /// The turn begins anew.
    pub(super) fn restart(&mut self, attempt: i64) -> io::Result<()> {
        self.end()?;
        remark(&format!("the turn starts again (attempt {attempt})"));
        self.complete = None;
        self.has_gap = false;
        Ok(())
    }

    /// Ends the line that was begun, if any.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.end_thinking()?;
        if !self.current.is_empty() && !self.current.ends_with('\n') {
            write("\n")?;
        }
        self.current.clear();
        Ok(())
    }

    fn end_thinking(&mut self) -> io::Result<()> {
        if self.is_dim {
            self.is_dim = false;
            write(PLAIN)?;
            write("\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_written() {
        let cases = [
            ("", "hello", "hello\n"),
            ("hel", "hello", "lo\n"),
            ("hello", "hello", "\n"),
            ("hello\n", "hello\n", ""),
            ("other", "hello", "\nhello\n"),
            ("", "", ""),
        ];
        for (current, content, written) in cases {
            let screen = Screen { current: current.to_owned(), ..Screen::new(false) };
            assert_eq!(screen.rest_of(content), written, "{current:?} {content:?}");
        }
    }
}
