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

/// A URL without its password, for logs and listings. In the addresses of web servers the user's name goes too: tokens stand
/// there. What is malformed may have its secret anywhere before the last `@`.
pub fn masked_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return match url.rsplit_once('@') {
            Some((_, host)) => format!("***@{host}"),
            None => url.to_owned(),
        };
    };
    // A password may hold a `/` or a `?` that should have been escaped: the last `@` before a query counts.
    let end = rest.rfind('@').map_or(0, |at| at + 1);
    let (user, host) = rest.split_at(end);
    match user.strip_suffix('@') {
        None => url.to_owned(),
        Some(_) if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") => {
            format!("{scheme}://***@{host}")
        }
        Some(user) => match user.split_once(':') {
            Some((name, _)) => format!("{scheme}://{name}:***@{host}"),
            None => format!("{scheme}://{user}@{host}"),
        },
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
        assert_eq!(masked_url("postgres://u@h/db"), "postgres://u@h/db");
        assert_eq!(masked_url("postgres://u:a/b?c@h/db"), "postgres://u:***@h/db");
        assert_eq!(masked_url("https://token@h/v1"), "https://***@h/v1");
        assert_eq!(masked_url("postgres//u:p@h/db"), "***@h/db");
        assert_eq!(format!("{:?}", Secret::new("k")), "***");
    }
}
