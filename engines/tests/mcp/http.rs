//! A server over streamable HTTP.

use std::time::Duration;

use roundhouse_engines::tools::{ToolOutcome, ToolSource};
use serde_json::json;

use super::served::start;
use super::support::{at, call, echo, unavailable};

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
