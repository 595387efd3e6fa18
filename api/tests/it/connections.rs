//! Clients that send slowly, send half, or are too many, over real connections; and HTTP/2 without an upgrade.

use std::net::SocketAddr;

use roundhouse_api::Settings;
use roundhouse_shared::units::Span;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Api, Options, within};

async fn served(settings: Settings) -> (Api, SocketAddr) {
    let (app, api) = Api::app(Options { settings, ..Options::default() }).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(api.lifecycle.spawn(roundhouse_api::serve(listener, app)));
    (api, address)
}

fn impatient(connections: u64) -> Settings {
    Settings { head_timeout: Span::from_millis(300), open_files: 2 * connections, ..Settings::default() }
}

async fn send(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Waits until the server has closed a connection, and returns what it has sent on it.
async fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = within(stream.read_to_end(&mut bytes)).await;
    bytes
}

async fn healthy(address: SocketAddr) -> String {
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    String::from_utf8(closed(send(address, &request).await).await).unwrap()
}

#[tokio::test]
async fn a_half_sent_head_ends_its_connection_and_so_does_silence() {
    let (_api, address) = served(impatient(100)).await;
    for half in ["", "G", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n", "PRI * HTTP/2.0\r\n", "POST /"] {
        let sent = closed(send(address, half).await).await;
        assert!(!sent.starts_with(b"HTTP/1.1 2"), "{half:?}");
    }
    assert!(healthy(address).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_has_no_more_time() {
    let (_api, address) = served(impatient(100)).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let dripped = async {
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(dripped).await;
}

#[tokio::test]
async fn a_connection_between_two_requests_is_not_hurried() {
    let (_api, address) = served(impatient(100)).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = [0; 4096];
        let read = within(stream.read(&mut bytes)).await.unwrap();
        assert!(bytes[..read].starts_with(b"HTTP/1.1 200"));
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    }
}

#[tokio::test]
async fn half_sent_requests_in_every_place_keep_nobody_out() {
    // Nothing times out here: room is made for who comes.
    let settings = Settings { head_timeout: Span::from_secs(3_600), ..impatient(8) };
    let (_api, address) = served(settings).await;
    let mut half = Vec::new();
    for _ in 0..40 {
        half.push(send(address, "GET /healthz HTTP/1.1\r\n").await);
    }
    for _ in 0..10 {
        assert!(healthy(address).await.starts_with("HTTP/1.1 200"));
    }
    drop(half);
}

#[tokio::test]
async fn a_running_stream_is_not_closed_to_make_room() {
    let (api, address) = served(impatient(4)).await;
    let session = api.session_without_client().await;
    let request = format!("GET /sessions/{session}/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut stream = send(address, &request).await;
    let mut bytes = [0; 4096];
    let read = within(stream.read(&mut bytes)).await.unwrap();
    assert!(bytes[..read].starts_with(b"HTTP/1.1 200"));
    let half: Vec<_> = futures::future::join_all((0..20).map(|_| send(address, "GET /"))).await;
    assert!(healthy(address).await.starts_with("HTTP/1.1 200"));
    api.lifecycle.stop();
    // It ends when the process does, and properly.
    assert!(closed(stream).await.ends_with(b"0\r\n\r\n"));
    drop(half);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    frame.extend_from_slice(payload);
    frame
}

/// `GET /healthz` over HTTP/2 without an upgrade, for a host; returns the first byte of the response's header block, which is
/// the index of its status in the table that both sides know.
async fn status_of(address: SocketAddr, authority: &str) -> u8 {
    let text = |index: u8, value: &str| {
        let mut field = vec![index, u8::try_from(value.len()).unwrap()];
        field.extend_from_slice(value.as_bytes());
        field
    };
    let mut block = vec![0x82, 0x86];
    block.extend(text(0x04, "/healthz"));
    if !authority.is_empty() {
        block.extend(text(0x01, authority));
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(1, 0x05, 1, &block));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    loop {
        let mut head = [0; 9];
        within(stream.read_exact(&mut head)).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        within(stream.read_exact(&mut payload)).await.unwrap();
        if head[3] == 1 {
            // A change of the table's size may stand before.
            let at = payload.iter().position(|byte| byte & 0xe0 != 0x20).unwrap();
            return payload[at];
        }
    }
}

#[tokio::test]
async fn without_an_upgrade_the_authority_is_the_host() {
    let (_api, address) = served(Settings::default()).await;
    // 0x88: 200 of the static table. What is not in it begins with another byte.
    assert_eq!(status_of(address, &address.to_string()).await, 0x88);
    assert_eq!(status_of(address, "localhost:7700").await, 0x88);
    for foreign in ["evil.example", "evil.example:7700", "127.0.0.1.nip.io", ""] {
        assert_ne!(status_of(address, foreign).await, 0x88, "{foreign:?}");
    }
}
