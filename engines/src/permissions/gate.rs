//! The gate before every call of a session: the rules of its agent and of those above it, and what no rule can allow.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::paths::{self, Place};
use super::{Permissions, Verdict, names};

/// The folder of workspaces within the data directory.
const WORKSPACES: &str = "workspaces";

/// The folder of plans within Claude Code's.
const PLANS: &str = "plans";

/// What decides about the calls of one session.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// The agent's own rules.
    pub own: Permissions,
    /// Those of the agents that have started this session, however far up: each of them has to allow a call too.
    pub above: Vec<Permissions>,
    /// The session's working directory.
    pub cwd: PathBuf,
    /// Folders that file tools never touch: the server's data directory. Of its workspaces, the session's own is its own.
    pub closed: Vec<PathBuf>,
    /// The engine's own folder within those, and the name of what is this session's there, at any depth.
    pub engine_files: Option<(PathBuf, String)>,
}

impl From<Permissions> for Gate {
    fn from(own: Permissions) -> Self {
        Self { own, ..Self::default() }
    }
}

impl Gate {
    /// What becomes of a call.
    pub fn decide(&self, tool: &str, input: &Value) -> Verdict {
        if self.refusal(tool, input).is_some() {
            return Verdict::Deny;
        }
        let above = self.above.iter().map(|rules| rules.decide_in(tool, input, &self.cwd)).max();
        self.own.decide_in(tool, input, &self.cwd).max(above.unwrap_or_default())
    }

    /// Why a call is refused whatever the rules say.
    pub fn refusal(&self, tool: &str, input: &Value) -> Option<String> {
        let place = Place::of(tool, input, &self.cwd)?;
        if names::writes(tool)
            && [&place.written, &place.resolved].into_iter().any(|path| paths::is_in_repository(path))
        {
            return Some(
                "Refused: file tools do not write to `.git`, which decides what git runs.".to_owned(),
            );
        }
        let is_closed = self.closed.iter().map(|closed| paths::resolve(closed)).any(|closed| {
            let is_inside = |path: &Path| path.starts_with(&closed) && !self.is_own(&closed, path);
            is_inside(&place.resolved) || (place.is_walk && closed.starts_with(&place.resolved))
        });
        is_closed.then(|| "Refused: this is in the server's data directory.".to_owned())
    }

    /// Whether a path within the data directory belongs to this session.
    fn is_own(&self, closed: &Path, path: &Path) -> bool {
        let cwd = paths::resolve(&self.cwd);
        let is_workspace = cwd
            .strip_prefix(closed)
            .is_ok_and(|below| below.starts_with(WORKSPACES) && below.components().count() > 1);
        let is_engines = self.engine_files.as_ref().is_some_and(|(folder, name)| {
            path.strip_prefix(paths::resolve(folder)).is_ok_and(|below| {
                below.starts_with(PLANS) || below.components().any(|part| part.as_os_str() == name.as_str())
            })
        });
        (is_workspace && path.starts_with(&cwd)) || is_engines
    }
}
