//! The store suite calls every method of the store. Queries are checked by nothing but running them.

use super::tree::{Finding, Tree};

const STORE: &str = "shared/src/store/";
const SUITE: &str = "shared/tests/store/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources: Vec<_> = tree.ending(&[".rs"]).filter(|(path, _)| path.starts_with(STORE)).collect();
    let suite: Vec<_> = tree.ending(&[".rs"]).filter(|(path, _)| path.starts_with(SUITE)).collect();
    let methods: Vec<_> = sources
        .iter()
        .flat_map(|(path, text)| methods(text).into_iter().map(move |(index, name)| (*path, index, name)))
        .collect();
    if methods.is_empty() {
        return vec![Finding::file(
            STORE,
            "no public `async fn` of `Store`, which this check looks for here",
        )];
    }
    methods
        .into_iter()
        .filter(|(_, _, name)| !suite.iter().any(|(_, text)| calls(text, name)))
        .map(|(path, index, name)| {
            Finding::line(path, index, format!("no test under {SUITE} calls `{name}`"))
        })
        .collect()
}

/// The public async methods of `Store`, and those of public traits, with the index of the line. A block begins with a
/// line that is not indented, and ends with a brace that is not.
fn methods(text: &str) -> Vec<(usize, &str)> {
    let mut start = None;
    let mut methods = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("pub trait ") && line.ends_with('{') {
            start = Some("async fn ");
        } else if line.starts_with("impl") && line.ends_with(" Store {") {
            start = Some("pub async fn ");
        } else if line.starts_with('}') {
            start = None;
        } else if let Some(rest) = start.and_then(|start| line.trim_start().strip_prefix(start)) {
            methods.push((index, rest.split(['(', '<']).next().unwrap_or(rest)));
        }
    }
    methods
}

fn calls(text: &str, method: &str) -> bool {
    [".", "::"].iter().any(|before| text.contains(&format!("{before}{method}(")))
}
