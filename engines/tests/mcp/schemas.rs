//! Lists of tools with entries that are no tools, or whose schemas no provider takes.

use std::collections::BTreeMap;

use roundhouse_engines::mcp::{Server, Transport};
use roundhouse_engines::tools::ToolSource;
use serde_json::{Value, json};

use super::support::{patient, server};

const SCRIPTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/scripted.cjs");

/// A server of this kind that lists these.
async fn listing(kind: &str, tools: &Value) -> Server {
    let transport = Transport::Command {
        program: "node".to_owned(),
        args: vec![SCRIPTED.to_owned(), kind.to_owned()],
        cwd: "/".into(),
        environment: BTreeMap::from([("TOOLS".to_owned(), tools.to_string().as_str().into())]),
    };
    let server = server(patient("every", transport));
    server.prepare().await;
    server
}

fn offered(server: &Server) -> Vec<String> {
    server.tools().into_iter().map(|tool| tool.name).collect()
}

fn left_out(server: &Server) -> Vec<(String, String)> {
    server.left_out().into_iter().map(|tool| (tool.tool, tool.reason)).collect()
}

#[tokio::test]
async fn a_bad_tool_takes_no_other_with_it() {
    let good =
        json!({"name": "good", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let tools = json!([
        good,
        {"name": "bare"},
        {"name": "null", "inputSchema": null, "description": 5},
        {"name": "refers", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}},
        {"name": "text", "inputSchema": {"type": "string"}},
        {"name": "good", "inputSchema": {}},
        {"name": "one.of", "inputSchema": {"oneOf": [{"type": "object"}]}},
        {"name": ""},
        {"title": "nameless"},
        {"name": 5},
        "nonsense",
        null,
        {"name": "last/one", "inputSchema": {"properties": {"b": true}}, "annotations": "none", "icons": 7}
    ]);
    for kind in ["error", "modern"] {
        let server = listing(kind, &tools).await;

        assert_eq!(
            offered(&server),
            ["every__good", "every__bare", "every__null", "every__last_one"],
            "{kind}"
        );
        for tool in server.tools() {
            assert_eq!(tool.input_schema["type"], "object", "{kind}");
            assert!(tool.input_schema["properties"].is_object(), "{kind}");
        }
        let left_out = left_out(&server);
        let names: Vec<_> = left_out.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["refers", "text", "good", "one.of", "#7", "#8", "#9", "#10", "#11"], "{kind}");
        assert!(left_out[0].1.contains("leads nowhere"), "{left_out:?}");
        assert!(left_out[2].1.contains("another tool"), "{left_out:?}");
        assert!(left_out[4].1.contains("no name"), "{left_out:?}");
    }
}

#[tokio::test]
async fn a_list_in_pages_is_whole_and_one_without_end_ends() {
    let tools: Value = (0..5).map(|n| json!({"name": format!("t{n}"), "inputSchema": {}})).collect();
    let server = listing("paged", &tools).await;
    assert_eq!(offered(&server), ["every__t0", "every__t1", "every__t2", "every__t3", "every__t4"]);
    // Each page names the same next one.
    let server = listing("pages", &tools).await;
    assert_eq!(offered(&server).len(), 5);
    assert_eq!(left_out(&server).len(), 5);
}

#[tokio::test]
async fn no_more_tools_than_a_model_can_be_told_of_are_offered() {
    let tools: Value = (0..300).map(|n| json!({"name": format!("t{n}")})).collect();
    let server = listing("error", &tools).await;
    assert_eq!(offered(&server).len(), 256);
    assert_eq!(left_out(&server).len(), 1);
    assert!(left_out(&server)[0].1.contains("256"));
}

#[tokio::test]
async fn what_is_no_list_is_said() {
    for tools in [json!("tools"), json!({"name": "echo"}), json!(7)] {
        let server = listing("error", &tools).await;
        assert_eq!(offered(&server), Vec::<String>::new(), "{tools}");
        let text = super::support::unavailable(&server).await;
        assert!(text.contains("its list of tools is no list"), "{text}");
    }
}
