//! Decides whether a transcript has what is stored of its session, before the session is resumed or copied.
//!
//! The stored messages are the truth, and the transcript can lag behind them: a backup was put back, the power failed, the
//! disk was full. The newest stored *anchor* (an entry's uuid) shows it. All behaviour of the CLI below was tried with
//! version 2.1.332, which resumes every transcript with an entry in it, and bridges holes without a word.
//!
//! | the transcript | a resume | a copy at the anchor |
//! |---|---|---|
//! | has the anchor, and all entries before it | goes on | is made |
//! | goes on after the anchor (a crash before the commit) | goes on; the rest is found by the messages' ids | is made |
//! | its last line is half written or NULs, and the anchor is before that | goes on; the line is removed, or completed | is made |
//! | has lines twice | goes on; the first of them counts | is made |
//! | has lines that are no JSON, and no entry is missing | goes on | is made |
//! | does not have the anchor: put back, cut short, emptied | [`EngineError::Behind`] | [`EngineError::Behind`] |
//! | has the anchor on a branch that a resume does not take | [`EngineError::Behind`] | is made |
//! | an entry is missing or unreadable in the chain | [`EngineError::Behind`] | [`EngineError::Behind`] |
//! | has a line longer than is read | goes on: the line may be the missing entry | [`EngineError::Behind`] |
//! | cannot be read | [`EngineError::Behind`] | [`EngineError::Behind`] |
//! | is not there, or has no entry and no anchor is stored | [`EngineError::ResumeDropped`] | [`EngineError::ResumeDropped`] |
//!
//! Only entries after the last compaction are in the model's context: what is missing before it is missed by nobody.
//!
//! The whole file is read, since its end does not tell whether its middle is there. Of most bytes, the CLI's copies of API
//! requests, only the beginning of the line is looked at; of an entry only its links are kept.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::entry::Kind;
use super::file::{LINE_BYTES, is_request};
use crate::contract::EngineError;

/// How an entry is joined to others.
#[derive(Debug)]
struct Link {
    parent: Option<String>,
    /// The entry before a compaction, where the chain begins anew for the model.
    logical: Option<String>,
    /// Of a message of the model: its id, which all blocks of it have.
    message: Option<String>,
    is_user: bool,
}

/// The links of a transcript.
#[derive(Debug, Default)]
struct Links {
    by_uuid: HashMap<String, Link>,
    /// The entry of the main chain that was written last.
    last: Option<String>,
    has_gap: bool,
}

/// Why a transcript is behind.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// It has no entry at all.
    Empty,
    /// The branch that a resume takes does not have the anchor.
    NoAnchor,
    /// An entry names this one as the one before it, and it is not there.
    Hole(String),
}

/// A line, as far as it links entries. Values of any type are no error.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    uuid: Option<&'a RawValue>,
    #[serde(borrow, rename = "parentUuid")]
    parent: Option<&'a RawValue>,
    #[serde(borrow, rename = "logicalParentUuid")]
    logical: Option<&'a RawValue>,
    #[serde(borrow, rename = "isSidechain")]
    is_side_chain: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// Checks that a session can be resumed from this transcript, and makes its end one that the CLI can append to. `anchor` is
/// the newest that is stored of the session. No process may have the session open.
pub(super) fn resume(path: &Path, anchor: Option<&str>) -> Result<(), EngineError> {
    let links = Links::read(path).map_err(|error| unreadable(&error))?;
    match (links.check_resume(anchor), anchor) {
        (Ok(()), _) => mend_end(path).map_err(|error| unreadable(&error)),
        (Err(Fault::Empty), None) => {
            Err(EngineError::ResumeDropped("nothing was said in the transcript".to_owned()))
        }
        (Err(fault), _) => Err(EngineError::Behind(fault.to_string())),
    }
}

/// Checks that a copy up to `anchor` has all that was said before it.
pub(super) fn copy(path: &Path, anchor: &str) -> Result<(), EngineError> {
    let links = Links::read(path).map_err(|error| unreadable(&error))?;
    if links.has_gap {
        return Err(EngineError::Behind("the transcript has a line that is too long to be read".to_owned()));
    }
    let way = if links.by_uuid.contains_key(anchor) { links.way(anchor) } else { Err(Fault::NoAnchor) };
    way.map(drop).map_err(|fault| EngineError::Behind(fault.to_string()))
}

pub(super) fn unreadable(error: &io::Error) -> EngineError {
    let reason = format!("the transcript cannot be read: {error}");
    // The host has run out of something, and the file is as good as before.
    let is_passing = matches!(
        nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or_default()),
        nix::errno::Errno::EMFILE | nix::errno::Errno::ENFILE | nix::errno::Errno::ENOMEM
    );
    match error.kind() {
        io::ErrorKind::NotFound => EngineError::ResumeDropped(reason),
        _ if is_passing => EngineError::Unavailable(reason),
        _ => EngineError::Behind(reason),
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("the transcript is empty"),
            Self::NoAnchor => f.write_str("the transcript does not have the newest message that is stored"),
            Self::Hole(uuid) => write!(f, "the transcript lacks the entry {uuid}"),
        }
    }
}

