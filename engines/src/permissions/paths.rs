//! Paths in calls of file tools, and patterns of them.
//!
//! A path is judged by where it leads: links are resolved as far as it exists. A pattern that begins with `/` or `//` is about the
//! whole file system, with `~/` about the home directory, any other about the working directory: `./src/**`. `*` stays within a
//! name, `**` does not. A pattern of a folder's content (`./src/**`) covers the folder too.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;

use super::names;
use super::rule::Covers;

/// Members of a call that name the file or folder.
const MEMBERS: [&str; 3] = ["file_path", "notebook_path", "path"];

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// As it is written, made absolute.
    pub(super) written: PathBuf,
    /// Where that leads.
    pub(super) resolved: PathBuf,
    cwd: PathBuf,
    /// All that is below it is meant too.
    pub(super) is_walk: bool,
}

impl Place {
    /// The place that a call of a file tool is about; `None`: it is no such call, or names none.
    pub(super) fn of(tool: &str, input: &Value, cwd: &Path) -> Option<Self> {
        if !names::is_file_tool(tool) {
            return None;
        }
        let named = MEMBERS.iter().find_map(|member| input.get(member)?.as_str());
        let is_walk = names::walks(tool);
        let path = named.or(is_walk.then_some("."))?;
        let written = tidy(&cwd.join(expanded(path)));
        Some(Self { resolved: resolve(&cwd.join(expanded(path))), written, cwd: resolve(cwd), is_walk })
    }
}

/// `~` as Claude Code reads it.
fn expanded(path: &str) -> PathBuf {
    match (path.strip_prefix('~'), home()) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(path),
    }
}

fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// Without `.` and `..`, by the names alone.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                tidy.pop();
            }
            other => tidy.push(other),
        }
    }
    tidy
}

/// Where a path leads, as far as it exists; what does not exist is taken by its names.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut at = path.to_path_buf();
    loop {
        if let Ok(found) = at.canonicalize() {
            return tidy(&missing.iter().rev().fold(found, |path, name| path.join(name)));
        }
        // A link to nothing: it is written through.
        if let Ok(target) = at.read_link()
            && missing.len() < 64
            && let Some(parent) = at.parent()
        {
            let target = parent.join(target);
            if target != at {
                missing.push(PathBuf::from("."));
                at = tidy(&target);
                continue;
            }
        }
        let Some(last) = at.components().next_back() else { return tidy(path) };
        missing.push(PathBuf::from(last.as_os_str()));
        let Some(parent) = at.parent() else { return tidy(path) };
        at = parent.to_path_buf();
    }
}

/// A pattern of paths.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    text: String,
    base: Base,
    matcher: GlobMatcher,
    /// The folder itself, where the pattern is about all in it.
    folder: Option<GlobMatcher>,
    /// What stands before the first sign of a pattern.
    stem: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Root,
    Home,
    /// So many levels above the working directory.
    Cwd(usize),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    pub(super) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let (base, mut rest) = if let Some(rest) = text.strip_prefix('/') {
            (Base::Root, rest.trim_start_matches('/'))
        } else if let Some(rest) = text.strip_prefix("~/") {
            (Base::Home, rest)
        } else {
            (Base::Cwd(0), text)
        };
        let mut above = 0;
        while let Some(shorter) = rest.strip_prefix("./").or_else(|| rest.strip_prefix("../")) {
            above += usize::from(rest.starts_with(".."));
            rest = shorter;
        }
        let base = if let Base::Cwd(_) = base { Base::Cwd(above) } else { base };
        let rest = rest.trim_end_matches('/');
        if text.is_empty() || rest.split('/').any(|name| name == "..") {
            return None;
        }
        let rest = if rest == "." { "" } else { rest };
        let glob =
            |text: &str| Some(GlobBuilder::new(text).literal_separator(true).build().ok()?.compile_matcher());
        let folder = if rest == "**" { Some("") } else { rest.strip_suffix("/**") };
        let stem = rest.split('/').take_while(|name| !name.contains(['*', '?', '[', '{', '\\'])).collect();
        Some(Self {
            text: text.to_owned(),
            base,
            matcher: glob(rest)?,
            folder: match folder {
                Some(folder) => Some(glob(folder)?),
                None => None,
            },
            stem,
        })
    }

    /// Whether a place matches: for a rule that allows, where it leads; for a strict one, also as it is written, and perhaps
    /// where it goes through what would match.
    pub(super) fn covers(&self, place: &Place, is_strict: bool) -> Covers {
        let Some(base) = self.base(&place.cwd) else { return Covers::No };
        if self.matches(&base, &place.resolved) || (is_strict && self.matches(&base, &place.written)) {
            return Covers::Yes;
        }
        let stem = base.join(&self.stem);
        let meets = stem.starts_with(&place.resolved) || place.resolved.starts_with(&stem);
        if is_strict && place.is_walk && meets { Covers::Perhaps } else { Covers::No }
    }

    fn base(&self, cwd: &Path) -> Option<PathBuf> {
        match self.base {
            Base::Root => Some(PathBuf::from("/")),
            Base::Home => home().map(|home| resolve(&home)),
            Base::Cwd(above) => cwd.ancestors().nth(above).map(Path::to_path_buf),
        }
    }

    fn matches(&self, base: &Path, path: &Path) -> bool {
        let Ok(path) = path.strip_prefix(base) else { return false };
        self.matcher.is_match(path) || self.folder.as_ref().is_some_and(|folder| folder.is_match(path))
    }
}

/// Whether a path leads into a repository's own folder, which git reads its settings and hooks from.
pub(crate) fn is_in_repository(path: &Path) -> bool {
    path.components().any(|component| match component {
        Component::Normal(name) => is_git(&name.to_string_lossy()),
        _ => false,
    })
}

/// Whether git takes a name for `.git` on some file system: in any case, with what HFS+ ignores, NTFS strips, or FAT shortens.
fn is_git(name: &str) -> bool {
    let is_ignored =
        |c: char| matches!(u32::from(c), 0x200c..=0x200f | 0x202a..=0x202e | 0x206a..=0x206f | 0xfeff);
    let name: String = name.chars().filter(|c| !is_ignored(*c)).collect::<String>().to_ascii_lowercase();
    let name = name.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']);
    name == ".git" || name == "git~1"
}
