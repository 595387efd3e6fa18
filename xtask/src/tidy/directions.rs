//! Which part may know which: modules inside `shared`, and crates by their manifests.

use toml::{Table, Value};

use super::tree::{Finding, Tree};

/// Parts of `shared` that rest on `domain`, `problem` and `clock`, and know nothing of one another.
const APART: [&str; 3] = ["store", "queue", "bus"];

/// A crate, and what it must not depend on. A name that ends with `-` stands for all that begin so.
const FORBIDDEN: [(&str, &[&str]); 4] = [
    ("api", &["roundhouse-engines", "roundhouse-worker", "roundhouse-oracle"]),
    ("engines", &["axum", "sqlx", "redis", "apalis", "apalis-", "roundhouse-"]),
    ("oracle", &["roundhouse-"]),
    ("shared", &["roundhouse-"]),
];

pub(super) fn modules(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for module in APART {
        let (file, folder) = (format!("shared/src/{module}.rs"), format!("shared/src/{module}/"));
        for (path, text) in tree.under("shared/src/") {
            if path != file && !path.starts_with(&folder) {
                continue;
            }
            for (index, name) in crate_modules(text) {
                if name != module && APART.contains(&name) {
                    let reason = format!("`{module}` must not know `{name}`");
                    found.push(Finding::line(path, index, reason));
                }
            }
        }
    }
    found
}

/// The modules that a text names after `crate::`, alone or in braces, with the index of the line.
fn crate_modules(text: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for (at, start) in text.match_indices("crate::") {
        let before = text.get(..at).unwrap_or_default();
        let index = before.matches('\n').count();
        if before.rsplit('\n').next().is_some_and(|line| line.contains("//")) {
            continue;
        }
        let rest = text.get(at + start.len()..).unwrap_or_default();
        match rest.strip_prefix('{') {
            Some(group) => names.extend(top_names(group).into_iter().map(|name| (index, name))),
            None => names.push((index, first_name(rest))),
        }
    }
    names
}

/// The first name of each path in a braced group whose opening brace is behind us.
fn top_names(group: &str) -> Vec<&str> {
    let (mut names, mut depth, mut start) = (Vec::new(), 1, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && character == ',') {
            names.push(first_name(group.get(start..at).unwrap_or_default().trim_start()));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn first_name(path: &str) -> &str {
    path.split(|character: char| !character.is_alphanumeric() && character != '_').next().unwrap_or_default()
}

pub(super) fn manifests(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, forbidden) in FORBIDDEN {
        let path = format!("{name}/Cargo.toml");
        let Some(text) = tree.text(&path) else {
            found.push(Finding::file(path, "missing, so that its dependencies cannot be checked"));
            continue;
        };
        match text.parse::<Table>() {
            Ok(manifest) => {
                let bad = dependencies(&manifest).into_iter().filter(|dependency| {
                    forbidden.iter().any(|name| {
                        dependency == name || (name.ends_with('-') && dependency.starts_with(name))
                    })
                });
                found.extend(
                    bad.map(|bad| Finding::file(&path, format!("`{name}` must not depend on `{bad}`"))),
                );
            }
            Err(error) => found.push(Finding::file(path, error.to_string())),
        }
    }
    found
}

/// What a manifest depends on outside of tests, for all targets, renamed or not.
fn dependencies(manifest: &Table) -> Vec<&str> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    std::iter::once(manifest)
        .chain(targets)
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .filter_map(|dependencies| dependencies?.as_table())
        .flatten()
        .map(|(name, value)| value.get("package").and_then(Value::as_str).unwrap_or(name))
        .collect()
}