impl Links {
    fn read(path: &Path) -> io::Result<Self> {
        let mut links = Self::default();
        let mut reader = BufReader::with_capacity(256 * 1024, File::open(path)?);
        let mut bytes = Vec::new();
        while reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes)? > 0 {
            let is_request = is_request(&bytes);
            if bytes.len() as u64 == LINE_BYTES && !bytes.ends_with(b"\n") {
                links.has_gap |= !is_request;
                reader.skip_until(b'\n')?;
            } else if !is_request {
                links.add(&String::from_utf8_lossy(&bytes));
            }
            bytes.clear();
        }
        Ok(links)
    }

    fn add(&mut self, line: &str) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return };
        let Some(uuid) = text(line.uuid) else { return };
        if self.by_uuid.contains_key(&uuid) {
            return;
        }
        let kind = text(line.kind).and_then(|name| Kind::of(&name));
        if kind.is_some() && line.is_side_chain.is_none_or(|raw| raw.get() != "true") {
            self.last = Some(uuid.clone());
        }
        let is_models = kind == Some(Kind::Assistant);
        let message = line
            .message
            .filter(|_| is_models)
            .and_then(|raw| serde_json::from_str::<Message<'_>>(raw.get()).ok());
        let link = Link {
            parent: text(line.parent),
            logical: text(line.logical),
            message: message.and_then(|message| text(message.id)),
            is_user: kind == Some(Kind::User),
        };
        self.by_uuid.insert(uuid, link);
    }

    /// Whether the branch that a resume takes is whole and has the anchor.
    fn check_resume(&self, anchor: Option<&str>) -> Result<(), Fault> {
        let Some(last) = &self.last else { return Err(Fault::Empty) };
        let way = match self.way(last) {
            Ok(way) => way,
            Err(_) if self.has_gap => return Ok(()),
            Err(fault) => return Err(fault),
        };
        match anchor {
            Some(anchor) if !self.is_beside(anchor, &way) && !self.has_gap => Err(Fault::NoAnchor),
            _ => Ok(()),
        }
    }

    /// The entries from this one back to the first, also past compactions.
    fn way<'a>(&'a self, from: &'a str) -> Result<HashSet<&'a str>, Fault> {
        let mut way = HashSet::new();
        let mut next = Some(from);
        let mut is_in_context = true;
        while let Some(uuid) = next {
            let Some(link) = self.by_uuid.get(uuid) else {
                if is_in_context {
                    return Err(Fault::Hole(uuid.to_owned()));
                }
                break;
            };
            // A circle must not hold us.
            if !way.insert(uuid) {
                break;
            }
            is_in_context &= link.parent.is_some();
            next = link.parent.as_deref().or(link.logical.as_deref());
        }
        Ok(way)
    }

    /// Whether an entry is on the way, or belongs to a message on it: where a message calls several tools, the results are
    /// joined to its blocks, and the conversation goes on after one of them.
    fn is_beside(&self, uuid: &str, way: &HashSet<&str>) -> bool {
        if way.contains(uuid) {
            return true;
        }
        let Some(link) = self.by_uuid.get(uuid) else { return false };
        let parent =
            link.parent.as_deref().filter(|_| link.is_user).and_then(|parent| self.by_uuid.get(parent));
        let message = link.message.as_ref().or(parent.and_then(|parent| parent.message.as_ref()));
        message.is_some_and(|id| {
            way.iter().filter_map(|uuid| self.by_uuid.get(*uuid)).any(|on| on.message.as_ref() == Some(id))
        })
    }
}

/// The string that a value is.
fn text(value: Option<&RawValue>) -> Option<String> {
    value.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

/// Completes the last line, or removes it where it is half written: the CLI would append its next line to it, and both would
/// be lost.
fn mend_end(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    let begin = last_line(&mut file, length)?;
    if begin == length {
        return Ok(());
    }
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    (&mut file).take(LINE_BYTES).read_to_end(&mut line)?;
    if serde_json::from_slice::<&RawValue>(&line).is_ok() {
        file.write_all(b"\n")?;
    } else {
        tracing::warn!(path = %path.display(), bytes = length - begin, "the end of a transcript was half written and is removed");
        file.set_len(begin)?;
    }
    file.sync_all()
}

/// Where the line begins that has no end; the end of the file where there is none.
fn last_line(file: &mut File, length: u64) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut end = length;
    let mut bytes = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        bytes.clear();
        file.seek(SeekFrom::Start(begin))?;
        (&mut *file).take(end - begin).read_to_end(&mut bytes)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}
