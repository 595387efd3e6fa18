//! Native sessions: copies and deletions; and what is given to the CLI.

use std::path::PathBuf;

use roundhouse_engines::claude::{ClaudeCli, Settings};
use roundhouse_engines::contract::{Engine, EngineEvent, Fork, Native};
use roundhouse_engines::mcp::{self, Transport};
use uuid::Uuid;

use crate::host::{Host, is_running};

#[tokio::test]
async fn a_copy_up_to_a_message_remembers_up_to_it_and_outlives_its_source() {
    let host = Host::new().await;
    let engine = ClaudeCli::new(host.settings()).unwrap();
    let mut session = host.open().await;
    session.send("X = 5").await;
    let first = session.rest().await;
    let anchor = first.iter().find_map(|event| match event {
        EngineEvent::MessageDone(message) => message.anchor.clone(),
        _ => None,
    });
    let at = anchor.expect("an anchor");
    session.chat("add 1 to x").await;
    let native = |id: String| Native { id, cwd: host.path("work") };
    let (source, into) = (native(session.native()), native(Uuid::now_v7().to_string()));
    session.close().await;

    let fork = Fork { source: source.clone(), at: at.clone(), into: into.clone(), title: None };
    let forked = engine.fork(fork.clone()).await.unwrap();
    assert!(forked.anchors.contains_key(&at), "{forked:?}");
    assert_eq!(host.resume(&source.id).await.chat("what is X").await, "X = 6");
    engine.delete(source.clone()).await.unwrap();
    assert_eq!(host.resume(&into.id).await.chat("what is X").await, "X = 5");
    let gone = engine.fork(Fork { into: native(Uuid::now_v7().to_string()), ..fork }).await;
    assert!(gone.is_err(), "{gone:?}");
}

#[tokio::test]
async fn mcp_servers_are_the_clis_and_their_keys_are_seen_by_nobody() {
    let host = Host::new().await;
    let server = std::env::var_os("ROUNDHOUSE_TEST_MCP_EVERYTHING")
        .expect("ROUNDHOUSE_TEST_MCP_EVERYTHING names the MCP server; `cargo xtask services` sets it");
    let server = Transport::Command {
        program: "node".to_owned(),
        args: vec![server.into_string().unwrap(), "stdio".to_owned()],
        cwd: PathBuf::new(),
        environment: [("KEY".to_owned(), "a-secret-key".into())].into(),
    };
    let mut settings = Settings { mcp: vec![mcp::Settings::new("everything", server)], ..host.settings() };
    settings.env.insert("ENABLE_TOOL_SEARCH".to_owned(), "false".into());
    let mut session = host.open_with(settings, None).await;
    // It may still be connecting during the first turns.
    let offered = async {
        loop {
            session.chat("say hi").await;
            let tools = host.requests().last().unwrap().json()["tools"].to_string();
            if tools.contains("mcp__everything__echo") {
                return;
            }
        }
    };
    tokio::time::timeout(crate::host::TOO_LONG, offered).await.expect("the server's tools");
    assert!(!is_running("a-secret-key"));
    let mut files = std::fs::read_dir(host.path("config")).unwrap().map(|file| file.unwrap().file_name());
    let is_left = files.any(|name| name.to_string_lossy().starts_with("mcp-"));
    assert!(!is_left, "the file with the key was read, and is deleted");
    session.close().await;
}
