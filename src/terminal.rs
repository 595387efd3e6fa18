//! The terminal: standard output for what was asked for, standard error for the rest.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

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

/// Text of others without what would steer the terminal: control characters other than line ends and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\r\n\tc\u{9b}d"), "a[2Jb\n\tcd");
    }
}
