//! From a turn to what is sent: a text in chunks, or one tool call.

use crate::{
    context::{Turn, Want},
    tools::Tool,
};

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A final answer, in the pieces in which it is streamed.
    Text(Vec<String>),
    /// A tool call; its arguments are JSON, or text for a custom tool.
    Call { name: String, namespace: Option<String>, custom: bool, arguments: String },
}

impl Reply {
    /// The next step of a turn: the first tool call still to be made, else the answer to everything.
    pub(crate) fn new(turn: &Turn, tools: &[Tool<'_>]) -> Reply {
        for want in &turn.wants {
            let Want::Use(kind, input) = want else { continue };
            if let Some(tool) = kind.pick(tools) {
                return Reply::Call {
                    name: tool.name().to_owned(),
                    namespace: tool.namespace.clone(),
                    custom: tool.custom,
                    arguments: tool.arguments(*kind, input),
                };
            }
        }
        Reply::Text(chunks(turn))
    }

    /// All of the text, or the arguments of the call: what is counted as output.
    pub(crate) fn text(&self) -> String {
        match self {
            Reply::Text(chunks) => chunks.concat(),
            Reply::Call { arguments, .. } => arguments.clone(),
        }
    }
}

/// A count goes one word a chunk, a slow reply too; other text in two chunks at most, so that it costs few writes.
fn chunks(turn: &Turn) -> Vec<String> {
    let mut chunks = Vec::new();
    let mut text = String::new();
    for (at, want) in turn.wants.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        match want {
            Want::Say(said) => text.push_str(said),
            Want::Use(kind, _) => text.push_str(kind.missing()),
            Want::Count(to) => {
                if !text.trim().is_empty() {
                    let glue = if text.ends_with('\n') { text.pop() } else { None };
                    split(&text, turn.slow.is_some(), &mut chunks);
                    text.clear();
                    text.extend(glue);
                }
                for n in 1..=*to {
                    let gap = if n == 1 { "" } else { " " };
                    chunks.push(format!("{text}{gap}{n}"));
                    text.clear();
                }
            }
        }
    }
    if turn.wants.is_empty() {
        text = turn.slow.map_or_else(|| "ok".to_owned(), |s| format!("I took {} seconds", s.as_secs_f64()));
    }
    split(&text, turn.slow.is_some(), &mut chunks);
    chunks
}

fn split(text: &str, by_word: bool, chunks: &mut Vec<String>) {
    if text.is_empty() {
        return;
    }
    if by_word {
        let mut start = 0;
        let mut in_word = false;
        for (at, c) in text.char_indices() {
            if c.is_whitespace() && in_word {
                chunks.push(text[start..at].to_owned());
                start = at;
            }
            in_word = !c.is_whitespace();
        }
        chunks.push(text[start..].to_owned());
        return;
    }
    // The first gap in the second half.
    let half = text.len() / 2;
    match text.char_indices().find(|(at, c)| *at >= half && c.is_whitespace()) {
        Some((at, _)) if at > 0 => chunks.extend([text[..at].to_owned(), text[at..].to_owned()]),
        _ => chunks.push(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn said(wants: &[Want], slow: bool) -> Vec<String> {
        let slow = slow.then_some(Duration::from_secs(2));
        chunks(&Turn { wants: wants.to_vec(), slow, fails: Vec::new() })
    }

    #[test]
    fn a_text_goes_in_chunks_that_join_to_it() {
        let say = |text: &str| Want::Say(text.to_owned());
        let cases: Vec<(Vec<Want>, bool, Vec<&str>)> = vec![
            (vec![say("hello")], false, vec!["hello"]),
            (vec![say("X = 5"), say("Y = 6")], false, vec!["X = 5", "\nY = 6"]),
            (vec![Want::Count(3)], false, vec!["1", " 2", " 3"]),
            (
                vec![say("a"), Want::Count(2), say("b"), Want::Count(1)],
                false,
                vec!["a", "\n1", " 2", "\nb", "\n1"],
            ),
            (vec![say("a b"), say(" c ")], true, vec!["a", " b", "\n c", " "]),
            (vec![Want::Count(1), Want::Count(2)], false, vec!["1", "\n1", " 2"]),
            (vec![say("")], false, vec![]),
            (vec![], false, vec!["ok"]),
            (vec![], true, vec!["I", " took", " 2", " seconds"]),
        ];
        for (wants, slow, expected) in cases {
            assert_eq!(said(&wants, slow), expected, "{wants:?}");
        }
    }
}
