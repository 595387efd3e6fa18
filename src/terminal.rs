//! The terminal: standard output for what was asked for, standard error for the rest.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

/// What dims the text that follows, for people.
pub(crate) const DIM: &str = "\x1b[2m";
/// What ends it.
pub(crate) const PLAIN: &str = "\x1b[0m";

/// A line on standard output. A reader that is gone is no error of ours.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Lines on standard error, with our name before each.
pub(crate) fn complain(lines: &str) {
    let mut err = io::stderr().lock();
    for line in lines.lines() {
        let _ = writeln!(err, "roundhouse: {line}");
    }
}

/// A remark on standard error.
pub(crate) fn remark(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A remark that matters less: dimmed for people.
pub(crate) fn aside(line: &str) {
    if is_watched() {
        remark(&format!("{DIM}{line}{PLAIN}"));
    } else {
        remark(line);
    }
}

/// What an answer is asked for with, on standard error: the cursor stays behind it.
pub(crate) fn prompt(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Text on standard output, at once.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whether a person sees standard output.
pub(crate) fn is_seen() -> bool {
    io::stdout().is_terminal()
}

/// Whether a person sees standard error.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// An error with its causes in one line, leaving out a cause that the text before it says already.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Text of others without what would steer the terminal: control characters other than line ends and tabs, and those
/// that turn the direction of what follows, by which one command can be made to look like another.
pub(crate) fn harmless(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || turns(*c))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\r\n\tc\u{9b}d\u{202e}e"), "a[2Jb\n\tcde");
    }
}
