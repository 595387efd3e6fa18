//! Inputs that would multiply, and work that nobody waits for any more.

use std::time::Duration;

use roundhouse_engines::tools::ToolSource as _;
use serde_json::json;

use super::support::{Workspace, builtins};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_replacement_that_would_make_a_file_too_long_changes_nothing() {
    let workspace = Workspace::new();
    workspace.put("many", "a".repeat(8 * MIB));
    workspace.put("few", "ab".repeat(1_000));
    for (path, old, new) in [
        ("many", "a", "b".repeat(1_024)),
        ("many", "a", "bb".to_owned()),
        ("few", "a", "b".repeat(9 * 1_024)),
    ] {
        let before = workspace.get(path);
        let input = json!({ "path": path, "old": old, "new": new, "replace_all": true });
        let outcome = workspace.call("edit_file", input).await;
        assert!(!outcome.success && outcome.text.contains("Nothing was changed"), "{}", outcome.text);
        assert_eq!(workspace.get(path), before);
    }
    let input = json!({ "path": "many", "old": "a", "new": "b", "replace_all": true });
    let outcome = workspace.call("edit_file", input).await;
    assert!(outcome.success && outcome.text.len() < MIB, "{}", outcome.text);
}

#[tokio::test]
async fn a_file_that_is_too_long_to_be_read_is_not_written_either() {
    let workspace = Workspace::new();
    let outcome = workspace.call("write_file", json!({ "path": "a", "content": "a".repeat(9 * MIB) })).await;
    assert!(!outcome.success && !workspace.path.join("a").exists(), "{}", outcome.text);
}

#[tokio::test]
async fn a_workspace_whose_path_has_become_a_link_is_not_opened() {
    let workspace = Workspace::new();
    let moved = workspace.around.path().join("moved");
    std::fs::rename(&workspace.path, &moved).unwrap();
    std::os::unix::fs::symlink(workspace.around.path(), &workspace.path).unwrap();
    let outcome = workspace.call("read_file", json!({ "path": "secret" })).await;
    assert!(!outcome.success && !outcome.text.contains("secret\n"), "{}", outcome.text);
}

#[tokio::test]
async fn searches_that_were_given_up_stop_working() {
    let workspace = Workspace::new();
    // Lines that a pattern has much to do with, and nothing to find in.
    let line = format!("{}\n", "ab".repeat(4_000));
    for name in 0..8 {
        workspace.put(&format!("long{name}"), line.repeat(1_000));
    }
    let pattern = "(a|b|ab|ba)*[^ab](.*x){20}";
    // More than work at once: if one went on, the call after them would have to wait for it.
    for _ in 0..12 {
        let (context, _shown) = workspace.context();
        let tools = builtins();
        let search = tools.call("search_files", json!({ "pattern": pattern }), &context);
        drop(tokio::time::timeout(Duration::from_millis(50), search).await);
    }
    workspace.put("small", "here\n");
    let found = workspace.done("read_file", json!({ "path": "small" }));
    assert_eq!(tokio::time::timeout(Duration::from_secs(15), found).await.unwrap(), "here\n");
}
