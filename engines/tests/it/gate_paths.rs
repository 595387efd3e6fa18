//! What rules make of paths.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use roundhouse_engines::openai::{Permissions, Verdict};
use roundhouse_engines::permissions::Gate;
use serde_json::{Value, json};

use Verdict::{Allow, Ask, Deny};

fn permissions(value: Value) -> Permissions {
    serde_json::from_value(value).unwrap()
}

/// A working directory with things around it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in [
            "work/src",
            "work/secret",
            "data/claude/projects/p/mine",
            "data/workspaces/one",
            "data/workspaces/two",
        ] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        symlink("../../data", dir.path().join("work/src/out")).unwrap();
        symlink("secret", dir.path().join("work/link")).unwrap();
        symlink("../nowhere", dir.path().join("work/dangling")).unwrap();
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn gate(&self, rules: Value, cwd: &str) -> Gate {
        Gate {
            cwd: self.path(cwd),
            closed: vec![self.path("data")],
            engine_files: Some((self.path("data/claude"), "mine".to_owned())),
            ..Gate::from(permissions(rules))
        }
    }
}

#[track_caller]
fn check(gate: &Gate, tool: &str, member: &str, cases: &[(&Path, Verdict)]) {
    for (path, expected) in cases {
        assert_eq!(gate.decide(tool, &json!({member: path})), *expected, "{tool} {}", path.display());
    }
}

#[test]
fn a_path_is_allowed_where_it_leads_into_what_is_allowed() {
    let place = Place::new();
    let gate =
        place.gate(json!({"default": "ask", "allow": ["Read(./**)", "read_file(/etc/host*)"]}), "work");
    let inside = place.path("work/src/a.rs");
    let cases = [
        (Path::new("src/a.rs"), Allow),
        (Path::new("./src/../b"), Allow),
        (&*inside, Allow),
        (Path::new("link/a"), Allow),
        (Path::new("../other"), Ask),
        (Path::new("/etc/passwd"), Ask),
        (Path::new("/etc/hostname"), Allow),
        (Path::new("src/../../x"), Ask),
        (Path::new("dangling"), Ask),
        (Path::new("~/x"), Ask),
    ];
    for (tool, member) in [("Read", "file_path"), ("read_file", "path")] {
        check(&gate, tool, member, &cases);
    }
    check(&gate, "Write", "file_path", &[(Path::new("src/a.rs"), Ask)]);
    assert_eq!(gate.decide("Read", &json!({})), Ask);
}

#[test]
fn a_denied_path_is_denied_to_all_that_do_the_same_and_a_search_through_it_is_asked_about() {
    let place = Place::new();
    let rules =
        json!({"allow": ["Read(./**)"], "deny": ["Read(./secret/**)", "Read(**/.env)", "Edit(/etc/**)"]});
    let gate = place.gate(rules, "work");
    let cases = [
        (Path::new("secret/a"), Deny),
        (Path::new("src/../secret/a"), Deny),
        (Path::new("link/a"), Deny),
        (Path::new("src/deep/.env"), Deny),
        (Path::new(".env"), Deny),
        (Path::new("src/a"), Allow),
    ];
    check(&gate, "Read", "file_path", &cases);
    check(&gate, "read_file", "path", &cases);
    check(&gate, "Grep", "path", &[(Path::new("secret"), Deny), (Path::new("."), Ask)]);
    assert_eq!(gate.decide("search_files", &json!({"pattern": "x"})), Ask);
    for tool in ["Write", "Edit", "write_file", "MultiEdit"] {
        check(&gate, tool, "file_path", &[(Path::new("/etc/passwd"), Deny), (Path::new("secret/a"), Allow)]);
    }
}

#[test]
fn the_data_directory_is_closed_but_for_what_is_the_sessions_own() {
    let place = Place::new();
    let gate = place.gate(json!({"allow": ["Read", "Write"]}), "work");
    let (database, transcript) =
        (place.path("data/roundhouse.db"), place.path("data/claude/projects/p/other.jsonl"));
    let (own, plan) =
        (place.path("data/claude/projects/p/mine/tool-results/1.txt"), place.path("data/claude/plans/a.md"));
    let cases = [
        (&*database, Deny),
        (&*transcript, Deny),
        (&*own, Allow),
        (&*plan, Allow),
        (Path::new("../data/roundhouse.db"), Deny),
        (Path::new("src/out/roundhouse.db"), Deny),
    ];
    check(&gate, "Read", "file_path", &cases);
    check(&gate, "Write", "file_path", &cases);
    assert_eq!(gate.decide("Grep", &json!({"path": place.path("")})), Deny);

    let gate = place.gate(json!({}), "data/workspaces/one");
    let (mine, other) = (place.path("data/workspaces/one/a"), place.path("data/workspaces/two/a"));
    check(
        &gate,
        "Read",
        "file_path",
        &[(&*mine, Allow), (&*other, Deny), (Path::new("a"), Allow), (Path::new("../two/a"), Deny)],
    );
    assert_eq!(gate.decide("Grep", &json!({"pattern": "x"})), Allow);
}

#[test]
fn file_tools_do_not_write_to_git_whatever_is_allowed() {
    let place = Place::new();
    fs::create_dir_all(place.path("work/.git")).unwrap();
    symlink(".git", place.path("work/hidden")).unwrap();
    let gate = place.gate(json!({"allow": ["Write", "Edit", "NotebookEdit"]}), "work");
    for (tool, member) in [("Write", "file_path"), ("Edit", "file_path"), ("NotebookEdit", "notebook_path")] {
        let cases = [".git/config", ".GIT/hooks/x", "src/.git", "hidden/config", "src/../.git/config"];
        check(&gate, tool, member, &cases.map(|path| (Path::new(path), Deny)));
        check(&gate, tool, member, &[(Path::new(".gitignore"), Allow)]);
    }
    assert!(gate.refusal("Write", &json!({"file_path": ".git/config"})).unwrap().contains(".git"));
    check(&gate, "Read", "file_path", &[(Path::new(".git/config"), Allow)]);
}

#[test]
fn what_binds_those_above_binds_below_them_by_whatever_name() {
    let above = vec![
        permissions(json!({"deny": ["shell(rm)", "write_file"]})),
        permissions(json!({"default": "ask", "allow": ["read_file", "shell"]})),
    ];
    // As it is stored.
    let above: Vec<Permissions> = serde_json::from_str(&serde_json::to_string(&above).unwrap()).unwrap();
    let gate = Gate { above, ..Gate::from(permissions(json!({"allow": ["Bash", "Write", "Read", "Edit"]}))) };
    let command = |command: &str| json!({"command": command});
    assert_eq!(gate.decide("Bash", &command("rm x")), Deny);
    assert_eq!(gate.decide("Monitor", &command("rm x")), Deny);
    assert_eq!(gate.decide("Bash", &command("ls")), Allow);
    assert_eq!(gate.decide("Write", &json!({"file_path": "/tmp/x"})), Deny);
    assert_eq!(gate.decide("Read", &json!({"file_path": "/tmp/x"})), Allow);
    assert_eq!(gate.decide("Edit", &json!({"file_path": "/tmp/x"})), Ask);
}
