//! A server over streamable HTTP.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use roundhouse_engines::mcp::{Server, Transport};
use roundhouse_engines::process::{Environment, Process, Spec};
use roundhouse_engines::tools::{ToolOutcome, ToolSource};
use serde_json::json;

use super::support::{call, echo, everything, patient, server, unavailable};

/// Starts the real server on a port; a port that was free may be taken when it starts.
async fn start(port: Option<u16>) -> (Process, u16) {
    loop {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let chosen = port.unwrap_or_else(free);
        let set = vec![("PORT".into(), chosen.to_string().into())];
        let mut process = Process::spawn(Spec {
            args: vec![everything().into(), "streamableHttp".into()],
            environment: Environment { pass: Vec::new(), set },
            ..Spec::new("node", "/")
        })
        .unwrap();
        loop {
            if process.stderr_tail().contains("listening on port") {
                // Nobody reads its output, which is a few lines and fits into the pipe.
                return (process, chosen);
            }
            if process.has_exited() {
                assert!(process.stderr_tail().contains("already in use"), "{}", process.stderr_tail());
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn at(port: u16) -> Server {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://127.0.0.1:{port}/mcp");
    server(patient("every", Transport::Http { url, headers: BTreeMap::new() }))
}

#[tokio::test]
async fn a_server_over_http_lists_and_answers() {
    let (_process, port) = start(None).await;
    let server = at(port);

    server.prepare().await;

    assert!(server.tools().iter().any(|tool| tool.name == "every__get-sum"));
    echo(&server, "over HTTP").await;
    let sum = call(&server, "every__get-sum", json!({ "a": 2, "b": 3 })).await;
    assert_eq!(sum, ToolOutcome::success("The sum of 2 and 3 is 5."));
    assert!(!server.works_on_files());
}

#[tokio::test]
async fn a_server_that_was_started_anew_is_found_again() {
    let (mut process, port) = start(None).await;
    let server = at(port);
    echo(&server, "before").await;
    process.end(Duration::ZERO).await;

    let (_process, _) = start(Some(port)).await;

    echo(&server, "after").await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable() {
    let (mut process, port) = start(None).await;
    let server = at(port);
    echo(&server, "before").await;

    process.end(Duration::ZERO).await;

    // A call on a connection of before may not know yet.
    let _ = unavailable(&server).await;
    let text = unavailable(&server).await;
    assert!(text.starts_with("The MCP server `every` is unavailable: "), "{text}");
    assert!(!text.contains(&port.to_string()), "the address may hold a key: {text}");
}
