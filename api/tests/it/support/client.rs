//! What a client sends and gets.

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Request, StatusCode};
use futures::StreamExt as _;
use roundhouse_shared::bus::{Follow, Followed};
use roundhouse_shared::domain::EventName;
use serde_json::Value;

use super::LONG;

/// What a client got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Checks that this is a problem with these, and returns its body.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let body = self.json();
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], format!("/problems/{code}"));
        assert_eq!(body["requestId"], self.headers["x-request-id"].to_str().unwrap());
        assert!(body["title"].is_string() && body["instance"].is_string(), "{body}");
        body
    }
}

/// An event as a client reads it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// A client's end of a stream.
pub(crate) struct Events {
    pub(crate) body: BodyDataStream,
    pub(crate) text: String,
}

impl Events {
    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let frame = parse(block);
                self.text = self.text.split_off(self.text.len() - rest.len());
                if frame.is_some() {
                    return frame;
                }
            }
            let bytes = within(self.body.next()).await?.unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event, which has to be of this kind.
    pub(crate) async fn expect(&mut self, name: &str) -> Frame {
        let frame = self.next().await.unwrap_or_else(|| panic!("the stream ended before {name}"));
        assert_eq!(frame.event, name, "{frame:?}");
        frame
    }

    /// All events to the end.
    pub(crate) async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

fn parse(block: &str) -> Option<Frame> {
    let mut frame = Frame { id: None, event: String::new(), data: Value::Null };
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => frame.id = Some(id.to_owned()),
            Some(("event", event)) => event.clone_into(&mut frame.event),
            Some(("data", data)) => frame.data = serde_json::from_str(data).unwrap(),
            _ => {}
        }
    }
    (!frame.event.is_empty()).then_some(frame)
}

pub(crate) fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.as_str()).collect()
}

/// Waits for an event of this kind.
pub(crate) async fn heard(mut follow: Follow, name: EventName) {
    while !matches!(within(follow.next()).await, Followed::Event(event) if event.name == name) {}
}

/// A request as a client on this host makes it.
pub(crate) fn request(method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header("host", "localhost:7700")
}

pub(crate) fn with_json(builder: axum::http::request::Builder, body: &Value) -> Request<Body> {
    builder.header("content-type", "application/json").body(Body::from(body.to_string())).unwrap()
}

pub(crate) fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(value: &Value) -> T {
    value.as_str().unwrap().parse().unwrap()
}

/// What has to happen soon.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it did not happen in time")
}
