//! What git reads its settings from is not written by file tools.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::support::Workspace;

#[tokio::test]
async fn nothing_is_written_into_a_repositorys_own_folder() {
    let workspace = Workspace::new();
    workspace.put(".git/config", "[core]\n");
    workspace.put("sub/.git", "gitdir: ../.git/modules/sub\n");
    symlink(".git", workspace.path.join("link")).unwrap();
    symlink(".git/config", workspace.path.join("file")).unwrap();
    let paths = [
        ".git/config",
        ".git/hooks/pre-commit",
        ".GIT/config",
        "./a/../.git/config",
        "sub/.git",
        "new/.git",
        "new/.git/config",
        ".git /config",
        ".git./config",
        "git~1/config",
        ".g\u{200c}it/config",
        ".git::$INDEX_ALLOCATION/config",
        "link/config",
        "link/hooks/new",
        "file",
    ];
    for path in paths {
        let text = workspace.refused("write_file", json!({"path": path, "content": "x"})).await;
        assert!(text.contains(".git") || text.contains("does not exist"), "{path}: {text}");
    }
    let edit = json!({"path": ".git/config", "old": "core", "new": "evil"});
    assert!(workspace.refused("edit_file", edit).await.contains("is in `.git`"));
    assert_eq!(workspace.get(".git/config"), "[core]\n");
    assert!(!workspace.path.join("new").exists());

    for path in [".gitignore", ".github/workflows/ci.yml", "a.git/config", "git/config"] {
        workspace.done("write_file", json!({"path": path, "content": "x"})).await;
    }
    assert!(workspace.done("read_file", json!({"path": ".git/config"})).await.contains("core"));
}
