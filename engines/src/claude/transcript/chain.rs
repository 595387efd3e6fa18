//! The tree of entries, and the branch of it on which the conversation goes on.

use std::collections::{HashMap, HashSet};

use super::entry::{Entry, Kind};

/// The branch that was written last: the one that a resume takes. In the order in which it was written.
///
/// Each block of a message is an entry. Where a message calls several tools, each result hangs on its own call and the
/// conversation goes on behind one of them: the others are on no straight way back, and are part of the branch all the same.
pub(super) fn newest_branch(entries: &[Entry]) -> Vec<&Entry> {
    let straight = straight(entries);
    let on_branch = |entry: &Entry| straight.contains(&*entry.uuid);
    let messages: HashSet<String> =
        entries.iter().filter(|entry| on_branch(entry)).filter_map(message_id).collect();
    let is_block = |entry: &Entry| message_id(entry).is_some_and(|id| messages.contains(&id));
    let blocks: HashSet<&str> =
        entries.iter().filter(|entry| is_block(entry)).map(|entry| &*entry.uuid).collect();
    let is_result = |entry: &Entry| {
        entry.parent().is_some_and(|parent| blocks.contains(&*parent)) && !entry.results().is_empty()
    };
    entries
        .iter()
        .filter(|entry| on_branch(entry) || blocks.contains(&*entry.uuid) || is_result(entry))
        .collect()
}

/// The way from the last entry back to the first.
fn straight(entries: &[Entry]) -> HashSet<&str> {
    let by_uuid: HashMap<&str, &Entry> = entries.iter().map(|entry| (&*entry.uuid, entry)).collect();
    let mut way = HashSet::new();
    let mut next = entries.last();
    while let Some(entry) = next
        && way.insert(&*entry.uuid)
    {
        next = entry.predecessor().and_then(|uuid| by_uuid.get(&*uuid).copied());
    }
    way
}

fn message_id(entry: &Entry) -> Option<String> {
    if entry.kind == Kind::Assistant { entry.message().id() } else { None }
}
