//! A copy of a session up to a point, entry for entry as the vendor's own `forkSession` makes it, but for two things:
//! the large results of tools are copied too, so that the copy never depends on its source; and calls that the cut has
//! left without a result get one that says so.

use std::collections::HashMap;

use serde_json::{Value, json};
use uuid::Uuid;

use super::cut::cut;
use super::entry::{Entry, Kind};
use super::file::Transcript;
use super::message::open_calls;
use super::object::Object;
use super::side_files::SideFiles;
use super::title;

/// What a call is answered with that the cut has left without a result.
const INTERRUPTED: &str = "[Tool call interrupted: the conversation was cut here, before the result of this call. Whether it took effect is unknown: check before you rely on it or call again.]";

/// Fields that belong to the turn in which an entry was written, and not to a copy.
const LEFT_OUT: [&str; 3] = ["turnAttributionKey", "sourceToolAssistantUUID", "slug"];

/// A session that is to be copied, and what the copy is to be.
pub(super) struct Copy<'a> {
    pub(super) source: &'a str,
    pub(super) into: &'a str,
    pub(super) title: Option<&'a str>,
    /// The time of what is new in it.
    pub(super) now: String,
}

/// What a copy consists of.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) lines: Vec<Object>,
    /// The entries of the model's messages and of tools' results: their uuids in the source and in the copy.
    pub(super) anchors: HashMap<String, String>,
}

impl Copy<'_> {
    /// The copy up to and with `at`; `None` where the source has no such entry.
    pub(super) fn make(&self, source: &Transcript, at: &str, files: &mut SideFiles) -> Option<Copied> {
        let cut = cut(&source.entries, at)?;
        let kept: Vec<&Entry> = cut.kept(&source.entries).collect();
        let uuids: HashMap<&str, String> =
            kept.iter().map(|entry| (&*entry.uuid, Uuid::now_v7().to_string())).collect();
        let parents = Parents::new(&source.entries);
        let mut lines: Vec<Object> = kept
            .iter()
            .map(|entry| {
                let mut line = self.entry(entry, &uuids, &parents);
                if cut.drops_kept_part_of(entry) {
                    drop_kept_part(&mut line);
                }
                line
            })
            .collect();
        if let Some(last) = lines.last_mut() {
            last.set("timestamp", self.now.clone());
        }
        let closing = self.closing(&kept, &uuids, &lines);
        lines.extend(closing);
        lines.extend(self.notes(source));
        files.rewrite(&mut lines);
        let is_anchor = |entry: &&&Entry| entry.kind == Kind::Assistant || !entry.results().is_empty();
        let anchors = kept.iter().filter(is_anchor);
        let anchors =
            anchors.filter_map(|entry| Some((entry.uuid.clone(), uuids.get(&*entry.uuid)?.clone())));
        Some(Copied { anchors: anchors.collect(), lines })
    }

    fn entry(&self, entry: &Entry, uuids: &HashMap<&str, String>, parents: &Parents<'_>) -> Object {
        let new = |uuid: Option<String>| uuid.and_then(|uuid| uuids.get(&*uuid).cloned());
        let mut line = entry.line.clone();
        line.set("uuid", new(Some(entry.uuid.clone())));
        line.set("parentUuid", new(parents.of(entry)));
        if line.has("logicalParentUuid") {
            line.set("logicalParentUuid", new(line.get("logicalParentUuid")));
        }
        if let Some(mut metadata) = line.get::<Value>("compactMetadata") {
            rename(&mut metadata, uuids);
            line.set("compactMetadata", metadata);
        }
        line.set("sessionId", self.into);
        if entry.kind == Kind::Assistant && !line.has("requestSessionId") {
            line.set("requestSessionId", self.source);
        }
        for name in LEFT_OUT {
            line.remove(name);
        }
        line.with("forkedFrom", json!({"sessionId": self.source, "messageUuid": entry.uuid}))
    }

    /// The results of the calls that the last message of the model has left open, as the CLI itself writes them.
    fn closing(&self, kept: &[&Entry], uuids: &HashMap<&str, String>, lines: &[Object]) -> Vec<Object> {
        let is_models = |entry: &&&Entry| entry.model_message().is_some();
        let Some(last) = kept.iter().rev().find(is_models).map(|entry| entry.message().id()) else {
            return Vec::new();
        };
        let from =
            kept.iter().position(|entry| entry.kind == Kind::Assistant && entry.message().id() == last);
        let rest = kept.iter().skip(from.unwrap_or(kept.len())).copied();
        let envelope = ["isSidechain", "userType", "entrypoint", "cwd", "version", "gitBranch"];
        let closing = open_calls(rest).into_iter().filter_map(|(entry, call)| {
            let caller = uuids.get(&*entry.uuid)?;
            let result = json!({
                "type": "tool_result", "tool_use_id": call.id, "content": INTERRUPTED, "is_error": true,
            });
            let mut line = Object::default()
                .with("parentUuid", caller.clone())
                .with("type", "user")
                .with("message", json!({"role": "user", "content": [result]}))
                .with("uuid", Uuid::now_v7().to_string())
                .with("timestamp", self.now.clone())
                .with("toolUseResult", INTERRUPTED)
                .with("toolDenialKind", "interrupted")
                .with("sessionId", self.into);
            for name in envelope {
                if let Some(value) = lines.last().and_then(|line| line.get::<Value>(name)) {
                    line.set(name, value);
                }
            }
            Some(line)
        });
        closing.collect()
    }

    /// What of the source's other lines a session has to have, and its title.
    fn notes(&self, source: &Transcript) -> Vec<Object> {
        let note = |kind: &str| Object::default().with("type", kind).with("sessionId", self.into);
        let last = |kind, name: &str| source.notes(kind, self.source).next_back()?.get::<Value>(name);
        let replaced = source.notes("content-replacement", self.source);
        let replaced: Vec<Value> =
            replaced.filter_map(|line| line.get::<Vec<Value>>("replacements")).flatten().collect();
        let mut notes = Vec::new();
        if !replaced.is_empty() {
            notes.push(self.stamped(note("content-replacement").with("replacements", replaced)));
        }
        for (kind, name) in [("atis-latch", "atis"), ("tools-used", "tools")] {
            notes.extend(last(kind, name).map(|value| note(kind).with(name, value)));
        }
        let title = self.title.map_or_else(|| title::of_fork(source, self.source), str::to_owned);
        notes.push(self.stamped(note("custom-title").with("customTitle", title)));
        notes
    }

    fn stamped(&self, line: Object) -> Object {
        line.with("uuid", Uuid::now_v7().to_string()).with("timestamp", self.now.clone())
    }
}

