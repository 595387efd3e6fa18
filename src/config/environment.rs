//! The environment of the process, read once.

use std::collections::BTreeMap;
use std::fmt;

use super::keys::{FILE_VARIABLE, KEYS};

/// Variables by name. Their values may be secrets, so they are never printed.
#[derive(Clone, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// What this process was started with. The only place that asks for it.
    pub(crate) fn of_process() -> Self {
        let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(readable).collect())
    }

    /// The value of a variable. An empty one counts as not set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// Variables that look like ours and are not.
    pub(super) fn strangers(&self) -> impl Iterator<Item = &str> {
        let ours = |name: &str| name == FILE_VARIABLE || KEYS.iter().any(|key| key.variable == name);
        self.0.keys().map(String::as_str).filter(move |name| {
            name.starts_with("ROUNDHOUSE_")
                && !name.starts_with("ROUNDHOUSE_TEST_")
                && !ours(name)
                && !is_of_kubernetes(name)
        })
    }
}

/// Kubernetes sets such variables for a service that is called `roundhouse` or `roundhouse-…`.
fn is_of_kubernetes(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    }
}
