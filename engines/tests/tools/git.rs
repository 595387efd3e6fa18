//! What a repository may have git run within a tool.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::support::Workspace;

/// A command of git, as somebody else has run it before.
fn git(at: &Path, args: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]);
    assert!(git.args(args).current_dir(at).output().unwrap().status.success(), "{args:?}");
}

#[tokio::test]
async fn a_repository_does_not_decide_which_programs_run() {
    let workspace = Workspace::new();
    let at = &workspace.path;
    git(at, &["init", "-q"]);
    workspace.put("a", "a\n");
    git(at, &["add", "a"]);
    git(at, &["commit", "-qm", "a"]);
    let trap = workspace.around.path().join("trap");
    std::fs::write(&trap, format!("#!/bin/sh\necho \"$0\" >> {}/sprung\n", at.display())).unwrap();
    std::fs::set_permissions(&trap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let trap = trap.display().to_string();
    git(at, &["config", "core.fsmonitor", &trap]);
    git(at, &["config", "core.pager", &trap]);
    let hook = at.join(".git/hooks/post-checkout");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::copy(&trap, &hook).unwrap();
    // A folder that looks like a repository.
    let bare = at.join("bare");
    std::fs::create_dir(&bare).unwrap();
    git(&bare, &["init", "-q", "--bare", "."]);
    git(&bare, &["config", "core.fsmonitor", &trap]);
    git(&bare, &["config", "core.worktree", "."]);
    git(&bare, &["config", "core.bare", "false"]);

    for command in ["git status", "git diff", "git -p log", "git checkout -qb other"] {
        workspace.done("shell", json!({"command": command})).await;
    }
    let refused = workspace.refused("shell", json!({"command": "cd bare && git status"})).await;

    assert!(refused.contains("safe.bareRepository"), "{refused}");
    assert!(!at.join("sprung").exists(), "{}", workspace.get("sprung"));
}
