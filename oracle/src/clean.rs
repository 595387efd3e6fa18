//! What in a user message is the user's own: CLIs put text of their own there, which must be neither obeyed nor answered.
//!
//! - `<system-reminder>…</system-reminder>` anywhere, and any other block that opens a line with a tag whose name has a
//!   `-` or `_` (`<environment_context>`, `<local-command-stdout>`, …), is dropped. A tag in the middle of a line stays.
//! - Claude Code quotes a message that came in mid-turn: `The user sent a new message while you were working:` and then
//!   the message, alone (also as a message of the system), inside a reminder, or at the end of a tool result. The message is kept, the frame dropped.
//! - `No response requested.` as the assistant's whole text (Claude Code) closes a turn that a crash has cut off: no answer.
//! - `[Request interrupted by user…` (Claude Code) and `<turn_aborted>` (Codex) say that the turn before is over.
//! - `# AGENTS.md instructions…` (Codex) is a document, not a message.

/// A piece of a user message, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// The user's own words, never blank.
    Said(&'a str),
    /// The turn before this point was broken off: what was asked there wants no answer any more.
    Interrupted,
}

const REMINDER: &str = "system-reminder";
const QUOTES: [&str; 2] =
    ["The user sent a new message while you were working:", "The user sent the following message:"];
/// How the advice to the model behind the message begins.
const ADVICE: [&str; 2] = ["\n\nThis is how Claude Code surfaces messages", "\n\nIMPORTANT:"];
const INTERRUPTED: &str = "[Request interrupted by user";

/// Splits the text of a user message into its pieces.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let start = text.trim_start();
    if start.starts_with(INTERRUPTED) {
        return vec![Piece::Interrupted];
    }
    if start.starts_with("# AGENTS.md instructions") {
        return Vec::new();
    }
    let mut found = Vec::new();
    scan(text, &mut |part| match part {
        Part::Outside(text) => said(quoted(text).unwrap_or(text), &mut found),
        Part::Block { name: "turn_aborted", .. } => found.push(Piece::Interrupted),
        Part::Block { inner, .. } => {
            if let Some(message) = quoted(inner) {
                said(message, &mut found);
            }
        }
    });
    found
}

/// Splits a tool result into what the tool returned and the user's messages that a CLI has put behind it.
pub(crate) fn tool_result(text: &str) -> (String, Vec<Piece<'_>>) {
    let (mut returned, mut messages) = (String::new(), Vec::new());
    scan(text, &mut |part| match part {
        Part::Outside(text) => returned.push_str(text),
        Part::Block { name: REMINDER, inner, .. } => {
            if let Some(message) = quoted(inner) {
                said(message, &mut messages);
            }
        }
        // Another tag is the tool's own output, such as XML or `<tool_use_error>`.
        Part::Block { whole, .. } => returned.push_str(whole),
    });
    returned.truncate(returned.trim_end().len());
    (returned, messages)
}

fn said<'a>(text: &'a str, found: &mut Vec<Piece<'a>>) {
    if !text.trim().is_empty() {
        found.push(Piece::Said(text));
    }
}

/// Whether a text of the assistant is one that Claude Code itself puts where a turn was cut off and nobody has answered.
pub(crate) fn is_placeholder(text: &str) -> bool {
    text.trim() == "No response requested."
}

/// Whether a text that is not the user's quotes a message of the user.
pub(crate) fn is_quoting(text: &str) -> bool {
    quoted(text).is_some()
}

/// The message that a frame of Claude Code quotes, without the advice to the model that may follow it.
fn quoted(text: &str) -> Option<&str> {
    let (at, frame) = QUOTES.iter().find_map(|frame| text.find(frame).map(|at| (at, frame)))?;
    let message = &text[at + frame.len()..];
    let end = ADVICE.iter().find_map(|advice| message.rfind(advice));
    Some(&message[..end.unwrap_or(message.len())])
}

enum Part<'a> {
    Outside(&'a str),
    Block { name: &'a str, inner: &'a str, whole: &'a str },
}

fn scan<'a>(text: &'a str, each: &mut dyn FnMut(Part<'a>)) {
    let (mut done, mut from) = (0, 0);
    while let Some(at) = text[from..].find('<').map(|at| from + at) {
        from = at + 1;
        let Some((name, inner, end)) = block(text, at) else { continue };
        each(Part::Outside(&text[done..at]));
        each(Part::Block { name, inner, whole: &text[at..end] });
        (done, from) = (end, end);
    }
    each(Part::Outside(&text[done..]));
}

/// The block of a CLI that starts at `at`: its name, its inside and where it ends.
fn block(text: &str, at: usize) -> Option<(&str, &str, usize)> {
    let tag = &text[at + 1..];
    let name = &tag[..tag.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))?];
    let opens_line = text[..at].chars().next_back().is_none_or(|c| c == '\n' || c == '>');
    if name != REMINDER && !(opens_line && name.contains(['-', '_'])) {
        return None;
    }
    // The names are short and few, so a second search for each is cheap.
    let start = at + 1 + tag.find('>')? + 1;
    let close = format!("</{name}>");
    let end = start + text[start..].find(&close)?;
    Some((name, &text[start..end], end + close.len()))
}

#[cfg(test)]
mod tests {
    use super::{Piece::*, *};

    #[test]
    fn only_the_users_own_words_stay() {
        let cases: Vec<(&str, Vec<Piece<'_>>)> = vec![
            ("X = 5", vec![Said("X = 5")]),
            (" \n", vec![]),
            ("<system-reminder>say no</system-reminder>", vec![]),
            (
                "say a\n<system-reminder>\nX = 9\n</system-reminder>\nsay b",
                vec![Said("say a\n"), Said("\nsay b")],
            ),
            ("hi <system-reminder>x</system-reminder>", vec![Said("hi ")]),
            ("say <my-tag>hi</my-tag>", vec![Said("say <my-tag>hi</my-tag>")]),
            ("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>", vec![]),
            ("<system-reminder>never closed", vec![Said("<system-reminder>never closed")]),
            ("a < b", vec![Said("a < b")]),
            ("<", vec![Said("<")]),
            ("The user sent a new message while you were working:\nadd 1 to x", vec![Said("\nadd 1 to x")]),
            (
                "<system-reminder>\nThe user sent a new message while you were working:\nadd 1 to x\n\nIMPORTANT: say yes.\n</system-reminder>",
                vec![Said("\nadd 1 to x")],
            ),
            ("[Request interrupted by user for tool use]", vec![Interrupted]),
            ("<turn_aborted>\nwhy\n</turn_aborted>", vec![Interrupted]),
            ("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nsay no\n</INSTRUCTIONS>", vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }

    #[test]
    fn a_tool_result_loses_reminders_and_gives_up_the_message_behind_it() {
        let text = "<out_put>1</out_put>\nhi\n\n<system-reminder>The user sent a new message while you were working:\nwhat is x</system-reminder>\n";
        assert_eq!(tool_result(text), ("<out_put>1</out_put>\nhi".to_owned(), vec![Said("\nwhat is x")]));
    }
}
