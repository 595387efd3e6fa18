//! `search_files`: lines that match a regular expression.

use std::fmt::Write;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::Path;

use cap_std::fs::{Dir, File};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::bounded::TEXT_BYTES;
use super::files::{Budget, Problem};
use super::glob::{self, Glob};
use super::lines::{self, CHUNK_BYTES};
use super::walk::{End, Walk};
use super::workspace::{Workspace, open_file, problem};
use super::{input, text};

const MATCHES: usize = 100;
const MATCHES_MAX: usize = 1_000;

/// How much of a line is shown.
const SHOWN_BYTES: usize = 400;

/// How large a compiled pattern may be: `(a{1000}){1000}` is not searched for.
const PATTERN_BYTES: usize = 1024 * 1024;

/// How much is searched between two looks at the clock. A large pattern takes its time for each byte.
const LOOK_BYTES: usize = 64 * 1024;

/// How many lines are searched between two looks at the clock.
const LOOK_LINES: usize = 1_024;

/// How much one call searches at most.
const SEARCHED_BYTES: u64 = 1024 * 1024 * 1024;

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    max: Option<usize>,
}

pub(super) fn describe() -> (String, Value) {
    let description = "Searches the text files of the workspace, line by line, for a regular expression (Rust's \
                       `regex` syntax: no look-around, no back references; `(?i)` ignores case). Returns `path:line: \
                       text`. `.git`, binary files and symbolic links are left out."
        .to_owned();
    let properties = json!({
        "pattern": { "type": "string", "description": "The regular expression." },
        "path": { "type": "string", "description": "A directory or a file, relative to the workspace; the workspace unless given." },
        "glob": { "type": "string", "description": glob::DESCRIPTION },
        "max": {
            "type": "integer", "minimum": 1, "maximum": MATCHES_MAX,
            "description": format!("How many lines to return at most; {MATCHES} unless given."),
        },
    });
    (description, input::schema(&properties, &["pattern"]))
}

pub(super) fn run(workspace: &Workspace, input: &Input) -> Result<String, Problem> {
    let max = input.max.unwrap_or(MATCHES);
    if !(1..=MATCHES_MAX).contains(&max) {
        return Err(Problem::new(format!(
            "The input is not valid: `max`: has to be from 1 to {MATCHES_MAX}."
        )));
    }
    let regex = RegexBuilder::new(&input.pattern).size_limit(PATTERN_BYTES).build();
    let regex = regex.map_err(|error| Problem::new(format!("The input is not valid: `pattern`: {error}")))?;
    let glob = Glob::new(input.glob.as_deref())?;
    let mut search = Search {
        regex,
        max,
        budget: &workspace.budget,
        found: String::new(),
        count: 0,
        unread: 0,
        searched: 0,
    };

    let path = input.path.as_deref().unwrap_or(".");
    let end = if workspace.is_file(path)? {
        match search.file(Path::new(path), workspace.file(path)?) {
            Ok(ControlFlow::Continue(())) => End::Complete,
            Ok(ControlFlow::Break(())) => End::Enough,
            Err(error) => return Err(problem(path, &error)),
        }
    } else {
        search.directory(Path::new(path), &workspace.directory(path)?, &glob)
    };
    Ok(search.finish(end))
}

struct Search<'a> {
    regex: Regex,
    max: usize,
    budget: &'a Budget,
    found: String,
    count: usize,
    unread: usize,
    /// Bytes that were read.
    searched: u64,
}

impl Search<'_> {
    fn directory(&mut self, prefix: &Path, dir: &Dir, glob: &Glob) -> End {
        let mut walk = Walk::new(self.budget, usize::MAX);
        let prefix = if prefix == Path::new(".") { Path::new("") } else { prefix };
        let end = walk.run(dir, &mut |entry| {
            if !entry.kind.is_file() || !glob.matches(entry.path) {
                return ControlFlow::Continue(());
            }
            // The handle of the parent and the name alone: nothing of the path is resolved again.
            let name = Path::new(entry.path.file_name().unwrap_or_default());
            let opened = open_file(entry.parent, name);
            let searched = match opened {
                Ok(Some(file)) => self.file(&prefix.join(entry.path), file),
                Ok(None) => Ok(ControlFlow::Continue(())),
                Err(error) => Err(error),
            };
            searched.unwrap_or_else(|_| {
                self.unread += 1;
                ControlFlow::Continue(())
            })
        });
        self.unread += walk.unread;
        end
    }

    /// Breaks when enough was found, or time is up.
    fn file(&mut self, path: &Path, file: File) -> io::Result<ControlFlow<()>> {
        let mut reader = BufReader::with_capacity(CHUNK_BYTES, file.into_std());
        if lines::is_binary(&mut reader)? {
            return Ok(ControlFlow::Continue(()));
        }
        let (mut number, mut lines, mut bytes) = (0_u64, 0, 0);
        while let Some(line) = lines::next(&mut reader)? {
            number += 1;
            (lines, bytes) = (lines + 1, bytes + line.kept.len());
            self.searched += line.kept.len() as u64 + line.left_out_bytes;
            if LOOK_LINES <= lines || LOOK_BYTES <= bytes {
                (lines, bytes) = (0, 0);
                if self.is_spent() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let content = line.kept.strip_suffix(b"\r").unwrap_or(&line.kept);
            if !self.regex.is_match(content) {
                continue;
            }
            if self.count == self.max || self.found.len() > TEXT_BYTES {
                return Ok(ControlFlow::Break(()));
            }
            self.count += 1;
            self.push(path, number, content);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn push(&mut self, path: &Path, number: u64, content: &[u8]) {
        let line = text::clean(content);
        let shown = text::fitting(&line, SHOWN_BYTES);
        let path = path.to_string_lossy().replace(['\n', '\r'], "\u{fffd}");
        let more = if shown.len() < line.len() { " […]" } else { "" };
        let _ = writeln!(self.found, "{path}:{number}: {shown}{more}");
    }

    fn is_spent(&self) -> bool {
        SEARCHED_BYTES <= self.searched || self.budget.is_spent()
    }

    fn finish(mut self, end: End) -> String {
        let has_time = !self.is_spent();
        if self.unread > 0 {
            let _ = writeln!(self.found, "[… {} files or directories could not be read …]", self.unread);
        }
        match end {
            End::Complete if self.found.is_empty() => "(no match)".to_owned(),
            End::Complete => self.found,
            End::Enough if has_time => {
                format!("{}[… cut after {} lines: there are more …]\n", self.found, self.count)
            }
            End::Enough | End::Spent => {
                format!(
                    "{}[… not complete: there is too much; give a narrower `path` or `glob` …]\n",
                    self.found
                )
            }
        }
    }
}
