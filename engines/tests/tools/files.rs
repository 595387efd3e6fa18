//! `read_file`, `write_file`, `edit_file`: what they do.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::support::Workspace;

#[tokio::test]
async fn reading_a_file_and_some_of_its_lines() {
    let workspace = Workspace::new();
    workspace.put("a/lines", "one\ntwo\r\nthrée\nfour");
    workspace.put("empty", "");
    let absolute = workspace.path.join("a/lines");
    for (input, text) in [
        (json!({ "path": "a/lines" }), "one\ntwo\r\nthrée\nfour"),
        (json!({ "path": "./a/../a/lines" }), "one\ntwo\r\nthrée\nfour"),
        (json!({ "path": absolute, "limit_lines": 9 }), "one\ntwo\r\nthrée\nfour"),
        (json!({ "path": "a/lines", "offset_line": 4 }), "four"),
        (json!({ "path": "a/lines", "limit_lines": 1 }), "one\n[… cut: go on with `offset_line` 2 …]\n"),
        (
            json!({ "path": "a/lines", "offset_line": 2, "limit_lines": 2 }),
            "two\r\nthrée\n[… cut: go on with `offset_line` 4 …]\n",
        ),
        (json!({ "path": "empty" }), "(the file is empty)"),
    ] {
        assert_eq!(workspace.done("read_file", input.clone()).await, text, "{input}");
    }
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_that_fit_together() {
    let workspace = Workspace::new();
    let lines: Vec<String> = (1..=5_000).map(|n| format!("{n} {}\n", "é".repeat(n % 50))).collect();
    let file = lines.concat();
    workspace.put("long", &file);
    let (mut read, mut offset) = (String::new(), 1);
    loop {
        let part = workspace.done("read_file", json!({ "path": "long", "offset_line": offset })).await;
        assert!(part.len() < 65 * 1024);
        let Some((text, note)) = part.split_once("[… cut: go on with `offset_line` ") else {
            read.push_str(&part);
            break;
        };
        read.push_str(text);
        offset = note.split(' ').next().unwrap().parse().unwrap();
    }
    assert_eq!(read, file);

    workspace.put("wide", "é".repeat(20_000) + "\nnext\n");
    let text = workspace.done("read_file", json!({ "path": "wide" })).await;
    let cut = 40_000 - 16 * 1024;
    assert!(text.ends_with(&format!("é[… {cut} bytes of this line left out …]\nnext\n")));
}

#[tokio::test]
async fn what_cannot_be_read_is_said() {
    let workspace = Workspace::new();
    workspace.put("text", "one\n");
    workspace.put("binary", b"\x7fELF\0\0\0");
    workspace.put("latin", b"ok\ncaf\xe9\n");
    workspace.put("directory/file", "");
    nix::unistd::mkfifo(&workspace.path.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (input, expected) in [
        (json!({ "path": "missing" }), "`missing` does not exist"),
        (json!({ "path": "text/below" }), "not a directory"),
        (json!({ "path": "directory" }), "is not a regular file"),
        (json!({ "path": "pipe" }), "is not a regular file"),
        (json!({ "path": "binary" }), "is a binary file"),
        (json!({ "path": "latin" }), "is not UTF-8 text (line 2)"),
        (json!({ "path": "text", "offset_line": 3 }), "has only 1 lines"),
        (json!({ "path": "text", "offset_line": 0 }), "begin at 1"),
        (json!({ "path": "text", "offset_line": "1" }), "`offset_line`: invalid type"),
        (json!({ "path": "" }), "empty"),
        (json!({}), "missing field `path`"),
        (json!(["text"]), "has to be a JSON object"),
    ] {
        let text = workspace.refused("read_file", input.clone()).await;
        assert!(text.contains(expected), "{input}: {text}");
    }
}

#[tokio::test]
async fn writing_a_file_replaces_it_as_a_whole() {
    let workspace = Workspace::new();
    let text = workspace.done("write_file", json!({ "path": "new/deep/file", "content": "é\n" })).await;
    assert_eq!(text, "Created `new/deep/file` (3 bytes).");
    assert_eq!(workspace.get("new/deep/file"), "é\n");

    let script = workspace.path.join("script");
    workspace.put("script", "old and longer");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o750)).unwrap();
    let text = workspace.done("write_file", json!({ "path": script, "content": "" })).await;
    assert!(text.starts_with("Replaced"), "{text}");
    assert_eq!(workspace.get("script"), "");
    assert_eq!(std::fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o750);
    let names: Vec<_> =
        std::fs::read_dir(&workspace.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
}

#[tokio::test]
async fn what_cannot_be_written_is_said_and_nothing_is_left() {
    let workspace = Workspace::new();
    workspace.put("file", "content");
    std::fs::create_dir(workspace.path.join("directory")).unwrap();
    nix::unistd::mkfifo(&workspace.path.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let write = |path: &str| json!({ "path": path, "content": "new" });
    for (input, expected) in [
        (write("directory"), "not a regular file"),
        (write("pipe"), "not a regular file"),
        (write("directory/"), "does not name a file"),
        (write("new/"), "does not name a file"),
        (write("."), "does not name a file"),
        (write("directory/.."), "does not name a file"),
        (write("file/below"), "`file/below`"),
        (write("a\0b"), "contains NUL"),
        (json!({ "path": "new" }), "missing field `content`"),
        (json!({ "path": "new", "content": null }), "`content`: invalid type"),
    ] {
        let text = workspace.refused("write_file", input.clone()).await;
        assert!(text.contains(expected), "{input}: {text}");
    }
    assert_eq!(workspace.get("file"), "content");
    assert_eq!(std::fs::read_dir(&workspace.path).unwrap().count(), 3);
}

#[tokio::test]
async fn an_edit_replaces_exactly_what_it_names() {
    let workspace = Workspace::new();
    workspace.put("file", "fn one() {}\nfn two() {}\n\nfn one_more() {}\n");
    let edit = |old: &str, new: &str, all: Option<bool>| json!({ "path": "file", "old": old, "new": new, "replace_all": all.unwrap_or_default() });
    let text = workspace.done("edit_file", edit("fn two() {}", "fn 2() {\n}", None)).await;
    assert_eq!(
        text,
        "Changed `file` in 1 place.\n@@ line 2 @@\n fn one() {}\n-fn two() {}\n+fn 2() {\n+}\n \n fn one_more() {}\n"
    );
    assert_eq!(workspace.get("file"), "fn one() {}\nfn 2() {\n}\n\nfn one_more() {}\n");

    let text = workspace.done("edit_file", edit("fn one", "fn 1", Some(true))).await;
    assert!(text.starts_with("Changed `file` in 2 places.\n"), "{text}");
    assert_eq!(workspace.get("file"), "fn 1() {}\nfn 2() {\n}\n\nfn 1_more() {}\n");
}

#[tokio::test]
async fn an_edit_that_is_not_exact_changes_nothing() {
    let workspace = Workspace::new();
    let content = "\tone\n\ttwo\none\n";
    workspace.put("file", content);
    workspace.put("latin", b"caf\xe9\n");
    workspace.put("large", vec![b'x'; 8 * 1024 * 1024 + 1]);
    let edit = |path: &str, old: &str, new: &str| json!({ "path": path, "old": old, "new": new });
    for (input, expected) in [
        (edit("file", "one", "1"), "is 2 times in `file` (lines 1, 3)"),
        (edit("file", "three", "3"), "`old` is not in `file`"),
        (edit("file", "  two\n", "2\n"), "Line 2 is like its first line"),
        (edit("file", "", "2"), "`old` is empty"),
        (edit("file", "two", "two"), "are the same"),
        (edit("missing", "a", "b"), "`missing` does not exist"),
        (edit("latin", "a", "b"), "is not UTF-8 text"),
        (edit("large", "x", "y"), "has more than 8388608 bytes"),
        (edit(".", "x", "y"), "is not a regular file"),
        (json!({ "path": "file", "old": "one" }), "missing field `new`"),
        (
            json!({ "path": "file", "old": "one", "new": "1", "replace_all": "yes" }),
            "`replace_all`: invalid type",
        ),
        (Value::Null, "has to be a JSON object"),
    ] {
        let text = workspace.refused("edit_file", input.clone()).await;
        assert!(text.contains(expected), "{input}: {text}");
    }
    assert_eq!(workspace.get("file"), content);
}
