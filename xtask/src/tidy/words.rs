//! Words that must not stay: tests that are not run, code that is not written, places on one machine.
//!
//! They are put together from halves here and in the tests, so that these files do not hold them.

use super::tree::{Finding, Tree};

const UNFINISHED: [(&str, &str); 4] = [
    (concat!("#[", "ignore]"), "every test runs; remove it or make it pass"),
    (concat!("#[", "ignore ="), "every test runs; remove it or make it pass"),
    (concat!("to", "do!("), "finish it, or return an error"),
    (concat!("unimple", "mented!("), "finish it, or return an error"),
];

const PLACES: [&str; 3] = [concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/ho", "me/")];

const WITH_PLACES: [&str; 7] = [".rs", ".md", ".toml", ".sh", ".yml", ".yaml", "Dockerfile"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(&[".rs"]) {
        for (index, line) in text.lines().enumerate() {
            let words = UNFINISHED.iter().filter(|(word, _)| line.contains(word));
            found.extend(
                words.map(|(word, reason)| Finding::line(path, index, format!("`{word}`: {reason}"))),
            );
        }
    }
    let scripts = tree.under(".ci/");
    for (path, text) in tree.ending(&WITH_PLACES).chain(scripts) {
        for (index, line) in text.lines().enumerate() {
            let places = PLACES.iter().filter(|place| is_absolute(line, place));
            found.extend(
                places.map(|place| Finding::line(path, index, format!("a path of one machine: `{place}`"))),
            );
        }
    }
    found
}

/// Whether `place` begins a path in `line`, instead of being in the middle of one.
fn is_absolute(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|before| !before.is_alphanumeric() && !".-_~}>)*".contains(before))
    })
}
