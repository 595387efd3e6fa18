//! The environment of a process: an allow-list, so that no secret of ours reaches it.

use std::ffi::{OsStr, OsString};

/// What a process needs to behave like any other of this user.
const PASSED: &[&str] = &["PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "SHELL"];

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

    fn passes(&self, name: &OsStr) -> bool {
        let listed = name.to_str().is_some_and(|name| PASSED.contains(&name) || name.starts_with("LC_"));
        listed || self.pass.iter().any(|passed| passed == name)
    }
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
