//! Which entries a copy has.

use super::entry::{Entry, Kind};

/// Where a session is cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut<'a> {
    /// How many entries are before it.
    end: usize,
    /// The boundary whose summary is the last entry.
    summarised: Option<&'a str>,
}

/// The cut behind the entry `at`, or behind the message that came during a turn under that uuid.
///
/// A compaction writes its boundary, perhaps something else, and then its summary; it is cut before or behind all of
/// them.
pub(super) fn cut<'a>(entries: &'a [Entry], at: &str) -> Option<Cut<'a>> {
    let is_folded = |entry: &Entry| entry.kind == Kind::Attachment && entry.folded().as_deref() == Some(at);
    let at =
        entries.iter().position(|entry| entry.uuid == at).or_else(|| entries.iter().position(is_folded))?;
    if entries[at].is_summary() {
        let boundary = entries[..at].iter().rfind(|entry| entry.is_boundary());
        return Some(Cut { end: at + 1, summarised: boundary.map(|entry| &*entry.uuid) });
    }
    Some(Cut { end: begun_compaction(entries, at).unwrap_or(at + 1), summarised: None })
}

/// The boundary of the compaction that has begun before or at `at`, and whose summary is behind it.
fn begun_compaction(entries: &[Entry], at: usize) -> Option<usize> {
    if entries[at].is_boundary() {
        return Some(at);
    }
    let stops = |entry: &Entry| entry.kind.is_message() || entry.is_boundary();
    let before = entries[..=at].iter().rposition(stops)?;
    let behind = entries[at..].iter().find(|entry| stops(entry))?;
    (entries[before].is_boundary() && behind.is_summary()).then_some(before)
}

impl Cut<'_> {
    /// The entries that stay.
    pub(super) fn kept<'e>(&self, entries: &'e [Entry]) -> impl Iterator<Item = &'e Entry> {
        entries[..self.end].iter().filter(|entry| entry.kind != Kind::Progress)
    }

    /// Whether this is a boundary that has kept messages beside its summary, and they are behind the cut.
    pub(super) fn drops_kept_part_of(&self, entry: &Entry) -> bool {
        self.summarised == Some(&*entry.uuid)
    }
}
