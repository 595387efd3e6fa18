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

use crate::script::{Server, calls, says};
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

#[tokio::test]
async fn an_mcp_server_that_is_not_there_offers_nothing_and_fails_no_turn() {
    let server = Server::start([says("hi")]).await;
    let transport = mcp::Transport::Command {
        program: "no-such-program-here".to_owned(),
        args: Vec::new(),
        cwd: "/".into(),
        environment: BTreeMap::new(),
    };
    let missing = mcp::Server::new(mcp::Settings::new("missing", transport)).unwrap();
    let settings = Settings { sources: vec![Arc::new(missing)], ..settings(&server.base_url) };
    assert!(!engine(settings.clone()).capabilities().works_on_files);

    let events = turn(settings).await;

    assert!(events.iter().any(|event| event == "delta hi"), "{events:?}");
    assert_eq!(server.requests()[0].body.get("tools"), None);
}
