//! A model that says what it is told to, block by block: what the oracle has no words for. One answer a request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Runs until it is dropped.
pub(crate) struct Model {
    pub(crate) url: String,
    _server: JoinSet<()>,
}

impl Model {
    /// With these answers, each a message's blocks, in the order in which they are asked for.
    pub(crate) async fn start(answers: impl IntoIterator<Item = Vec<Value>>) -> Self {
        let answers: VecDeque<_> = answers.into_iter().collect();
        let answers = Arc::new(Mutex::new(answers));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&answers)));
            }
        });
        Self { url, _server: server }
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(crate) fn thinking(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": "c2lnbmVk"})
}

/// A call of a tool.
pub(crate) fn call(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// A call of the shell.
pub(crate) fn shell(id: &str, command: &str) -> Value {
    call(id, "Bash", &json!({"command": command, "description": "a test", "timeout": 600_000}))
}

async fn answer(stream: TcpStream, answers: Arc<Mutex<VecDeque<Vec<Value>>>>) {
    let mut stream = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while stream.read_line(&mut line).await.unwrap() > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let blocks = answers.lock().unwrap().pop_front().unwrap_or_else(|| vec![text("no answer is left")]);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all((head.to_owned() + &events(&blocks)).as_bytes()).await.unwrap();
}

/// The events of a message.
fn events(blocks: &[Value]) -> String {
    let calls = blocks.iter().any(|block| block["type"] == "tool_use");
    let usage = json!({"input_tokens": 7, "output_tokens": 5});
    let message = json!({
        "id": format!("msg_{}", uuid::Uuid::now_v7().simple()), "type": "message", "role": "assistant",
        "model": "claude-opus-5-5", "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in blocks.iter().enumerate() {
        let (start, deltas) = pieces(block);
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let stop = if calls { "tool_use" } else { "end_turn" };
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    let event = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.into_iter().map(event).collect()
}

/// How a block begins, and what is added to it.
fn pieces(block: &Value) -> (Value, Vec<Value>) {
    let mut start = block.clone();
    let deltas = match block["type"].as_str().unwrap() {
        "text" => {
            start["text"] = "".into();
            vec![json!({"type": "text_delta", "text": block["text"]})]
        }
        "thinking" => {
            (start["thinking"], start["signature"]) = ("".into(), "".into());
            vec![
                json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                json!({"type": "signature_delta", "signature": block["signature"]}),
            ]
        }
        _ => {
            start["input"] = json!({});
            vec![json!({"type": "input_json_delta", "partial_json": block["input"].to_string()})]
        }
    };
    (start, deltas)
}
