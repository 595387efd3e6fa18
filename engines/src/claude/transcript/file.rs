//! Reading and writing transcripts.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::object::Object;

/// A longer line is not read.
pub(super) const LINE_BYTES: u64 = 32 << 20;

/// What is read of a transcript. Whole API requests, most of the bytes, are no part of it.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// The chain entries, in the order in which they were written.
    pub(super) entries: Vec<Entry>,
    /// The other lines.
    pub(super) others: Vec<Object>,
}

impl Transcript {
    /// Reads a transcript. What is no JSON is left out: the last line can be half written.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut transcript = Self::default();
        let mut reader = BufReader::new(File::open(path)?);
        let mut bytes = Vec::new();
        while reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes)? > 0 {
            let is_request = is_request(&bytes);
            if bytes.len() as u64 == LINE_BYTES && !bytes.ends_with(b"\n") {
                tracing::warn!(path = %path.display(), "a line of the transcript is too long to be read");
                reader.skip_until(b'\n')?;
            } else if !is_request && let Some(line) = Object::parse(&bytes) {
                transcript.push(line);
            }
            bytes.clear();
        }
        Ok(transcript)
    }

    fn push(&mut self, line: Object) {
        match Entry::of(line) {
            Ok(entry) => self.entries.push(entry),
            Err(line) => self.others.push(line),
        }
    }

    /// The other lines of that type that belong to that session, in order: a file can hold lines of the session that it
    /// was copied from.
    pub(super) fn notes<'a>(
        &'a self,
        kind: &'a str,
        session: &'a str,
    ) -> impl DoubleEndedIterator<Item = &'a Object> {
        let is = |line: &Object, name: &str, wanted: &str| {
            line.get::<String>(name).is_some_and(|value| value == wanted)
        };
        self.others.iter().filter(move |line| is(line, "type", kind) && is(line, "sessionId", session))
    }
}

/// Whether a line is a copy of an API request, which is no part of the conversation.
pub(super) fn is_request(line: &[u8]) -> bool {
    line.starts_with(br#"{"type":"api-request"#)
}

/// Writes a transcript that is not there yet: all of it or nothing, and on disk when this returns. Nobody else may read
/// it.
pub(super) fn write_new(path: &Path, lines: &[Object]) -> io::Result<()> {
    if path.exists() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let partial = partial(path);
    let written = write(&partial, lines).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written.and_then(|()| path.parent().map_or(Ok(()), sync_folder))
}

/// Where a transcript is until it is whole. The CLI does not take it for a transcript.
pub(super) fn partial(path: &Path) -> PathBuf {
    path.with_extension("jsonl.partial")
}

fn write(path: &Path, lines: &[Object]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut writer = BufWriter::new(file);
    for line in lines {
        writeln!(writer, "{line}")?;
    }
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Creates a folder that nobody else may look into, with those above it.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
