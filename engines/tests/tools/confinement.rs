//! No file tool leads out of the workspace.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::mpsc::TryRecvError;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use roundhouse_engines::tools::ToolSource;
use serde_json::{Value, json};

use super::support::{Workspace, builtins};

/// A workspace with ways out. Around it are `secret` and `other/file`.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    let around = workspace.around.path();
    fs::create_dir(around.join("other")).unwrap();
    fs::write(around.join("other/file"), "secret\n").unwrap();
    workspace.put("inside/file", "secret of its own\n");
    for (target, link) in [
        ("../secret", "link-file"),
        ("../other", "link-directory"),
        ("..", "link-up"),
        ("inside/../../other", "link-roundabout"),
        ("link-directory", "link-link"),
        ("../nothing", "link-dangling"),
    ] {
        symlink(target, workspace.path.join(link)).unwrap();
    }
    symlink(around.join("secret"), workspace.path.join("link-absolute")).unwrap();
    symlink("/proc/self/root/etc/passwd", workspace.path.join("link-magic")).unwrap();
    workspace
}

/// Paths that lead to a file outside.
fn ways_out(workspace: &Workspace) -> Vec<String> {
    let around = workspace.around.path().display();
    let mut ways =
        vec![format!("{around}/secret"), format!("{around}/workspace/../secret"), "/etc/passwd".to_owned()];
    ways.extend(
        [
            "../secret",
            "inside/../../secret",
            "./.././secret",
            "link-file",
            "link-directory/file",
            "link-up/secret",
            "link-roundabout/file",
            "link-link/file",
            "link-dangling",
            "link-absolute",
            "link-magic",
            "link-up/workspace/inside/file",
            "../workspace/inside/file",
        ]
        .map(str::to_owned),
    );
    ways
}

#[tokio::test]
async fn nothing_outside_is_read_written_or_changed() {
    let workspace = workspace();
    for path in ways_out(&workspace) {
        for (tool, input) in [
            ("read_file", json!({ "path": path })),
            ("write_file", json!({ "path": path, "content": "taken" })),
            ("edit_file", json!({ "path": path, "old": "secret", "new": "taken" })),
            ("list_files", json!({ "path": path })),
            ("search_files", json!({ "path": path, "pattern": "secret" })),
        ] {
            let text = workspace.refused(tool, input).await;
            assert!(
                text.starts_with("Refused: ") && text.contains("leads out of the workspace"),
                "{tool} {path}: {text}"
            );
            assert!(!text.contains("secret\n"), "{tool} {path}: {text}");
        }
    }
    untouched(&workspace);
}

#[tokio::test]
async fn no_directory_outside_is_listed_searched_or_made() {
    let workspace = workspace();
    let around = workspace.around.path().display().to_string();
    for path in
        ["..", "../other", "inside/../..", "link-directory", "link-up", "link-link", "/", around.as_str()]
    {
        for (tool, input) in [
            ("list_files", json!({ "path": path, "depth": 3 })),
            ("search_files", json!({ "path": path, "pattern": "secret" })),
            ("write_file", json!({ "path": format!("{path}/made/deep/file"), "content": "taken" })),
        ] {
            let text = workspace.refused(tool, input).await;
            assert!(text.starts_with("Refused: "), "{tool} {path}: {text}");
        }
    }
    untouched(&workspace);
}

#[tokio::test]
async fn links_are_not_followed_when_going_through_a_directory() {
    let workspace = workspace();
    let text = workspace.done("list_files", json!({ "depth": 9 })).await;
    assert!(text.contains("link-directory@\n") && !text.contains("link-directory@/"), "{text}");
    assert!(!text.contains("other"), "{text}");
    let text = workspace.done("search_files", json!({ "pattern": "secret" })).await;
    assert_eq!(text, "inside/file:1: secret of its own\n");
}

#[tokio::test]
async fn links_that_stay_inside_work() {
    let workspace = Workspace::new();
    workspace.put("real/file", "old\n");
    symlink("real", workspace.path.join("directory")).unwrap();
    symlink("real/file", workspace.path.join("link")).unwrap();
    assert_eq!(workspace.done("read_file", json!({ "path": "directory/file" })).await, "old\n");
    workspace.done("edit_file", json!({ "path": "link", "old": "old", "new": "new" })).await;
    assert_eq!(workspace.get("real/file"), "new\n");
    assert!(workspace.path.join("link").is_symlink());
    workspace.done("write_file", json!({ "path": "directory/sub/file", "content": "deep" })).await;
    assert_eq!(workspace.get("real/sub/file"), "deep");
}

/// A directory that becomes a link to the outside and back, all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_changes_meanwhile_does_not_lead_out() {
    let workspace = workspace();
    workspace.put("switch/file", "inside\n");
    let (path, (context, _shown)) = (workspace.path.clone(), workspace.context());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    symlink("../other", path.join("aside")).unwrap();
    let switching = tokio::task::spawn_blocking(move || {
        let (switch, aside) = (path.join("switch"), path.join("aside"));
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            renameat2(AT_FDCWD, &switch, AT_FDCWD, &aside, RenameFlags::RENAME_EXCHANGE).unwrap();
        }
    });
    let tools = builtins();
    for _ in 0..200 {
        let read = tools.call("read_file", json!({ "path": "switch/file" }), &context).await;
        assert!(!read.text.contains("secret\n"), "{}", read.text);
        let write: Value = json!({ "path": "switch/file", "content": "inside\n" });
        tools.call("write_file", write, &context).await;
        let found =
            tools.call("search_files", json!({ "path": "switch", "pattern": "secret" }), &context).await;
        assert!(!found.text.contains(":1: secret"), "{}", found.text);
    }
    drop(stop);
    switching.await.unwrap();
    untouched(&workspace);
}

fn untouched(workspace: &Workspace) {
    let around = workspace.around.path();
    assert_eq!(fs::read_to_string(around.join("secret")).unwrap(), "secret\n");
    assert_eq!(fs::read_to_string(around.join("other/file")).unwrap(), "secret\n");
    let mut names: Vec<_> = fs::read_dir(around).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["other", "secret", "workspace"]);
    assert_eq!(fs::read_dir(around.join("other")).unwrap().count(), 1);
}
