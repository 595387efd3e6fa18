//! `shell`: what it runs and what it returns.

use roundhouse_engines::tools::{Builtins, Settings, ToolSource, UnknownTool};
use serde_json::json;
use tokio::sync::mpsc;

use super::support::{Workspace, builtins};

#[tokio::test]
async fn what_a_command_says_is_shown_and_returned() {
    let workspace = Workspace::new();
    let (context, mut shown) = workspace.context();
    let command = "echo one; echo two >&2; printf 'tail\\n'; pwd";
    let outcome = builtins().call("shell", json!({ "command": command }), &context).await;
    drop(context);
    let mut live = String::new();
    while let Some(piece) = shown.recv().await {
        live.push_str(&piece);
    }
    assert!(outcome.success);
    let cwd = workspace.path.canonicalize().unwrap();
    assert_eq!(outcome.text, format!("one\ntwo\ntail\n{}\n", cwd.display()));
    assert_eq!(live, outcome.text);
}

#[tokio::test]
async fn outcomes_of_commands() {
    let workspace = Workspace::new();
    for (command, success, text) in [
        ("true", true, "(no output)"),
        ("cat", true, "(no output)"),
        ("echo a; exit 3", false, "a\n[exit status 3]"),
        ("printf a; exit 3", false, "a\n[exit status 3]"),
        ("exec >&- 2>&-; exit 4", false, "[exit status 4]"),
        ("kill -9 $$", false, "[killed by signal 9]"),
        ("no-such-command 2>/dev/null", false, "[exit status 127]"),
        ("printf 'a\\0b\\377c'", true, "a\u{fffd}b\u{fffd}c"),
        ("printf '\\342'; sleep 0.05; printf '\\202\\254'", true, "€"),
        ("printf '\\342\\202'", true, "\u{fffd}"),
    ] {
        let outcome = workspace.call("shell", json!({ "command": command, "extra": 1 })).await;
        assert_eq!((outcome.success, outcome.text.as_str()), (success, text), "{command}");
    }
}

#[tokio::test]
async fn input_that_is_not_valid_is_named() {
    let workspace = Workspace::new();
    for (input, expected) in [
        (json!({}), "missing field `command`"),
        (json!("ls"), "has to be a JSON object"),
        (json!({ "command": 1 }), "`command`: invalid type"),
        (json!({ "command": " " }), "`command`: has to be a command"),
        (json!({ "command": "echo \0" }), "`command`: has to be a command"),
        (json!({ "command": "true", "timeout_ms": "5" }), "`timeout_ms`: invalid type"),
        (json!({ "command": "true", "timeout_ms": -1 }), "`timeout_ms`: invalid value"),
        (json!({ "command": "true", "timeout_ms": 0 }), "`timeout_ms`: has to be from 1 to 600000"),
        (json!({ "command": "true", "timeout_ms": 600_001 }), "`timeout_ms`: has to be from 1 to 600000"),
    ] {
        let text = workspace.refused("shell", input.clone()).await;
        assert!(text.contains(expected), "{input}: {text}");
    }
}

#[tokio::test]
async fn a_command_sees_no_secret_of_ours() {
    assert!(std::env::vars_os().any(|(name, _)| name == "CARGO_MANIFEST_DIR"), "cargo sets it");
    let text = Workspace::new().done("shell", json!({ "command": "env" })).await;
    assert!(text.contains("PATH=") && text.contains("ROUNDHOUSE_PROCESS_TOKEN="));
    assert!(!text.contains("CARGO_"), "{text}");
}

#[tokio::test]
async fn a_flood_needs_little_memory_and_no_reader() {
    let workspace = Workspace::new();
    let (mut context, _shown) = workspace.context();
    // One piece fits in, and nobody ever takes it out.
    let (output, _full) = mpsc::channel(1);
    context.output = output;
    let before = peak_memory();
    let command = "echo first; head -c 200000000 /dev/zero | tr '\\0' y; echo; echo last";
    let outcome = builtins().call("shell", json!({ "command": command }), &context).await;
    assert!(outcome.success, "{}", outcome.text);
    assert!(outcome.text.starts_with("first\nyyy") && outcome.text.ends_with("yyy\nlast\n"));
    let left_out = 200_000_000 + 12 - 64 * 1024;
    assert!(outcome.text.contains(&format!("[… {left_out} bytes left out …]")));
    assert!(outcome.text.len() < 65 * 1024);
    assert!(peak_memory() - before < 64 * 1024, "KiB: {before} to {}", peak_memory());
}

/// In KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_said() {
    let workspace = Workspace::new();
    std::fs::remove_dir(&workspace.path).unwrap();
    let text = workspace.refused("shell", json!({ "command": "true" })).await;
    assert!(text.contains("the working directory"), "{text}");
    let text = workspace.refused("read_file", json!({ "path": "a" })).await;
    assert!(text.contains("The workspace cannot be opened"), "{text}");
}

#[tokio::test]
async fn tools_are_those_that_are_named() {
    let some = Builtins::new(&["shell".to_owned(), "read_file".to_owned()], Settings::default()).unwrap();
    let names: Vec<String> = some.tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["read_file", "shell"]);
    let (context, _shown) = Workspace::new().context();
    let outcome = some.call("write_file", json!({ "path": "a", "content": "" }), &context).await;
    assert!(!outcome.success && outcome.text.contains("read_file, shell"), "{}", outcome.text);

    let unknown = Builtins::new(&["shell".to_owned(), "format_disk".to_owned()], Settings::default());
    assert_eq!(unknown.unwrap_err(), UnknownTool("format_disk".to_owned()));
}

#[test]
fn every_tool_has_a_schema_that_models_take() {
    for tool in builtins().tools() {
        assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
        let properties = tool.input_schema["properties"].as_object().unwrap();
        for (name, property) in properties {
            assert!(property["type"].is_string() && property["description"].is_string(), "{name}");
        }
        for name in tool.input_schema["required"].as_array().unwrap() {
            assert!(properties.contains_key(name.as_str().unwrap()), "{name}");
        }
        assert!(!tool.description.contains("  "), "{}", tool.description);
    }
}
