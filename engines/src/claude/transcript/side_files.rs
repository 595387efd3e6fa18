//! Large results of tools: the CLI puts them into files beside the transcript, and names these by their absolute paths.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::file::{create_folder, sync_folder};
use super::object::Object;
use super::path::real;

/// The folder with them in a session's own folder.
const FOLDER: &str = "tool-results";

/// The files of a session that is copied, of which the copy gets those that it names.
#[derive(Debug)]
pub(super) struct SideFiles {
    from: PathBuf,
    to: PathBuf,
    named: BTreeSet<String>,
}

impl SideFiles {
    /// Of the sessions that have these transcripts.
    pub(super) fn new(source: &Path, copy: &Path) -> Self {
        let folder = |transcript: &Path| transcript.with_extension("").join(FOLDER);
        Self { from: folder(source), to: folder(copy), named: BTreeSet::new() }
    }

    /// Makes these lines name the copy's files.
    pub(super) fn rewrite(&mut self, lines: &mut [Object]) {
        // The CLI names them as it was given its configuration folder, with links or without.
        let spellings = [real(&self.from), absolute(&self.from)];
        let new = in_json(&absolute(&self.to));
        for old in spellings.iter().map(|path| in_json(path)).collect::<BTreeSet<_>>() {
            for value in lines.iter_mut().flat_map(Object::values_mut).filter(|value| value.contains(&old)) {
                self.named.extend(value.split(&old).skip(1).map(file_name).map(str::to_owned));
                *value = value.replace(&old, &new);
            }
        }
    }

    /// Copies the files that were named; they are on disk when this returns. One that is not there is not missed: then
    /// the source does not have it either.
    pub(super) fn copy(&self) -> io::Result<()> {
        for name in &self.named {
            let from = self.from.join(name);
            if from.is_file() {
                create_folder(&self.to)?;
                let to = self.to.join(name);
                fs::copy(from, &to)?;
                File::open(to)?.sync_all()?;
            }
        }
        if self.to.is_dir() { sync_folder(&self.to) } else { Ok(()) }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The folder as it stands within a JSON string.
fn in_json(folder: &Path) -> String {
    let text = Value::from(format!("{}/", folder.display())).to_string();
    text.trim_matches('"').to_owned()
}

/// The name of the file at the beginning of the text; never one that leads out of its folder.
fn file_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(text.len());
    // A full stop behind it ends a sentence.
    text[..end].trim_end_matches('.')
}
