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
                let names = value.split(&old).skip(1).map(file_name).filter(|name| !name.is_empty());
                self.named.extend(names.map(str::to_owned));
                *value = value.replace(&old, &new);
            }
        }
    }

    /// Copies the files that were named; they are on disk when this returns. One that is not there is not missed: then
    /// the source does not have it either.
    pub(super) fn copy(&self) -> io::Result<()> {
        self.named.iter().try_for_each(|name| copy(&self.from.join(name), &self.to.join(name)))
    }
}

/// Copies a file, or a folder with what is in it. Links are not followed, and nothing else is copied.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(from) else { return Ok(()) };
    if metadata.is_file() {
        to.parent().map_or(Ok(()), create_folder)?;
        fs::copy(from, to)?;
        File::open(to)?.sync_all()?;
    } else if metadata.is_dir() {
        create_folder(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
    }
    to.parent().filter(|folder| folder.is_dir()).map_or(Ok(()), sync_folder)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The folder as it stands within a JSON string.
fn in_json(folder: &Path) -> String {
    let text = Value::from(format!("{}/", folder.display())).to_string();
    text.trim_matches('"').to_owned()
}

/// The name of the file or folder at the beginning of the text; never one that leads out, and empty where there is none.
fn file_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(text.len());
    // A full stop behind it ends a sentence.
    text[..end].trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_copied_and_what_names_it_names_the_copy() {
        let root = tempfile::tempdir().unwrap();
        let (source, copy) = (root.path().join("old.jsonl"), root.path().join("new.jsonl"));
        let (old, new) = (root.path().join("old/tool-results"), root.path().join("new/tool-results"));
        fs::create_dir_all(old.join("pdf-1")).unwrap();
        fs::write(root.path().join("old/secret"), "s").unwrap();
        for name in ["a.txt", "pdf-1/page-1.jpg", "unnamed.txt"] {
            fs::write(old.join(name), name).unwrap();
        }
        let names = ["a.txt. It is", "pdf-1/page-1.jpg", "gone.txt", "../secret", " the folder"];
        let text = |folder: &Path| names.map(|name| format!("{}/{name}", folder.display())).join("\n");
        let mut lines = [Object::default().with("text", text(&old)).with("other", "x")];

        let mut files = SideFiles::new(&source, &copy);
        files.rewrite(&mut lines);
        files.copy().unwrap();

        assert_eq!(lines, [Object::default().with("text", text(&new)).with("other", "x")]);
        assert_eq!(fs::read_to_string(new.join("a.txt")).unwrap(), "a.txt");
        assert_eq!(fs::read_to_string(new.join("pdf-1/page-1.jpg")).unwrap(), "pdf-1/page-1.jpg");
        let names = fs::read_dir(&new).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["a.txt", "pdf-1"]);
        assert!(!root.path().join("new/secret").exists());
    }
}
