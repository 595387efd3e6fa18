//! What is shown of a turn: each text once, whatever part of it came as it was written.

use std::io;

use crate::terminal::{DIM, PLAIN, aside, harmless, prompt, remark, write};

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
    /// How to answer the question that is shown: the cursor stands behind it.
    prompt: Option<&'static str>,
}

impl Screen {
    pub(super) fn new(is_seen: bool) -> Self {
        Self { is_seen, current: String::new(), complete: None, has_gap: false, is_dim: false, prompt: None }
    }

    /// A piece of the answer.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        if self.has_gap {
            return Ok(());
        }
        self.leave_prompt();
        self.end_thinking()?;
        self.current.push_str(text);
        write(&harmless(text))
    }

    /// A piece of reasoning: dimmed, and only for people.
    pub(super) fn thinking(&mut self, text: &str) -> io::Result<()> {
        if !self.is_seen || self.has_gap {
            return Ok(());
        }
        self.leave_prompt();
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
        self.leave_prompt();
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
    pub(super) fn remark(&mut self, line: &str) {
        self.beside(line, remark);
    }

    /// The same of what matters less.
    pub(super) fn aside(&mut self, line: &str) {
        self.beside(line, aside);
    }

    fn beside(&mut self, line: &str, say: fn(&str)) {
        // Where this fails, the next piece of the answer does and tells.
        let _ = self.end_thinking();
        let is_inside = self.is_seen && !(self.current.is_empty() || self.current.ends_with('\n'));
        let asked = self.prompt;
        self.leave_prompt();
        say(&format!("{}{line}", if is_inside && asked.is_none() { "\n" } else { "" }));
        if let Some(asked) = asked {
            self.prompt(asked);
        }
    }

    /// How to answer what was just asked, with the cursor behind it.
    pub(super) fn prompt(&mut self, how: &'static str) {
        prompt(how);
        self.prompt = Some(how);
    }

    /// The cursor stands on a new line: whoever typed an answer has ended it.
    pub(super) fn line_ended(&mut self) {
        self.prompt = None;
    }

    /// Goes on below a prompt that nobody has answered, if there is one.
    pub(super) fn leave_prompt(&mut self) {
        if self.prompt.take().is_some() {
            remark("");
        }
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
        self.leave_prompt();
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
