//! An HTTP client as a user would write one.

use std::collections::VecDeque;
use std::pin::Pin;

use futures::{Stream, StreamExt};
use serde_json::{Value, json};

use super::soon;

/// A client for one process.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) url: String,
    http: reqwest::Client,
}

/// An answer that has been read.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("not JSON ({}): {}", self.status, self.body))
    }

    /// The events of a stream that was read to its end.
    pub(crate) fn events(&self) -> Vec<SseEvent> {
        self.body.split("\n\n").filter_map(parse).collect()
    }

    /// The answer's problem, which says the same as its head.
    pub(crate) fn problem(&self) -> Value {
        let problem = self.json();
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.body);
        assert_eq!(problem["status"], self.status, "{}", self.body);
        assert_eq!(self.headers["x-request-id"].to_str().unwrap(), problem["requestId"], "{}", self.body);
        problem
    }

    /// The stable code of the answer's problem, after its status: `409 SESSION_BUSY`.
    pub(crate) fn code(&self) -> String {
        format!("{} {}", self.status, self.problem()["code"].as_str().unwrap())
    }
}

impl Client {
    pub(crate) fn new(url: String) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { url, http }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method.parse().unwrap(), format!("{}{path}", self.url))
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        self.try_send(request).await.expect("an answer")
    }

    /// The same, where the process may not be there.
    pub(crate) async fn try_send(&self, request: reqwest::RequestBuilder) -> Result<Answer, reqwest::Error> {
        soon("an answer", async {
            let response = request.send().await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Ok(Answer { status, headers, body: response.text().await? })
        })
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request("GET", path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request("POST", path).json(body)).await
    }

    /// A chat with the agent `oracle`, answered as JSON.
    pub(crate) async fn chat(&self, session: Option<&str>, message: &str) -> Answer {
        self.post("/agents/oracle/chat", &chat_body(session, message)).await
    }

    /// A chat with the agent `oracle` with a body of the test's own, answered as JSON.
    pub(crate) async fn ask(&self, body: Value) -> Answer {
        self.post("/agents/oracle/chat", &body).await
    }

    /// The same, answered as events.
    pub(crate) async fn ask_events(&self, body: Value) -> Events {
        self.events(self.request("POST", "/agents/oracle/chat").json(&body)).await
    }

    /// A chat whose answer is awaited elsewhere: returns the job.
    pub(crate) async fn chat_async(&self, session: Option<&str>, message: &str) -> Value {
        let request = self.request("POST", "/agents/oracle/chat").header("prefer", "respond-async");
        let answer = self.send(request.json(&chat_body(session, message))).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.json()
    }

    /// A chat with the agent `oracle`, answered as events.
    pub(crate) async fn stream(&self, session: Option<&str>, message: &str) -> Events {
        self.events(self.request("POST", "/agents/oracle/chat").json(&chat_body(session, message))).await
    }

    /// Opens a stream of events.
    pub(crate) async fn events(&self, request: reqwest::RequestBuilder) -> Events {
        let request = request.header("accept", "text/event-stream");
        let response = soon("a stream", request.send()).await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{}", response.text().await.unwrap());
        Events { bytes: Box::pin(response.bytes_stream()), buffer: Vec::new(), ready: VecDeque::new() }
    }

    /// The stream of a session, after an event or from now on.
    pub(crate) async fn follow(&self, session: &str, after: Option<&str>) -> Events {
        let mut request = self.request("GET", &format!("/sessions/{session}/events"));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        self.events(request).await
    }

    /// Waits until a job has ended; returns it.
    pub(crate) async fn ended(&self, job: &str) -> Value {
        super::until("a job to end", async || {
            let answer = self.try_send(self.request("GET", &format!("/jobs/{job}"))).await.ok()?;
            let job = (answer.status == 200).then(|| answer.json())?;
            let ended = ["succeeded", "failed", "cancelled"].iter().any(|state| job["state"] == *state);
            ended.then_some(job)
        })
        .await
    }

    /// A session as it is now.
    pub(crate) async fn session(&self, session: &str) -> Value {
        self.get(&format!("/sessions/{session}")).await.json()
    }

    /// The entries of a list.
    pub(crate) async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await.json()["items"].as_array().expect("items").clone()
    }

    /// The messages of a session as `role: content`.
    pub(crate) async fn messages(&self, session: &str) -> Vec<String> {
        let line = |message: &Value| {
            format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap())
        };
        self.items(&format!("/sessions/{session}/messages?limit=200")).await.iter().map(line).collect()
    }
}

fn chat_body(session: Option<&str>, message: &str) -> Value {
    match session {
        Some(session) => json!({ "message": message, "sessionId": session }),
        None => json!({ "message": message }),
    }
}

/// One event, as a browser would see it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// A stream of events that is being read.
pub(crate) struct Events {
    bytes: Pin<Box<dyn Stream<Item = Result<bytes::Bytes, reqwest::Error>> + Send>>,
    buffer: Vec<u8>,
    ready: VecDeque<SseEvent>,
}

impl Events {
    /// The next event; `None` at the end of the stream, however it came.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        soon("the next event", async {
            loop {
                if let Some(event) = self.ready.pop_front() {
                    return Some(event);
                }
                let Some(Ok(bytes)) = self.bytes.next().await else { return None };
                self.buffer.extend_from_slice(&bytes);
                while let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                    self.ready.extend(parse(&String::from_utf8(block).unwrap()));
                }
            }
        })
        .await
    }

    /// Reads on until an event of this name.
    pub(crate) async fn until(&mut self, name: &str) -> SseEvent {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended without {name}"));
            if event.name == name {
                return event;
            }
        }
    }

    /// All events to the end of the stream.
    pub(crate) async fn all(mut self) -> Vec<SseEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

fn parse(block: &str) -> Option<SseEvent> {
    let (mut id, mut name, mut data) = (None, String::new(), String::new());
    for line in block.lines() {
        match line.split_once(':') {
            Some(("id", value)) => id = Some(value.trim_start().to_owned()),
            Some(("event", value)) => value.trim_start().clone_into(&mut name),
            Some(("data", value)) => data.push_str(value.trim_start()),
            _ => {}
        }
    }
    // A comment keeps the line open and says nothing.
    (!name.is_empty()).then(|| SseEvent { id, name, data: serde_json::from_str(&data).unwrap() })
}
