//! What can be wrong with a configuration, as sentences: the key, where it was set, and what would be right.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the process does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file is not there, or cannot be read.
    #[error("the configuration {} cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration {} is not TOML: {what}", path.display())]
    Syntax { path: PathBuf, what: String },
    /// Keys or values are wrong.
    #[error("{0}")]
    Wrong(Complaints),
}

/// One or more things that are wrong, one a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaints(pub(crate) Vec<Complaint>);

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// There is no such key.
    UnknownKey { key: String, place: Place, near: Vec<String>, known: Vec<String> },
    /// There is no such variable.
    UnknownVariable { name: String, near: Vec<String> },
    /// The value is of the wrong kind, or out of bounds.
    WrongValue { key: String, place: Place, found: String, expected: String },
    /// A key that has to be there is not.
    Missing { key: String, place: Place, expected: String },
    /// Values that are right by themselves do not go together.
    Conflict(String),
}

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Default,
    File(String),
    Variable(String),
    Flag(String),
}

impl From<Complaint> for ConfigError {
    fn from(complaint: Complaint) -> Self {
        Self::Wrong(Complaints(vec![complaint]))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("by default"),
            Self::File(path) => write!(f, "in {path}"),
            Self::Variable(name) => write!(f, "in the variable {name}"),
            Self::Flag(name) => write!(f, "by the flag {name}"),
        }
    }
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, complaint) in self.0.iter().enumerate() {
            if 0 < index {
                f.write_str("\n")?;
            }
            write!(f, "{complaint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key, place, near, known } => {
                write!(f, "`{key}`, set {place}, is not a key")?;
                match near.as_slice() {
                    [] => write!(f, "; there are {}", listed(known)),
                    near => write!(f, "; did you mean {}?", listed(near)),
                }
            }
            Self::UnknownVariable { name, near } => {
                write!(f, "{name} is not a variable of Roundhouse; nearest are {}", listed(near))
            }
            Self::WrongValue { key, place, found, expected } => {
                write!(f, "`{key}` is {found}, set {place}; it has to be {expected}")
            }
            Self::Missing { key, place, expected } => {
                write!(f, "`{key}` is missing {place}; it has to be {expected}")
            }
            Self::Conflict(text) => f.write_str(text),
        }
    }
}

fn listed(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Those of `known` that are most like `name`, at most three, the nearest first.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut near: Vec<_> = known.map(|known| (distance(name, known), known)).collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, known)| known.to_owned()).collect()
}

/// Those of `known` that `name` may be a slip of.
pub(crate) fn slips<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let typed = name.rsplit('.').next().unwrap_or(name);
    let edits = typed.len() / 3 + 1;
    let near = nearest(name, known);
    near.into_iter().filter(|near| distance(name, near) <= edits).collect()
}

/// The edits (Levenshtein) that make one text of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (j, to) in b.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX - 1);
            let cost = (diagonal + usize::from(from != *to)).min(left + 1).min(above + 1);
            if let Some(cell) = row.get_mut(j) {
                *cell = left;
            }
            diagonal = above;
            left = cost;
        }
        if let Some(cell) = row.last_mut() {
            *cell = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, edits) in [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("lease", "laese", 2)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }
}
