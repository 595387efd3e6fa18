//! Files of Rust stay short enough to be read at once, tests included.

use super::tree::{Finding, Tree};

/// Longer files fail the check.
pub(super) const LIMIT: usize = 400;

/// What we aim at; longer files are named, and pass.
pub(super) const AIM: usize = 300;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let over = sizes(tree).filter(|(lines, _)| *lines > LIMIT);
    over.map(|(lines, path)| Finding::file(path, format!("{lines} lines; at most {LIMIT}"))).collect()
}

/// The files over the aim, longest first.
pub(super) fn long(tree: &Tree) -> Vec<(usize, &str)> {
    let mut long: Vec<_> = sizes(tree).filter(|(lines, _)| *lines > AIM).collect();
    long.sort_by(|a, b| b.cmp(a));
    long
}

fn sizes(tree: &Tree) -> impl Iterator<Item = (usize, &str)> {
    tree.ending(&[".rs"]).map(|(path, text)| (text.lines().count(), path))
}
