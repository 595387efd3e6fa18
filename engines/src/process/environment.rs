//! The environment of a process: an allow-list, so that no secret of ours reaches it.

use std::ffi::{OsStr, OsString};

/// What a process needs to behave like any other of this user.
const PASSED: &[&str] = &["PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "SHELL"];

/// Settings of git, so that a repository does not decide which programs git runs: `core.fsmonitor` would run one at
/// `git status`, hooks at `git commit`, a bare repository that lies among the files brings settings of its own. They win over
/// the files of git's configuration, and not over `git -c`.
const GIT: [(&str, &str); 5] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("protocol.ext.allow", "never"),
    ("safe.bareRepository", "explicit"),
];

/// The variable that says how many settings of git there are.
const GIT_COUNT: &str = "GIT_CONFIG_COUNT";

/// What a process gets beyond the variables that every process gets: `PATH`, `HOME`, `LANG`, `LC_*`, `TERM`,
/// `TMPDIR`, `TZ`, `USER` and `SHELL`, where we have them ourselves.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Names of further variables of ours that are passed on.
    pub pass: Vec<OsString>,
    /// Variables with their values; they win over what is passed on.
    pub set: Vec<(OsString, OsString)>,
}

impl Environment {
    /// All variables but our own marks.
    pub(super) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        // Not settings of ours: what the host offers to every program.
        std::env::vars_os().filter(|(name, _)| self.passes(name)).chain(self.set.iter().cloned())
    }

    /// This environment, in which a repository does not decide which programs git runs. For everything that a model may
    /// have run.
    #[must_use]
    pub fn with_safe_git(mut self) -> Self {
        if !self.set.iter().any(|(name, _)| name == GIT_COUNT) {
            self.set.extend(git());
        }
        self
    }

    fn passes(&self, name: &OsStr) -> bool {
        let listed = name.to_str().is_some_and(|name| PASSED.contains(&name) || name.starts_with("LC_"));
        listed || self.pass.iter().any(|passed| passed == name)
    }
}

/// The variables by which git reads settings (`git-config(1)`).
fn git() -> impl Iterator<Item = (OsString, OsString)> {
    let settings = GIT.iter().enumerate().flat_map(|(index, (key, value))| {
        [(format!("GIT_CONFIG_KEY_{index}"), *key), (format!("GIT_CONFIG_VALUE_{index}"), *value)]
    });
    let count = (GIT_COUNT.into(), GIT.len().to_string().into());
    std::iter::once(count).chain(settings.map(|(name, value)| (name.into(), value.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_and_named_variables_pass() {
        let environment = Environment { pass: vec!["RUSTUP_HOME".into()], set: Vec::new() };
        for (name, passes) in [
            ("PATH", true),
            ("LC_ALL", true),
            ("RUSTUP_HOME", true),
            ("OPENAI_API_KEY", false),
            ("DATABASE_URL", false),
            ("PATHS", false),
            ("ROUNDHOUSE_PROCESS_TOKEN", false),
        ] {
            assert_eq!(environment.passes(OsStr::new(name)), passes, "{name}");
        }
    }
}
