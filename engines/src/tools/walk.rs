//! Going through the files below a directory, in order and with bounds.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, FileType};

use super::files::Budget;

/// The most entries of one walk.
const ENTRIES: usize = 200_000;

/// The deepest directory: each level on the way down is open.
const LEVELS: usize = 64;

/// What a walk does not go into.
const SKIPPED: &str = ".git";

/// Something below the directory.
pub(super) struct Entry<'a> {
    /// Its path below the directory.
    pub(super) path: &'a Path,
    /// The directory that it is in.
    pub(super) parent: &'a Dir,
    pub(super) kind: FileType,
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    /// The visitor had enough.
    Enough,
    /// There was too much, or time was up.
    Spent,
}

/// A walk through a directory. Symbolic links are visited and not followed; what cannot be read is left out.
pub(super) struct Walk<'a> {
    budget: &'a Budget,
    depth: usize,
    entries: usize,
    /// Directories that could not be read, or are too deep.
    pub(super) unread: usize,
}

impl<'a> Walk<'a> {
    /// Down to `depth` levels below the directory.
    pub(super) fn new(budget: &'a Budget, depth: usize) -> Self {
        Self { budget, depth, entries: 0, unread: 0 }
    }

    pub(super) fn run(&mut self, dir: &Dir, visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>) -> End {
        match self.level(dir, &mut PathBuf::new(), 1, visit) {
            ControlFlow::Continue(()) => End::Complete,
            ControlFlow::Break(end) => end,
        }
    }

    fn level(
        &mut self,
        dir: &Dir,
        path: &mut PathBuf,
        level: usize,
        visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<End> {
        for (name, kind) in self.children(dir)? {
            if self.budget.is_spent() {
                return ControlFlow::Break(End::Spent);
            }
            path.push(&name);
            let visited = visit(&Entry { path, parent: dir, kind });
            let gone_down = match visited {
                ControlFlow::Break(()) => ControlFlow::Break(End::Enough),
                ControlFlow::Continue(()) if kind.is_dir() && level < self.depth && name != SKIPPED => {
                    self.below(dir, &name, path, level, visit)
                }
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
            };
            path.pop();
            gone_down?;
        }
        ControlFlow::Continue(())
    }

    fn below(
        &mut self,
        dir: &Dir,
        name: &OsString,
        path: &mut PathBuf,
        level: usize,
        visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<End> {
        match dir.open_dir(name) {
            Ok(child) if level < LEVELS => self.level(&child, path, level + 1, visit),
            _ => {
                self.unread += 1;
                ControlFlow::Continue(())
            }
        }
    }

    fn children(&mut self, dir: &Dir) -> ControlFlow<End, Vec<(OsString, FileType)>> {
        let Ok(entries) = dir.entries() else {
            self.unread += 1;
            return ControlFlow::Continue(Vec::new());
        };
        let mut children = Vec::new();
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > ENTRIES || (self.entries.is_multiple_of(1_024) && self.budget.is_spent()) {
                return ControlFlow::Break(End::Spent);
            }
            if let Ok(kind) = entry.file_type() {
                children.push((entry.file_name(), kind));
            }
        }
        children.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        ControlFlow::Continue(children)
    }
}
