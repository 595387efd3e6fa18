//! Servers of other protocol versions, scripted and real, and what they do with what they do not know.

use std::collections::BTreeMap;
use std::fs;

use roundhouse_engines::mcp::{Server, Settings, Transport};
use roundhouse_engines::tools::{ToolOutcome, ToolSource};
use serde_json::json;

use super::support::{call, command, patient, server, unavailable};

const SCRIPTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/scripted.cjs");

#[expect(clippy::disallowed_methods, reason = "the test command names the servers")]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests with `cargo xtask test`, or below `cargo xtask services --`")
    })
}

/// The scripted server, and what it notes of what it is asked.
fn scripted(kind: &str) -> (Server, impl Fn() -> Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = server(command("node", &[SCRIPTED, kind, log.to_str().unwrap()]));
    let read = move || {
        let _ = &folder;
        fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    (server, read)
}

async fn echoes(server: &Server, what: &str) {
    let outcome = call(server, "every__echo", json!({ "message": "hi" })).await;
    assert_eq!(outcome, ToolOutcome::success("Echo: hi"), "{what}");
}

#[tokio::test]
async fn what_a_server_does_with_unknown_requests_does_not_matter() {
    for kind in ["exits", "silent", "wrong", "malformed", "mute", "error", "banner"] {
        let (server, log) = scripted(kind);
        server.prepare().await;
        assert_eq!(server.tools().len(), 1, "{kind}");
        echoes(&server, kind).await;
        assert_eq!(
            log(),
            ["start", "initialize", "notifications/initialized", "tools/list", "tools/call"],
            "{kind}"
        );
    }
}

#[tokio::test]
async fn each_version_of_the_protocol_is_spoken() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        for way in ["strict", "picky"] {
            let kind = format!("{way}:{version}");
            let (server, log) = scripted(&kind);
            echoes(&server, &kind).await;
            let starts = log().iter().filter(|line| *line == "start").count();
            assert!(starts <= 5, "{kind}: {:?}", log());
        }
    }
    // Versions that nobody knows here are the server's affair.
    for version in ["2024-10-07", "2031-01-01"] {
        let kind = format!("any:{version}");
        let (server, _log) = scripted(&kind);
        echoes(&server, &kind).await;
    }
}

#[tokio::test]
async fn a_server_that_knows_no_handshake_is_spoken_to_without() {
    for kind in ["modern", "modern-exits"] {
        let (server, log) = scripted(kind);
        echoes(&server, kind).await;
        assert_eq!(
            log().iter().filter(|line| *line == "start").count(),
            2,
            "{kind}: a fresh process for each way"
        );
    }
}

#[tokio::test]
async fn a_server_without_tools_is_there() {
    let (server, _log) = scripted("toolless");
    server.prepare().await;
    assert_eq!(server.tools().len(), 0);
    let text = unavailable(&server).await;
    assert_eq!(text, "The MCP server `every` has no tool `every__echo` any more.");
}

#[tokio::test]
async fn real_servers_of_the_past_are_there() {
    let (node, python) = (variable("ROUNDHOUSE_TEST_MCP_OLD"), variable("ROUNDHOUSE_TEST_MCP_PYTHON"));
    for old in ["server-everything-2024", "server-everything-2025"] {
        let server = server(command("node", &[&format!("{node}/{old}/dist/index.js"), "stdio"]));
        echoes(&server, old).await;
        let sum = call(&server, "every__add", json!({ "a": 2, "b": 3 })).await;
        assert_eq!(sum, ToolOutcome::success("The sum of 2 and 3 is 5."), "{old}");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "here").unwrap();
    let root = folder.path().canonicalize().unwrap().display().to_string();
    let files = server(command("node", &[&format!("{node}/server-filesystem-2024/dist/index.js"), &root]));
    let read = call(&files, "every__read_file", json!({ "path": format!("{root}/a.txt") })).await;
    assert_eq!((read.success, read.text.trim()), (true, "here"));

    // Silent at requests that it does not know.
    let transport = Transport::Command {
        program: "python3".to_owned(),
        args: ["-m", "mcp_server_time", "--local-timezone", "UTC"].map(str::to_owned).to_vec(),
        cwd: "/".into(),
        environment: BTreeMap::from([("PYTHONPATH".to_owned(), python.into())]),
    };
    let time: Settings = patient("every", transport);
    let now = call(&server(time), "every__get_current_time", json!({ "timezone": "UTC" })).await;
    assert!(now.success && now.text.contains("\"timezone\": \"UTC\""), "{now:?}");
}
