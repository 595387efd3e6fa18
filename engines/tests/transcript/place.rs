//! A configuration folder and a working directory of a test's own.

use std::fs;
use std::path::{Path, PathBuf};

use roundhouse_engines::claude::transcript::Transcripts;
use roundhouse_engines::contract::{Fork, Forked, Native};
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) struct Place {
    root: TempDir,
    pub(crate) cwd: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with_cwd("work")
    }

    /// With a working directory of that name.
    pub(crate) fn with_cwd(name: &str) -> Self {
        let root = TempDir::new().unwrap();
        let cwd = root.path().join(name);
        fs::create_dir_all(&cwd).unwrap();
        fs::create_dir(root.path().join("config")).unwrap();
        Self { root, cwd }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.path().join("config")
    }

    pub(crate) fn transcripts(&self) -> Transcripts {
        Transcripts::new(self.config())
    }

    /// A session that is not there yet.
    pub(crate) fn session(&self) -> Native {
        self.named(&new_id())
    }

    pub(crate) fn named(&self, id: &str) -> Native {
        Native { id: id.to_owned(), cwd: self.cwd.clone() }
    }

    /// Copies a session up to `at`.
    pub(crate) fn fork(&self, source: &Native, at: &str) -> (Native, Forked) {
        let into = self.session();
        let fork = Fork { source: source.clone(), at: at.to_owned(), into: into.clone(), title: None };
        let forked = self.transcripts().fork(&fork).unwrap();
        (into, forked)
    }

    pub(crate) fn text(&self, native: &Native) -> String {
        fs::read_to_string(self.transcripts().path(native)).unwrap()
    }

    pub(crate) fn lines(&self, native: &Native) -> Vec<Value> {
        parsed(&self.text(native))
    }

    /// The entries of the conversation.
    pub(crate) fn entries(&self, native: &Native) -> Vec<Value> {
        let kinds = ["user", "assistant", "attachment", "system"];
        let is_entry =
            |line: &Value| kinds.iter().any(|kind| line["type"] == *kind) && line["uuid"].is_string();
        self.lines(native).into_iter().filter(is_entry).collect()
    }

    /// The anchor of the newest message of the model.
    pub(crate) fn last_anchor(&self, native: &Native) -> String {
        let entries = self.entries(native);
        let last = entries.iter().rfind(|entry| entry["type"] == "assistant").unwrap();
        last["uuid"].as_str().unwrap().to_owned()
    }

    /// All files below the configuration folder with that in their path.
    pub(crate) fn files_with(&self, part: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(&self.config(), &mut found);
        found.retain(|path| path.to_string_lossy().contains(part));
        found
    }
}

pub(crate) fn new_id() -> String {
    Uuid::now_v7().to_string()
}

pub(crate) fn parsed(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        }
        found.push(path);
    }
}

/// Copies a folder with all that is in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
