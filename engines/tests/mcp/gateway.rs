//! Stands between us and a server over HTTP, and does what gateways do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A gateway; gone with this.
pub(crate) struct Gateway {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    /// What the next `POST`s are answered with, in the place of the server.
    answers: Mutex<VecDeque<String>>,
    /// The head of every request that came.
    heads: Mutex<Vec<String>>,
}

impl Gateway {
    /// Passes everything on to the server on this port.
    pub(crate) async fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let shared = Arc::clone(&shared);
            async move {
                let mut connections = JoinSet::new();
                loop {
                    let (client, _) = listener.accept().await.unwrap();
                    connections.spawn(pass(client, upstream, Arc::clone(&shared)));
                }
            }
        });
        Self { port, shared, _tasks: tasks }
    }

    /// Answers the next `POST` itself, with this status line, these headers and this body.
    pub(crate) fn answer_next(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        self.shared.answers.lock().unwrap().push_back(answer);
    }

    /// The heads of all requests so far, in small letters.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap().clone()
    }
}

/// One request a connection. A client that hangs up, or a server that is gone, ends it.
async fn pass(mut client: TcpStream, upstream: u16, shared: Arc<Shared>) -> Option<()> {
    let (head, body) = request(&mut client).await?;
    shared.heads.lock().unwrap().push(head.to_ascii_lowercase());
    let answer = if head.starts_with("POST") { shared.answers.lock().unwrap().pop_front() } else { None };
    if let Some(answer) = answer {
        return client.write_all(answer.as_bytes()).await.ok();
    }
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await.ok()?;
    // A path of the gateway's own is the server's too.
    let head = head.replacen(" /moved/mcp ", " /mcp ", 1).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    server.write_all(head.as_bytes()).await.ok()?;
    server.write_all(&body).await.ok()?;
    // The server says that it keeps a connection which it closes.
    let (head, begun) = head_of(&mut server).await?;
    let head = head.replace("onnection: keep-alive", "onnection: close");
    client.write_all(head.as_bytes()).await.ok()?;
    client.write_all(&begun).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
}

async fn request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (head, mut body) = head_of(client).await?;
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    while body.len() < length.unwrap_or(0) {
        if client.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}

/// The head of a message, and what has come of its body.
async fn head_of(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let body = bytes.split_off(end);
    Some((String::from_utf8(bytes).unwrap(), body))
}
