//! The server as the client sees it: the calls, and what can go wrong with them.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use eventsource_stream::Eventsource;
use futures::future::ready;
use futures::{Stream, StreamExt};
use reqwest::header::ACCEPT;
use reqwest::{Client, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{self, HttpError};

/// How long a short call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("cannot reach {server}")]
    Unreachable {
        server: String,
        #[source]
        source: HttpError,
    },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("{}", .0.sentence())]
    Problem(Box<Problem>),
    /// The job has failed: that is its answer.
    #[error("{}", .0.sentence())]
    Failed(Box<Problem>),
    #[error("the connection is lost; the answer will be at /jobs/{job}")]
    Lost { job: String },
    #[error("the server answers what this client does not understand: {0}")]
    Odd(&'static str),
    #[error("the terminal is gone")]
    Terminal(#[from] io::Error),
    #[error("interrupted")]
    Interrupted,
}

impl ClientError {
    /// Whether asking again may help.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Http(HttpError::Request(_)) => true,
            Self::Problem(problem) => matches!(problem.status, 500..),
            _ => false,
        }
    }

    /// Whether a question needs no answer any more.
    pub(super) fn is_settled(&self) -> bool {
        let settled = ["INTERACTION_RESOLVED", "INTERACTION_NOT_FOUND"];
        matches!(self, Self::Problem(problem) if settled.contains(&problem.code.as_str()))
    }

    /// Whether the server may have the message all the same, so that it has to be said again under the same key.
    pub(super) fn may_have_been_taken(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.code == "STORE_UNAVAILABLE",
            error => error.is_passing(),
        }
    }
}

/// An error as the server tells it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Problem {
    status: u16,
    code: String,
    title: String,
    detail: Option<String>,
    request_id: Option<String>,
}

impl Problem {
    fn sentence(&self) -> String {
        let mut text = self.title.clone();
        if let Some(detail) = self.detail.as_ref().filter(|detail| **detail != self.title) {
            text = format!("{text}: {detail}");
        }
        match &self.request_id {
            Some(id) if 500 <= self.status => format!("{text} ({}, request {id})", self.code),
            _ => format!("{text} ({})", self.code),
        }
    }
}

impl From<Value> for ClientError {
    /// The problem that is the data of an `error` event, or of a job that failed.
    fn from(problem: Value) -> Self {
        match serde_json::from_value::<Problem>(problem) {
            Ok(problem) => Self::Problem(Box::new(problem)),
            Err(_) => Self::Odd("an error that is no problem"),
        }
    }
}

/// One event of a stream.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) id: Option<String>,
    pub(super) data: Value,
}

/// Events as they come. It ends where the connection does.
pub(super) type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    base: Url,
}

impl Server {
    pub(super) fn new(url: &str) -> Result<Self, HttpError> {
        let base = http::url(url)?;
        Ok(Self { client: http::client(&base)?, base })
    }

    /// Says something and follows what becomes of it.
    pub(super) async fn chat(
        &self,
        agent: &str,
        session: Option<&str>,
        message: &str,
        key: &str,
    ) -> Result<Events, ClientError> {
        let mut body = json!({"message": message});
        if let (Some(session), Some(body)) = (session, body.as_object_mut()) {
            body.insert("sessionId".to_owned(), session.into());
        }
        let url = http::below(&self.base, &["agents", agent, "chat"])?;
        let request = self.client.post(url).json(&body).header("idempotency-key", key);
        let response = self.send(request.header(ACCEPT, "text/event-stream")).await?;
        Ok(events(response))
    }

    /// Follows a session after an event, or from now on.
    pub(super) async fn session(&self, session: &str, after: Option<&str>) -> Result<Events, ClientError> {
        let url = http::below(&self.base, &["sessions", session, "events"])?;
        let mut request = self.client.get(url).header(ACCEPT, "text/event-stream");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        Ok(events(self.send(request).await?))
    }

    /// A job, as the server tells it.
    pub(super) async fn job(&self, job: &str) -> Result<Value, ClientError> {
        let url = http::below(&self.base, &["jobs", job])?;
        let response = self.send(self.client.get(url).timeout(CALL_TIMEOUT)).await?;
        Ok(response.json().await.map_err(HttpError::from)?)
    }

    /// Cancels what a session does.
    pub(super) async fn cancel(&self, session: &str) -> Result<(), ClientError> {
        let url = http::below(&self.base, &["sessions", session, "cancel"])?;
        self.send(self.client.post(url).timeout(CALL_TIMEOUT)).await.map(drop)
    }

    /// Answers what the agent asks.
    pub(super) async fn answer(&self, session: &str, id: &str, answer: &Value) -> Result<(), ClientError> {
        let url = http::below(&self.base, &["sessions", session, "interactions", id])?;
        self.send(self.client.post(url).json(answer).timeout(CALL_TIMEOUT)).await.map(drop)
    }

    /// Where a question is answered, to be shown.
    pub(super) fn interaction_url(&self, session: &str, id: &str) -> String {
        let url = http::below(&self.base, &["sessions", session, "interactions", id]);
        url.map_or_else(|_| String::new(), |url| crate::config::shown_url(url.as_str()))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                let server = crate::config::shown_url(self.base.as_str());
                return Err(ClientError::Unreachable { server, source: error.into() });
            }
            Err(error) => return Err(HttpError::from(error).into()),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let problem = response.json::<Problem>().await.unwrap_or_default();
        let status = status.as_u16();
        Err(ClientError::Problem(Box::new(match problem.code.as_str() {
            "" => {
                Problem { status, code: format!("HTTP {status}"), title: "No answer".to_owned(), ..problem }
            }
            _ => Problem { status, ..problem },
        })))
    }
}

fn events(response: Response) -> Events {
    let events = response.bytes_stream().eventsource();
    let whole = events.scan((), |(), event| {
        let event = event.ok().map(|event| Event {
            name: event.event,
            id: Some(event.id).filter(|id| !id.is_empty()),
            data: serde_json::from_str(&event.data).unwrap_or_default(),
        });
        ready(event)
    });
    Box::pin(whole.fuse())
}
