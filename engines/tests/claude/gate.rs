//! Tools of the CLI that carry commands or paths: the rules decide them all.

use std::fmt::Write as _;

use roundhouse_engines::claude::Settings;
use roundhouse_engines::contract::{Asked, EngineEvent};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::host::{Host, permissions};

/// A model that calls one tool, and then says `done`.
struct Model {
    url: String,
    _serving: JoinSet<()>,
}

impl Model {
    async fn calling(tool: &'static str, input: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(answer(stream, tool, input.clone()));
            }
        });
        Self { url, _serving: serving }
    }
}

async fn answer(stream: TcpStream, tool: &str, input: Value) {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let body = String::from_utf8_lossy(&body);
    let (block, delta, stop) = if body.contains("tool_result") || !body.contains("please") {
        (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": "done"}), "end_turn")
    } else {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}});
        (block, json!({"type": "input_json_delta", "partial_json": input.to_string()}), "tool_use")
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5",
        "content": [], "stop_reason": null, "usage": usage});
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}),
        json!({"type": "message_stop"}),
    ];
    let mut answer =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned();
    for event in events {
        write!(answer, "event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()).unwrap();
    }
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// What becomes of a call under these rules: the result of the tool, or what is asked.
async fn called(rules: Value, tool: &'static str, input: Value) -> String {
    let host = Host::new().await;
    std::fs::create_dir(host.path("work").join(".git")).unwrap();
    let model = Model::calling(tool, input).await;
    let mut settings = Settings { permissions: permissions(rules), ..host.settings() };
    settings.closed = vec![host.path("config")];
    settings.env.insert("ANTHROPIC_BASE_URL".to_owned(), model.url.as_str().into());
    settings.env.insert("ENABLE_TOOL_SEARCH".to_owned(), "false".into());
    let mut session = host.open_with(settings, None).await;
    session.send("please").await;
    let is_end = |event: &EngineEvent| event.ends_turn() || matches!(event, EngineEvent::Asked { .. });
    let events = session.until(is_end).await;
    let seen = match events.last() {
        Some(EngineEvent::Asked { asked: Asked::Permission { call }, .. }) => format!("asked {}", call.name),
        _ => events
            .iter()
            .find_map(|event| match event {
                EngineEvent::ToolDone { result, .. } => Some(result.clone()),
                _ => None,
            })
            .unwrap_or_else(|| panic!("{events:?}")),
    };
    assert!(!host.path("work").join("made").exists(), "{tool}: {seen}");
    assert!(!host.path("work").join(".git/config").exists(), "{tool}: {seen}");
    session.close().await;
    seen
}

#[tokio::test]
async fn the_rules_of_the_shell_decide_every_tool_that_carries_a_command() {
    let command = json!({"command": "timeout 5 touch made", "description": "d", "timeout_ms": 5000});
    for tool in ["Monitor", "Bash"] {
        let denied = called(json!({"deny": ["Bash(touch)"]}), tool, command.clone()).await;
        assert!(denied.contains("is not permitted"), "{tool}: {denied}");
        let asked = called(json!({"ask": ["Bash"]}), tool, command.clone()).await;
        assert_eq!(asked, format!("asked {tool}"));
    }
}

#[tokio::test]
async fn a_tool_that_is_not_known_is_asked_about() {
    let cron = json!({"cron": "0 0 1 1 *", "prompt": "touch made", "recurring": false});
    assert_eq!(called(json!({"deny": ["WebFetch"]}), "CronCreate", cron).await, "asked CronCreate");
}

#[tokio::test]
async fn file_tools_write_to_no_repositorys_folder_and_read_nothing_of_the_data_directory() {
    for path in [".git/config", "./a/../.GIT/config"] {
        let input = json!({"file_path": path, "content": "x"});
        let refused = called(json!({}), "Write", input).await;
        assert!(refused.contains("do not write to `.git`"), "{path}: {refused}");
    }
    let home = json!({"file_path": "../config/.claude.json"});
    let refused = called(json!({"allow": ["Read"]}), "Read", home).await;
    assert!(refused.contains("data directory"), "{refused}");
    let outside = called(
        json!({"default": "ask", "allow": ["Read(./**)"]}),
        "Read",
        json!({"file_path": "/etc/hostname"}),
    );
    assert_eq!(outside.await, "asked Read");
}
