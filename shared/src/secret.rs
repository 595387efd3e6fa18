//! Values that must not be printed.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// A secret: its `Debug`, `Display` and serialised forms are masked.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one who has to use it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// A URL without its password, for logs and listings.
pub fn masked_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{scheme}://{name}:***@{host}{path}"),
            None => format!("{scheme}://{user}@{host}{path}"),
        },
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked() {
        assert_eq!(masked_url("postgres://u:p%40@h:5/db?x=1"), "postgres://u:***@h:5/db?x=1");
        assert_eq!(masked_url("redis://h:6/0"), "redis://h:6/0");
        assert_eq!(masked_url("sqlite"), "sqlite");
        assert_eq!(format!("{:?}", Secret::new("k")), "***");
    }
}
