//! Which directories sessions may work in.
//!
//! A session works in its own workspace (`<data>/workspaces/<session id>`), or in a directory under a configured root. The
//! rest of the data directory belongs to no session: the database, the engines' conversations with their keys, and the
//! workspaces of other sessions.

use std::path::{Path, PathBuf};

use crate::domain::SessionId;

/// The folder of the workspaces in the data directory.
const WORKSPACES: &str = "workspaces";
/// What of the data directory no session may work in, even where a root is configured inside it.
const RESERVED: [&str; 2] = [WORKSPACES, "claude"];

/// The places for working directories. Paths are compared as they are: give them without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspaces {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The configured roots.
    pub roots: Vec<PathBuf>,
}

/// A directory that a session may work in, as a path below one that it may not leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A configured root, or the folder of the workspaces.
    pub root: PathBuf,
    /// The way from there; empty: the root itself.
    pub below: PathBuf,
    /// Whether it is a workspace in the data directory: it is made when it is needed, and is no symbolic link.
    pub is_workspace: bool,
}

impl Workspaces {
    /// The workspace of a session without a directory of its own.
    pub fn of(&self, session: SessionId) -> PathBuf {
        self.data_dir.join(WORKSPACES).join(session.to_string())
    }

    /// The configured root under which a client may choose this directory.
    pub fn chosen(&self, path: &Path) -> Option<Place> {
        let root = self.roots.iter().find(|root| path.starts_with(root) && self.may_hold(root, path))?;
        Some(Place { root: root.clone(), below: path.strip_prefix(root).ok()?.into(), is_workspace: false })
    }

    /// The same for a directory that a session row names: also a workspace, its own or one that it was given by the
    /// session it was forked from or spawned by.
    pub fn stored(&self, path: &Path) -> Option<Place> {
        let root = self.data_dir.join(WORKSPACES);
        let below = path.strip_prefix(&root).ok().and_then(Path::to_str);
        if let Some(below) = below.filter(|below| below.parse::<SessionId>().is_ok()) {
            return Some(Place { below: below.into(), root, is_workspace: true });
        }
        self.chosen(path)
    }

    /// Whether a root may hold this directory: one that reaches into the data directory from outside may not, and what has
    /// the data directory in it has all that is in there.
    fn may_hold(&self, root: &Path, path: &Path) -> bool {
        let inside = |path: &Path| path.starts_with(&self.data_dir);
        let reserved = || RESERVED.iter().any(|name| path.starts_with(self.data_dir.join(name)));
        let above = self.data_dir.starts_with(path);
        !inside(path) && !above || (inside(root) && root != self.data_dir && !reserved())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspaces(roots: &[&str]) -> Workspaces {
        Workspaces { data_dir: "/srv/data".into(), roots: roots.iter().map(PathBuf::from).collect() }
    }

    fn chosen(roots: &[&str], path: &str) -> bool {
        workspaces(roots).chosen(Path::new(path)).is_some()
    }

    #[test]
    fn a_client_chooses_under_a_root_and_outside_of_the_data_directory() {
        for path in ["/srv/data", "/srv/data/claude/x", "/srv/data/workspaces", "/srv/data/new", "/srv", "/"]
        {
            assert!(!chosen(&[], path), "{path}");
        }
        for path in ["/srv/app", "/srv/data2"] {
            assert!(chosen(&["/srv"], path), "{path}");
        }
        for path in ["/srv", "/srv/data", "/srv/data/claude", "/srv/data/x", "/srvx", "/"] {
            assert!(!chosen(&["/srv", "/srv/data"], path), "{path}");
        }
        assert!(chosen(&["/srv/data/projects"], "/srv/data/projects/a"));
        assert!(!chosen(&["/srv/data/claude"], "/srv/data/claude/a"));
        assert!(!chosen(&["/srv/data/workspaces/x"], "/srv/data/workspaces/x"));
    }

    #[test]
    fn a_row_may_name_a_workspace_and_nothing_else_of_the_data_directory() {
        let (own, workspaces) = (SessionId::generate(), workspaces(&["/roots"]));
        let place = workspaces.stored(&workspaces.of(own)).unwrap();
        assert_eq!((place.root, place.is_workspace), ("/srv/data/workspaces".into(), true));
        assert!(workspaces.stored(&workspaces.of(own).join("deeper")).is_none());
        assert!(workspaces.stored(Path::new("/srv/data/workspaces")).is_none());
        assert!(workspaces.stored(Path::new("/srv/data/claude")).is_none());
        let place = workspaces.stored(Path::new("/roots/a/b")).unwrap();
        assert_eq!((place.root, place.below), ("/roots".into(), "a/b".into()));
    }
}
