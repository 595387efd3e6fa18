//! No file says which registry or mirror a package came from: lock files have to work behind any mirror.

use super::tree::{Finding, Tree};

const CARGO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Registries and their download hosts, and how mirrors of them are usually called.
const HOSTS: [&str; 12] = [
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "registry.npmmirror.com",
    "npm.pkg.github.com",
    "pypi.org",
    "files.pythonhosted.org",
    "deb.debian.org",
    "security.debian.org",
    "static.crates.io",
    "index.crates.io",
    "/artifactory/",
    "/nexus/repository/",
];

/// This file, which has to name them.
const HERE: &str = "xtask/src/tidy/hosts.rs";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| *path != HERE) {
        for (index, line) in text.lines().enumerate() {
            let reason = if let Some(host) = HOSTS.iter().find(|host| line.contains(*host)) {
                format!("names the host of a registry: `{host}`")
            } else if path.ends_with("package-lock.json") && has_address(line) {
                "`resolved` with an address; set omit-lockfile-registry-resolved=true in .npmrc".to_owned()
            } else if path.ends_with("Cargo.lock") && line.starts_with("source = ") && !line.contains(CARGO) {
                format!("a source other than `{CARGO}`")
            } else {
                continue;
            };
            found.push(Finding::line(path, index, reason));
        }
    }
    found
}

fn has_address(line: &str) -> bool {
    line.trim_start().starts_with("\"resolved\"") && line.contains("://")
}
