//! `list_files` and `search_files`: what they find.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::support::Workspace;

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.put("src/main.rs", "fn main() {\r\n    run();\n}\n");
    workspace.put("src/deep/run.rs", "fn run() {}\n// (run)\n");
    workspace.put("README.md", "Run it.\n");
    workspace.put("binary", b"run\0run\n");
    workspace.put("latin", b"caf\xe9 run\n");
    workspace.put(".git/config", "run\n");
    workspace.put(".hidden", "hidden\n");
    symlink("README.md", workspace.path.join("link")).unwrap();
    workspace
}

#[tokio::test]
async fn lists_are_in_order_and_as_deep_as_asked() {
    let workspace = workspace();
    for (input, text) in [
        (json!({}), ".git/\n.hidden\nREADME.md\nbinary\nlatin\nlink@\nsrc/\n"),
        (json!({ "path": "src" }), "deep/\nmain.rs\n"),
        (json!({ "path": "src", "depth": 2 }), "deep/\ndeep/run.rs\nmain.rs\n"),
        (json!({ "glob": "*.rs" }), "src/deep/run.rs\nsrc/main.rs\n"),
        (json!({ "glob": "*.rs", "depth": 2 }), "src/main.rs\n"),
        (json!({ "glob": "src/*.rs" }), "src/main.rs\n"),
        (json!({ "path": "src", "glob": "*/*.rs" }), "deep/run.rs\n"),
        (json!({ "glob": "config" }), "(nothing)"),
        (json!({ "path": ".git" }), "config\n"),
    ] {
        assert_eq!(workspace.done("list_files", input.clone()).await, text, "{input}");
    }
}

#[tokio::test]
async fn a_list_that_is_cut_says_so() {
    let workspace = Workspace::new();
    for n in 0..1_001 {
        workspace.put(&format!("many/{n:04}"), "");
    }
    let text = workspace.done("list_files", json!({ "path": "many" })).await;
    assert_eq!(text.lines().count(), 1_001);
    assert!(text.contains("0999\n[… cut after 1000 entries: "), "{text}");
    std::fs::remove_file(workspace.path.join("many/0000")).unwrap();
    let text = workspace.done("list_files", json!({ "path": "many" })).await;
    assert!(text.ends_with("1000\n"), "exactly as many as fit are no cut: {text}");
}

#[tokio::test]
async fn searches_name_file_and_line() {
    let workspace = workspace();
    for (input, text) in [
        (json!({ "pattern": r"fn \w+" }), "src/deep/run.rs:1: fn run() {}\nsrc/main.rs:1: fn main() {\n"),
        (json!({ "pattern": r"\{$" }), "src/main.rs:1: fn main() {\n"),
        (json!({ "pattern": "^run" }), "(no match)"),
        (
            json!({ "pattern": "(?i)run", "glob": "{README.md,latin}" }),
            "README.md:1: Run it.\nlatin:1: caf\u{fffd} run\n",
        ),
        (
            json!({ "pattern": "run", "path": "src", "glob": "deep/*" }),
            "src/deep/run.rs:1: fn run() {}\nsrc/deep/run.rs:2: // (run)\n",
        ),
        (json!({ "pattern": "run", "path": "src/main.rs" }), "src/main.rs:2:     run();\n"),
        (
            json!({ "pattern": "run", "path": "src", "max": 1 }),
            "src/deep/run.rs:1: fn run() {}\n[… cut after 1 lines: there are more …]\n",
        ),
    ] {
        assert_eq!(workspace.done("search_files", input.clone()).await, text, "{input}");
    }
}

#[tokio::test]
async fn long_lines_and_many_matches_are_cut() {
    let workspace = Workspace::new();
    workspace.put("wide", format!("match {}\n", "é".repeat(100_000)));
    let text = workspace.done("search_files", json!({ "pattern": "match" })).await;
    assert!(text.ends_with("é […]\n") && text.len() < 500, "{text}");

    workspace.put("wide", format!("match {}\n", "x".repeat(390)).repeat(2_000));
    let text = workspace.done("search_files", json!({ "pattern": "match", "max": 1_000 })).await;
    assert!(text.len() < 66 * 1024 && text.ends_with("lines: there are more …]\n"));
}

#[tokio::test]
async fn what_cannot_be_listed_or_searched_is_said() {
    let workspace = workspace();
    for (tool, input, expected) in [
        ("list_files", json!({ "path": "README.md" }), "not a directory"),
        ("list_files", json!({ "path": "missing" }), "`missing` does not exist"),
        ("list_files", json!({ "depth": 0 }), "`depth` begins at 1"),
        ("list_files", json!({ "glob": "[" }), "`glob`: "),
        ("list_files", json!({ "depth": -1 }), "`depth`: invalid value"),
        ("search_files", json!({}), "missing field `pattern`"),
        ("search_files", json!({ "pattern": "(" }), "`pattern`: "),
        ("search_files", json!({ "pattern": "(?:a{1000}){1000}" }), "`pattern`: "),
        ("search_files", json!({ "pattern": "a", "path": "missing" }), "`missing` does not exist"),
        ("search_files", json!({ "pattern": "a", "max": 0 }), "`max`: has to be from 1 to 1000"),
        ("search_files", json!({ "pattern": "a", "max": 1_001 }), "`max`: has to be from 1 to 1000"),
    ] {
        let text = workspace.refused(tool, input.clone()).await;
        assert!(text.contains(expected), "{tool} {input}: {text}");
    }
}
