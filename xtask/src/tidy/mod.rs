//! `cargo xtask tidy`: what neither compiler nor linter checks.
//!
//! A check is a function from the [`Tree`] of files to [`Finding`]s. Each has a test that shows it failing on a bad
//! tree: a check that looks at the wrong place finds nothing and says nothing.

mod directions;
mod hosts;
mod migrations;
mod sizes;
mod suite;
#[cfg(test)]
mod tests;
mod tree;
mod words;

use std::process::ExitCode;

use anyhow::{Result, bail};

use tree::{Finding, Tree};

pub(crate) fn run() -> Result<ExitCode> {
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs all checks on the checkout; prints what they found, and fails if that is anything.
pub(crate) fn check() -> Result<()> {
    let tree = Tree::of_checkout()?;
    let long = sizes::long(&tree);
    if !long.is_empty() {
        println!("info: over {} lines, and at most {} are allowed:", sizes::AIM, sizes::LIMIT);
        for (lines, path) in long {
            println!("  {lines} {path}");
        }
    }
    let findings = findings(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, nothing found", tree.files().count());
            Ok(())
        }
        number => bail!("tidy: {number} found"),
    }
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let checks: [fn(&Tree) -> Vec<Finding>; 7] = [
        sizes::check,
        directions::modules,
        directions::manifests,
        suite::check,
        words::check,
        hosts::check,
        migrations::check,
    ];
    checks.iter().flat_map(|check| check(tree)).collect()
}

/// Whether any library documents itself with code that rustdoc would run.
pub(crate) fn has_doc_tests() -> Result<bool> {
    let tree = Tree::of_checkout()?;
    Ok(tree.ending(&[".rs"]).any(|(_, text)| doc_tests(text)))
}

/// An opening fence without a language, or with Rust's; a closing one looks like the former.
fn doc_tests(text: &str) -> bool {
    let mut inside = false;
    text.lines().any(|line| {
        let line = line.trim_start();
        let Some(fence) = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
            .and_then(|comment| comment.trim().strip_prefix("```"))
        else {
            return false;
        };
        inside = !inside;
        let words = fence.split(',').all(|word| {
            matches!(word.trim(), "" | "rust" | "no_run" | "should_panic" | "compile_fail" | "edition2024")
        });
        inside && words
    })
}
