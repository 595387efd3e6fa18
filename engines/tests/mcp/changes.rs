//! Servers whose tools change while they are connected (`notifications/tools/list_changed`).

use std::time::Duration;

use roundhouse_engines::mcp::Server;
use roundhouse_engines::tools::{ToolOutcome, ToolSource};
use serde_json::json;
use tokio::time::timeout;

use super::served::{everything, start_script};
use super::support::{at, call, command, server};

/// Longer than anything here takes.
const TOO_LONG: Duration = Duration::from_mins(1);

/// A server of the official SDK that gets a new tool with each call of `grow`.
const GROWS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/grows.cjs");

fn names(server: &Server) -> Vec<String> {
    server.tools().into_iter().map(|tool| tool.name).collect()
}

/// Has the server grow until a turn that begins sees it: what is told while nobody listens yet is lost. Returns the
/// newest tool.
async fn grown(server: &Server) -> String {
    let growing = async {
        loop {
            let grown = call(server, "every__grow", json!({})).await;
            assert!(grown.success, "{grown:?}");
            for _ in 0..20 {
                server.prepare().await;
                let name = format!("every__{}", grown.text);
                if names(server).contains(&name) {
                    return name;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    timeout(TOO_LONG, growing).await.expect("a new tool in time")
}

async fn is_offered_what_is_new(server: Server) {
    server.prepare().await;
    assert_eq!(names(&server), ["every__grow"]);

    let name = grown(&server).await;

    let said = name.replacen("every__", "I am ", 1);
    assert_eq!(call(&server, &name, json!({})).await, ToolOutcome::success(said));
}

#[tokio::test]
async fn new_tools_are_offered_from_the_next_turn_on() {
    is_offered_what_is_new(server(command("node", &[GROWS, &everything()]))).await;
}

#[tokio::test]
async fn new_tools_are_offered_from_the_next_turn_on_over_http() {
    let (_process, port) = start_script(&[GROWS, &everything()], None).await;
    is_offered_what_is_new(at(port)).await;
}
