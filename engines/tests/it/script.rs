//! A server that answers with what a test wrote down, byte by byte. Shared by the engine's tests and those of the
//! whole program.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What the server does for one request.
pub(crate) type Reply = Vec<Act>;

#[derive(Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    Sleep(Duration),
    /// Does nothing until the client closes the connection, and says so on [`Server::closed`].
    Hold,
    Close,
    /// Says what the request's last message says: what the model was really shown.
    Repeat,
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Value,
    /// Which connection it came over.
    pub(crate) connection: usize,
}

pub(crate) struct Server {
    pub(crate) base_url: String,
    pub(crate) closed: mpsc::UnboundedReceiver<()>,
    requests: Arc<Mutex<Vec<Request>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Answers the first request with the first reply and so on; the last one is for all that follow. The question
    /// which models there are is answered alike, but uses no reply up and is none of the requests.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (said, closed) = mpsc::unbounded_channel();
        let script = Script {
            replies: Arc::new(Mutex::new(replies.into_iter().collect())),
            requests: Arc::default(),
            closed: said,
        };
        let requests = Arc::clone(&script.requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                connections.spawn(script.clone().serve(stream, connection));
            }
        });
        Self { base_url, closed, requests, _tasks: tasks }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    requests: Arc<Mutex<Vec<Request>>>,
    closed: mpsc::UnboundedSender<()>,
}

impl Script {
    async fn serve(self, mut stream: TcpStream, connection: usize) {
        while let Some((head, body)) = read_request(&mut stream).await {
            let reply = if head.starts_with("get ") { self.reply() } else { self.next_reply() };
            let last = body["messages"].as_array().and_then(|messages| messages.last()?["content"].as_str());
            let repeated = says(last.unwrap_or_default());
            if !head.starts_with("get ") {
                self.requests.lock().unwrap().push(Request { head, body, connection });
            }
            let acts = reply.into_iter().flat_map(|act| match act {
                Act::Repeat => repeated.clone(),
                act => vec![act],
            });
            for act in acts {
                match act {
                    Act::Repeat => {}
                    // A client that has heard enough hangs up.
                    Act::Send(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                    }
                    Act::Sleep(time) => tokio::time::sleep(time).await,
                    Act::Hold => {
                        while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
                        let _ = self.closed.send(());
                        return;
                    }
                    Act::Close => return,
                }
            }
        }
    }

    fn reply(&self) -> Reply {
        self.replies.lock().unwrap()[0].clone()
    }

    fn next_reply(&self) -> Reply {
        let mut replies = self.replies.lock().unwrap();
        if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    Some((head, serde_json::from_slice(&bytes[end..]).unwrap_or_default()))
}

/// The head of a streamed answer.
pub(crate) fn head() -> Act {
    head_of("text/event-stream")
}

pub(crate) fn head_of(content_type: &str) -> Act {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n");
    Act::Send(head.into_bytes())
}

/// One piece of the body, which reaches the client as one.
pub(crate) fn piece(bytes: impl AsRef<[u8]>) -> Act {
    let bytes = bytes.as_ref();
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    Act::Send(chunk)
}

/// The orderly end of the body.
pub(crate) fn end() -> Act {
    Act::Send(b"0\r\n\r\n".to_vec())
}

/// A streamed answer in pieces.
pub(crate) fn streamed<B: AsRef<[u8]>>(pieces: impl IntoIterator<Item = B>) -> Reply {
    [head()].into_iter().chain(pieces.into_iter().map(piece)).chain([end()]).collect()
}

/// A streamed answer that says `text` in one piece.
pub(crate) fn says(text: &str) -> Reply {
    let delta = serde_json::json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]});
    streamed([format!("data: {delta}\n\n"), "data: [DONE]\n\n".to_owned()])
}

/// A streamed answer that calls tools: `(id, name, arguments)`.
pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Reply {
    let call = |(index, (id, name, arguments)): (usize, &(&str, &str, &str))| serde_json::json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
    let delta =
        serde_json::json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]});
    streamed([format!("data: {delta}\n\n"), "data: [DONE]\n\n".to_owned()])
}

/// The same answer with the usage that a server reports behind it.
pub(crate) fn using(reply: Reply, input: u64, output: u64) -> Reply {
    let usage =
        serde_json::json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}});
    let mut reply = reply;
    reply.insert(1, piece(format!("data: {usage}\n\n")));
    reply
}

/// A whole answer with a status.
pub(crate) fn status(status: u16, headers: &str, body: &str) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Some\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    vec![Act::Send(head.into_bytes())]
}

/// An address that refuses connections, and nobody else can take while it is held.
pub(crate) fn nobody() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The roles of a request's messages.
pub(crate) fn roles(request: &Value) -> Vec<&str> {
    request["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}
