//! A server over its standard streams: what it lists and answers.

use std::time::Duration;

use roundhouse_engines::mcp::Settings;
use roundhouse_engines::tools::{ToolOutcome, ToolSource};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{call, call_until, echo, environment, processes, real, server, until_gone};

#[tokio::test]
async fn tools_are_listed_with_the_servers_prefix_and_without_a_dialect() {
    let server = server(real());
    assert_eq!(server.tools(), [], "nobody has asked for them");

    server.prepare().await;

    let tools = server.tools();
    assert!(tools.iter().all(|tool| tool.name.starts_with("every__")), "{tools:?}");
    assert!(tools.iter().all(|tool| tool.input_schema.get("$schema").is_none()), "{tools:?}");
    let echo = tools.iter().find(|tool| tool.name == "every__echo").unwrap();
    assert_eq!(echo.description, "Echoes back the input string");
    assert_eq!(echo.input_schema["required"], json!(["message"]));
}

#[tokio::test]
async fn calls_are_answered_and_connect_by_themselves() {
    let server = server(real());
    echo(&server, "hello").await;
    let sum = call(&server, "every__get-sum", json!({ "a": 2, "b": 3 })).await;
    assert_eq!(sum, ToolOutcome::success("The sum of 2 and 3 is 5."));
}

#[tokio::test]
async fn what_is_no_text_is_described() {
    let server = server(real());
    let image = call(&server, "every__get-tiny-image", json!({})).await;
    assert!(image.success && image.text.contains("[image, image/png, "), "{image:?}");
    let links = call(&server, "every__get-resource-links", json!({ "count": 2 })).await;
    assert!(links.success && links.text.contains("[link to the resource "), "{links:?}");
}

#[tokio::test]
async fn errors_are_failures_that_say_why() {
    let server = server(real());
    let wrong = call(&server, "every__get-sum", json!({ "a": "many" })).await;
    assert!(!wrong.success && wrong.text.contains("number"), "{wrong:?}");
    let unknown = call(&server, "every__nothing", json!({})).await;
    assert_eq!(
        unknown,
        ToolOutcome::failure("The MCP server `every` has no tool `every__nothing` any more.")
    );
    echo(&server, "still here").await;
}

#[tokio::test]
async fn the_environment_is_the_allowed_one_and_the_configured_one() {
    let environment = environment(&server(real())).await;
    assert_eq!(environment["PLANET"], "Saturn");
    assert!(!environment.contains_key("ROUNDHOUSE_TEST_MCP_EVERYTHING"), "{environment:?}");
    assert!(!environment.keys().any(|name| name.starts_with("CARGO")), "{environment:?}");
}

#[tokio::test]
async fn a_call_that_takes_too_long_fails_and_the_server_stays() {
    let server = server(Settings { call_timeout: Duration::from_millis(300), ..real() });
    server.prepare().await;
    let input = json!({ "duration": 3600, "steps": 1 });

    let outcome = call(&server, "every__trigger-long-running-operation", input).await;

    assert_eq!(
        outcome,
        ToolOutcome::failure("The tool did not answer within 300ms, and the call was cancelled.")
    );
    assert!(!server.tools().is_empty());
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_the_server_stays() {
    let server = server(real());
    server.prepare().await;
    let cancel = CancellationToken::new();
    let input = json!({ "duration": 3600, "steps": 1 });
    let long = call_until(&server, "every__trigger-long-running-operation", input, cancel.clone());

    let (outcome, ()) = tokio::join!(long, async {
        echo(&server, "meanwhile").await;
        cancel.cancel();
    });

    assert_eq!(outcome, ToolOutcome::failure("The call was cancelled."));
    echo(&server, "afterwards").await;
}

#[tokio::test]
async fn nothing_is_left_of_a_server_that_is_dropped() {
    let server = server(real());
    let found = processes(&server).await;

    drop(server);

    until_gone(&found).await;
}
