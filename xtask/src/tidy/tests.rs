//! Each check fails on a tree that breaks its rule, and passes one that does not.

use super::tree::Tree;
use super::{directions, doc_tests, findings, hosts, migrations, sizes, suite, words};

/// What a check found, as it is printed.
fn shown(findings: &[super::Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_of_401_lines_is_too_long() {
    let long = "//\n".repeat(401);
    let allowed = "//\n".repeat(400);
    let tree =
        Tree::of([("a/src/long.rs", long.as_str()), ("a/tests/it.rs", allowed.as_str()), ("a.md", &long)]);
    assert_eq!(shown(&sizes::check(&tree)), ["a/src/long.rs: 401 lines; at most 400"]);
    assert_eq!(sizes::long(&tree), [(401, "a/src/long.rs"), (400, "a/tests/it.rs")]);
}

#[test]
fn store_queue_and_bus_do_not_know_one_another() {
    let tree = Tree::of([
        ("shared/src/store/admit.rs", "use crate::domain::Job;\nuse crate::queue::Queue;\n"),
        (
            "shared/src/bus/mod.rs",
            "use crate::{\n    clock::{Clock, queue},\n    store::{Store, Lease},\n};\n",
        ),
        ("shared/src/queue.rs", "fn ring() { crate::bus::ring() }\n// crate::store is not ours to know\n"),
        ("shared/src/lib.rs", "use crate::store::Store;\nuse crate::queue::Queue;\n"),
        ("shared/src/queue_names.rs", "use crate::store::Store;\n"),
    ]);
    assert_eq!(
        shown(&directions::modules(&tree)),
        [
            "shared/src/store/admit.rs:2: `store` must not know `queue`",
            "shared/src/queue.rs:1: `queue` must not know `bus`",
            "shared/src/bus/mod.rs:1: `bus` must not know `store`",
        ]
    );
}

#[test]
fn crates_depend_in_one_direction() {
    let tree = Tree::of([
        (
            "api/Cargo.toml",
            "[dependencies]\nroundhouse-shared.workspace = true\nroundhouse-engines.workspace = true",
        ),
        (
            "engines/Cargo.toml",
            "[dependencies]\ndb = { package = \"sqlx\" }\n[dev-dependencies]\naxum = \"1\"\nroundhouse-oracle = \"1\"",
        ),
        (
            "oracle/Cargo.toml",
            "[target.'cfg(unix)'.dependencies]\nroundhouse-shared = { path = \"../shared\" }",
        ),
    ]);
    assert_eq!(
        shown(&directions::manifests(&tree)),
        [
            "api/Cargo.toml: `api` must not depend on `roundhouse-engines`",
            "engines/Cargo.toml: `engines` must not depend on `sqlx`",
            "oracle/Cargo.toml: `oracle` must not depend on `roundhouse-shared`",
            "shared/Cargo.toml: missing, so that its dependencies cannot be checked",
        ]
    );
}

const STORE: &str = "impl Store {
    /// Admits.
    pub async fn admit(
        &self,
    ) {
    }
    pub async fn drain<T>(&self, into: T) {}
    async fn helper(&self) {}
    pub(crate) async fn inner(&self) {}
}
pub trait Sweep {
    async fn sweep(&self);
}
impl Row {
    pub async fn other(&self) {}
}
";

#[test]
fn the_suite_calls_every_method_of_the_store() {
    let suite = ("shared/tests/store/main.rs", "store.admit();\n// drain\nstore.drain_all();");
    let elsewhere = ("shared/tests/bus.rs", "store.drain(1); store.sweep()");
    let store = ("shared/src/store/mod.rs", STORE);
    assert_eq!(
        shown(&suite::check(&Tree::of([store, suite, elsewhere]))),
        [
            "shared/src/store/mod.rs:7: no test under shared/tests/store/ calls `drain`",
            "shared/src/store/mod.rs:12: no test under shared/tests/store/ calls `sweep`",
        ]
    );
    let more = ("shared/tests/store/drain.rs", "Store::drain(&store, 1); store.sweep()");
    assert_eq!(suite::check(&Tree::of([store, suite, more])), []);
}

#[test]
fn the_suite_check_notices_that_the_store_has_moved() {
    let moved = Tree::of([("shared/src/database/mod.rs", STORE)]);
    assert_eq!(
        shown(&suite::check(&moved)),
        ["shared/src/store/: no public `async fn` of `Store`, which this check looks for here"]
    );
}

#[test]
fn unfinished_code_and_places_of_one_machine_are_found() {
    let bad = [
        concat!("#[", "ignore = \"slow\"]"),
        concat!("    to", "do!()"),
        concat!("unimple", "mented!()"),
        concat!("let path = \"/wo", "rk/x\";"),
        concat!("// see file:///ho", "me/me/x"),
    ]
    .join("\n");
    let good = concat!("https://example.org/ho", "me/x and docs/wo", "rk/x and #[ignored]\n");
    let tree = Tree::of([("a.rs", bad.as_str()), ("b.md", good), ("c.json", bad.as_str())]);
    let lines: Vec<_> = shown(&words::check(&tree));
    assert_eq!(lines.len(), 5, "{lines:#?}");
    for (number, line) in (1..).zip(&lines) {
        assert!(line.starts_with(&format!("a.rs:{number}: ")), "{line}");
    }
}

#[test]
fn hosts_of_registries_are_found() {
    let pypi = concat!("see https://py", "pi.org/x");
    let cargo = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"git+https://x.org/y\"";
    let npm = "{\n  \"resolved\": \"https://mirror.example/x.tgz\",\n  \"funding\": \"https://x.org\"\n}";
    let tree = Tree::of([("README.md", pypi), ("Cargo.lock", cargo), ("web/package-lock.json", npm)]);
    let lines = shown(&hosts::check(&tree));
    let places: Vec<_> =
        lines.iter().filter_map(|line| line.split_once(": ")).map(|(place, _)| place).collect();
    assert_eq!(places, ["Cargo.lock:2", "README.md:1", "web/package-lock.json:2"]);
}

#[test]
fn both_databases_have_the_same_migrations() {
    let tree = Tree::of([
        ("migrations/README.md", ""),
        ("migrations/sqlite/0001_start.sql", ""),
        ("migrations/postgres/0001_start.sql", ""),
        ("migrations/sqlite/0002_keys.sql", ""),
    ]);
    let missing = "migrations/postgres/0002_keys.sql: missing: the other database has this migration";
    assert_eq!(shown(&migrations::check(&tree)), [missing]);
}

#[test]
fn documentation_with_code_that_runs_is_told_from_text() {
    assert!(doc_tests("/// ```\n/// let x = 1;\n/// ```\n"));
    assert!(doc_tests("//! ```rust,no_run\n"));
    assert!(!doc_tests("/// ```text\n/// a -> b\n/// ```\n"));
    assert!(!doc_tests("let fence = \"```\";\n"));
}

#[test]
fn the_checkout_itself_is_read() {
    let tree = Tree::of_checkout().expect("git lists the files");
    let _ = findings(&tree);
    assert!(
        tree.text("xtask/src/tidy/tests.rs").is_some_and(|text| text.contains("the_checkout_itself_is_read"))
    );
}
