//! Sources of tools that have to get ready for a turn, as MCP servers have to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use roundhouse_engines::contract::Engine;
use roundhouse_engines::mcp;
use roundhouse_engines::openai::Settings;
use roundhouse_engines::tools::{ToolContext, ToolOutcome, ToolSource, ToolSpec};
use serde_json::{Value, json};

use crate::script::{Server, calls, says, using};
use crate::turns::{engine, settings, turn};

/// Has one tool more each time that it got ready.
#[derive(Default)]
struct Late(AtomicU32);

#[async_trait]
impl ToolSource for Late {
    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |number| ToolSpec {
            name: format!("late{number}"),
            description: String::new(),
            input_schema: json!({}),
        };
        (0..self.0.load(Ordering::Relaxed)).map(spec).collect()
    }

    async fn prepare(&self) {
        tokio::task::yield_now().await;
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    async fn call(&self, name: &str, _: Value, _: &ToolContext) -> ToolOutcome {
        ToolOutcome::success(format!("{name} ran"))
    }
}

#[tokio::test]
async fn sources_get_ready_once_a_turn() {
    let server = Server::start([calls(&[("a", "late0", "")]), says("one"), says("two")]).await;
    let late = Arc::new(Late::default());
    let sources: Vec<Arc<dyn ToolSource>> = vec![Arc::<Late>::clone(&late)];
    let settings = Settings { sources, ..settings(&server.base_url) };

    let events = turn(settings.clone()).await;
    turn(settings).await;

    assert!(events.contains(&"late0 did a: late0 ran".to_owned()), "{events:?}");
    let offered: Vec<_> =
        server.requests().iter().map(|request| request.body["tools"].as_array().unwrap().len()).collect();
    assert_eq!(offered, [1, 1, 2]);
}

/// An agent whose only tools are those of an MCP server that is not there.
fn without_its_server(server: &Server) -> Settings {
    let transport = mcp::Transport::Command {
        program: "no-such-program-here".to_owned(),
        args: Vec::new(),
        cwd: "/".into(),
        environment: BTreeMap::new(),
    };
    let missing = mcp::Server::new(mcp::Settings::new("missing", transport)).unwrap();
    Settings { sources: vec![Arc::new(missing)], ..settings(&server.base_url) }
}

#[tokio::test]
async fn an_mcp_server_that_is_not_there_offers_nothing_and_fails_no_turn() {
    let server = Server::start([says("hi")]).await;
    let settings = without_its_server(&server);
    assert!(!engine(settings.clone()).capabilities().works_on_files);

    let events = turn(settings).await;

    assert!(events.iter().any(|event| event == "delta hi"), "{events:?}");
    assert_eq!(server.requests()[0].body.get("tools"), None);
}

#[tokio::test]
async fn a_call_of_a_tool_whose_server_is_not_there_is_told_to_the_model() {
    let called = using(calls(&[("a", "missing__read", "{}")]), 10, 2);
    let server = Server::start([called, using(says("hi"), 20, 1)]).await;

    let events = turn(without_its_server(&server)).await;

    let told = "There is no tool `missing__read`. There are none now.";
    assert!(events.contains(&format!("missing__read failed a: {told}")), "{events:?}");
    assert_eq!(events.last().unwrap(), "done after 2 used 30+0 in, 3 out, 0 thinking");
    assert_eq!(server.requests()[1].body["messages"][2]["content"], told);
}

#[tokio::test]
async fn a_model_that_goes_on_calling_it_is_ended_by_the_limit() {
    let server = Server::start([calls(&[("a", "missing__read", "{}")])]).await;

    let events = turn(Settings { max_iterations: 3, ..without_its_server(&server) }).await;

    let limit = "failed: the turn was ended: it has made 3 model calls, and max_iterations allows no more";
    assert_eq!(events.last().unwrap(), limit);
    assert_eq!(server.requests().len(), 3);
}