/// Who comes before whom, past the entries of older CLIs that are not copied.
struct Parents<'a> {
    progress: HashMap<&'a str, Option<String>>,
}

impl<'a> Parents<'a> {
    fn new(entries: &'a [Entry]) -> Self {
        let progress = entries.iter().filter(|entry| entry.kind == Kind::Progress);
        Self { progress: progress.map(|entry| (&*entry.uuid, entry.parent())).collect() }
    }

    fn of(&self, entry: &Entry) -> Option<String> {
        let mut parent = entry.parent()?;
        // As many steps as there are such entries: a circle must not hold us.
        for _ in 0..=self.progress.len() {
            match self.progress.get(&*parent) {
                Some(next) => parent = next.clone()?,
                None => return Some(parent),
            }
        }
        None
    }
}

/// Replaces every uuid of a kept entry.
fn rename(value: &mut Value, uuids: &HashMap<&str, String>) {
    match value {
        Value::String(text) => {
            if let Some(new) = uuids.get(&**text) {
                text.clone_from(new);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, uuids)),
        Value::Object(fields) => fields.values_mut().for_each(|value| rename(value, uuids)),
        _ => {}
    }
}

/// A compaction can keep messages that the model goes on to see beside the summary; they are written behind it.
fn drop_kept_part(line: &mut Object) {
    let Some(mut metadata) = line.get::<serde_json::Map<String, Value>>("compactMetadata") else { return };
    for name in ["preservedSegment", "preservedMessages", "postTokens"] {
        metadata.remove(name);
    }
    line.set("compactMetadata", metadata);
}
