//! What gateways do between us and a server over HTTP.

use roundhouse_engines::tools::{ToolOutcome, ToolSource};
use serde_json::json;

use super::gateway::Gateway;
use super::served::start;
use super::support::{KEY, at, call, echo, unavailable};

#[tokio::test]
async fn a_call_that_is_refused_with_a_status_was_not_carried_out_and_the_next_one_is() {
    let (_process, port) = start(None).await;
    let gateway = Gateway::before(port).await;
    let server = at(gateway.port);
    echo(&server, "before").await;
    let beginnings = || gateway.heads().iter().filter(|head| !head.contains("mcp-session-id")).count();
    let begun = beginnings();

    for status in
        ["429 Too Many Requests", "500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable"]
    {
        gateway.answer_next(status, "retry-after: 3600\r\ncontent-type: text/plain\r\n", "not now");

        let refused = call(&server, "every__echo", json!({ "message": "?" })).await;

        assert!(!refused.success, "{refused:?}");
        assert!(refused.text.starts_with("The MCP server `every` has refused the call: "), "{refused:?}");
        assert!(refused.text.contains(&status[..3]), "{refused:?}");
        assert!(!refused.text.contains(KEY) && !refused.text.contains("127.0.0.1"), "{refused:?}");
        echo(&server, "after").await;
    }
    assert_eq!(beginnings(), begun, "the connection was good all the while");
}

#[tokio::test]
async fn a_server_that_refuses_to_begin_is_unavailable_and_says_why() {
    let (_process, port) = start(None).await;
    for status in ["429 Too Many Requests", "503 Service Unavailable", "401 Unauthorized"] {
        let gateway = Gateway::before(port).await;
        for _ in 0..8 {
            gateway.answer_next(status, "content-type: text/plain\r\n", "not now");
        }
        let server = at(gateway.port);

        let text = unavailable(&server).await;

        assert!(text.starts_with("The MCP server `every` is unavailable: "), "{text}");
        assert!(text.contains(&status[..3]), "{text}");
        assert!(!text.contains(KEY), "{text}");
    }
}

#[tokio::test]
async fn a_redirect_within_the_server_is_followed() {
    let (_process, port) = start(None).await;
    let gateway = Gateway::before(port).await;
    let server = at(gateway.port);
    echo(&server, "before").await;
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        gateway.answer_next(status, "location: /moved/mcp\r\n", "");

        let sum = call(&server, "every__get-sum", json!({ "a": 2, "b": 3 })).await;

        assert_eq!(sum, ToolOutcome::success("The sum of 2 and 3 is 5."), "{status}");
    }
    let moved: Vec<_> =
        gateway.heads().into_iter().filter(|head| head.starts_with("post /moved/mcp ")).collect();
    assert_eq!(moved.len(), 2);
    assert!(moved.iter().all(|head| head.contains(KEY)));
}

#[tokio::test]
async fn a_redirect_to_another_server_is_not_followed_and_no_key_goes_there() {
    let (_process, port) = start(None).await;
    let (gateway, elsewhere) = (Gateway::before(port).await, Gateway::before(port).await);
    let server = at(gateway.port);
    echo(&server, "before").await;
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let location = format!("location: http://127.0.0.1:{}/mcp\r\n", elsewhere.port);
        gateway.answer_next(status, &location, "");

        let refused = call(&server, "every__echo", json!({ "message": "?" })).await;

        let says = "The MCP server `every` has refused the call: it redirects to another server, and its keys are not for that";
        assert_eq!(refused, ToolOutcome::failure(says), "{status}");
        echo(&server, "after").await;
    }
    assert_eq!(elsewhere.heads(), Vec::<String>::new());
    assert!(server.tools().iter().any(|tool| tool.name == "every__echo"));
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let (_process, port) = start(None).await;
    let gateway = Gateway::before(port).await;
    let server = at(gateway.port);
    echo(&server, "before").await;
    for _ in 0..20 {
        gateway.answer_next("307 Temporary Redirect", "location: /mcp\r\n", "");
    }
    let before = gateway.heads().len();

    let refused = call(&server, "every__echo", json!({ "message": "?" })).await;

    let says = "The MCP server `every` has refused the call: it redirects again and again";
    assert_eq!(refused, ToolOutcome::failure(says));
    assert_eq!(gateway.heads().len() - before, 5);
}
