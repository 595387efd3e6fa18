//! Over a real connection: how serving ends, and how a client that goes away is noticed.

use std::net::SocketAddr;

use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::SessionId;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::{Api, Options, within};

async fn served() -> (Api, SocketAddr, JoinHandle<()>) {
    let (app, api) = Api::app(Options::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = api.lifecycle.spawn(roundhouse_api::serve(listener, app));
    (api, address, serving)
}

async fn post(address: SocketAddr, session: SessionId, cancel: bool) -> TcpStream {
    let body = json!({"message": "m", "sessionId": session, "cancelOnDisconnect": cancel}).to_string();
    let head = format!(
        "POST /agents/helper/chat HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_soft_stop_answers_what_waits_and_then_ends() {
    let (api, address, serving) = served().await;
    let session = api.session_without_client().await;
    let mut client = post(address, session, false).await;
    let turn = api.begin_when_rung(session).await;
    api.lifecycle.stop();
    turn.answer("late but there").await;
    let mut text = String::new();
    within(client.read_to_string(&mut text)).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("late but there"), "{text}");
    within(serving).await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
    // With the last client gone nothing of ours runs any more.
    within(api.lifecycle.run(std::time::Duration::from_hours(1))).await;
    assert!(!api.lifecycle.failed());
}

#[tokio::test]
async fn a_hard_stop_leaves_the_job_to_be_asked_for() {
    let (api, address, serving) = served().await;
    let session = api.session_without_client().await;
    let mut client = post(address, session, true).await;
    let _turn = api.begin_when_rung(session).await;
    api.lifecycle.hard().cancel();
    let mut text = String::new();
    within(client.read_to_string(&mut text)).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 202") && text.contains("jobId"), "{text}");
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_breaks_cancels_where_that_was_asked_for() {
    let (api, address, _serving) = served().await;
    let session = api.session_without_client().await;
    let mut notices = api.bus.notices();
    let client = post(address, session, true).await;
    let turn = api.begin_when_rung(session).await;
    drop(client);
    let notice = within(notices.recv()).await.unwrap();
    assert_eq!(notice, Notice::Cancel(session, turn.mail.turn));
}

#[tokio::test]
async fn half_sent_requests_are_closed_and_whole_ones_served_meanwhile() {
    let (api, address, _serving) = served().await;
    let mut silent = Vec::new();
    for start in ["", "P", "PRI * HTTP/2.0\r\n", "GET /healthz HTTP/1.1\r\nhost: local"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        silent.push((start, stream));
    }
    let mut whole = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    whole.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    within(whole.read_to_string(&mut text)).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    for (start, mut stream) in silent {
        let mut rest = Vec::new();
        // Closed by the server, whether with a word or without.
        let closed = tokio::time::timeout(std::time::Duration::from_mins(1), stream.read_to_end(&mut rest));
        assert!(closed.await.is_ok(), "{start:?}");
    }
    api.lifecycle.stop();
}
