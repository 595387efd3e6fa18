//! The files that the checks look at, held in memory so that a test can make them up.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;

use crate::sh;

/// The text files of a checkout, by their path from its root.
#[derive(Default)]
pub(super) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// What git tracks or would track.
    pub(super) fn of_checkout() -> Result<Self> {
        // A checkout of another user is read all the same, as continuous integration may have to.
        let arguments =
            ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let names = sh::output(sh::command("git").args(arguments))?;
        let files = names.split('\0').filter(|name| !name.is_empty()).filter_map(|name| {
            // A file that was removed but not yet from the index, or that is not text, has nothing to check.
            let text = std::fs::read_to_string(sh::root().join(name)).ok()?;
            Some((name.to_owned(), text))
        });
        Ok(Self { files: files.collect() })
    }

    /// A made-up one, of paths and texts.
    #[cfg(test)]
    pub(super) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        Self { files: files.into() }
    }

    /// All files, in the order of their paths.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The files whose paths end with one of `ends`.
    pub(super) fn ending<'a>(&'a self, ends: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files().filter(|(path, _)| ends.iter().any(|end| path.ends_with(end)))
    }

    /// The files whose paths begin with `folder`.
    pub(super) fn under<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files().filter(move |(path, _)| path.starts_with(folder))
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

/// Something that has to change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    path: String,
    /// Counted from one; zero: the file as a whole.
    line: usize,
    reason: String,
}

impl Finding {
    /// About a file as a whole.
    pub(super) fn file(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), line: 0, reason: reason.into() }
    }

    /// About a line, whose number is counted from zero here, as `enumerate` does.
    pub(super) fn line(path: &str, index: usize, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: index + 1, reason: reason.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.reason),
            line => write!(f, "{}:{line}: {}", self.path, self.reason),
        }
    }
}
