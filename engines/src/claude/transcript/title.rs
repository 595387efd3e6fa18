//! The title of a copy that nobody has given one.

use super::entry::{Entry, Kind};
use super::file::Transcript;
use super::message::Block;

/// In UTF-16 units.
const MAX_PROMPT: usize = 200;

/// The source's title, or what was said first in it.
pub(super) fn of_fork(source: &Transcript, session: &str) -> String {
    let given = |kind, name: &str| {
        let title: String = source.notes(kind, session).next_back()?.get(name)?;
        Some(title).filter(|title| !title.trim().is_empty())
    };
    let title = given("custom-title", "customTitle")
        .or_else(|| given("ai-title", "aiTitle"))
        .or_else(|| source.entries.iter().find_map(prompt))
        .unwrap_or_else(|| "Forked session".to_owned());
    format!("{title} (fork)")
}

/// The beginning of what a person has said.
fn prompt(entry: &Entry) -> Option<String> {
    let is_made_up = entry.line.is("isMeta") || entry.is_summary() || entry.is_interruption();
    if entry.kind != Kind::User || is_made_up {
        return None;
    }
    let text = |block| if let Block::Text(text) = block { Some(text.replace('\n', " ")) } else { None };
    let mut texts = entry.message().blocks().into_iter().filter_map(text);
    let text = texts.find(|text| !text.trim().is_empty())?;
    let text = text.trim();
    // Tags are the CLI's own.
    if text.starts_with('<') {
        return None;
    }
    let mut units = 0;
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= MAX_PROMPT
    };
    let begin: String = text.chars().take_while(fits).collect();
    Some(if begin.len() < text.len() { format!("{}…", begin.trim_end()) } else { begin })
}
