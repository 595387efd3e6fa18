//! Servers that end.

use std::time::Duration;

use roundhouse_engines::mcp::Settings;
use roundhouse_engines::tools::ToolSource;
use serde_json::json;

use super::support::{call, command, echo, kill, processes, real, server, unavailable};

#[tokio::test]
async fn a_server_that_has_died_is_started_again_once() {
    let server = server(real());
    let before = processes(&server).await;

    kill(&server).await;

    echo(&server, "again").await;
    assert_ne!(processes(&server).await, before);

    kill(&server).await;

    let says = "The MCP server `every` is unavailable: it ended again soon after it was started anew";
    assert_eq!(unavailable(&server).await, says);
    assert_eq!(unavailable(&server).await, says, "nothing is started before the back-off is over");
    server.prepare().await;
    assert!(server.tools().iter().any(|tool| tool.name == "every__echo"), "its tools stay, to say so");
}

#[tokio::test]
async fn after_the_back_off_it_is_tried_again() {
    let server = server(Settings { back_off: Duration::ZERO, ..real() });
    for round in 0..3 {
        echo(&server, &format!("round {round}")).await;
        kill(&server).await;
    }
    server.prepare().await;
    echo(&server, "at last").await;
}

#[tokio::test]
async fn a_death_during_a_call_says_that_the_call_may_have_been_carried_out() {
    let server = server(real());
    server.prepare().await;
    let input = json!({ "duration": 3600, "steps": 1 });
    let long = call(&server, "every__trigger-long-running-operation", input);

    let (outcome, ()) = tokio::join!(long, kill(&server));

    assert!(!outcome.success);
    let says = "The connection to the MCP server `every` broke during the call, which may or may not";
    assert!(outcome.text.starts_with(says), "{outcome:?}");
    echo(&server, "again").await;
}

#[tokio::test]
async fn an_unknown_command_is_unavailable() {
    let server = server(command("no-such-program-here", &[]));

    server.prepare().await;

    assert_eq!(server.tools(), []);
    let says = "The MCP server `every` is unavailable: the program no-such-program-here was not found";
    assert_eq!(unavailable(&server).await, says);
}

#[tokio::test]
async fn a_program_that_ends_at_once_is_unavailable() {
    for script in ["exit 3", "echo nonsense; exit 0", "echo '{}'"] {
        let server = server(command("sh", &["-c", script]));
        let says =
            "The MCP server `every` is unavailable: it was started, and did not answer as an MCP server does";
        let text = unavailable(&server).await;
        assert!(text.starts_with(says), "{script}: {text}");
    }
}
