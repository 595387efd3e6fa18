//! The one way from a request to its answer, for all three protocols.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hasher},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    anthropic::Messages,
    context::Fail,
    log::{InFlight, Log, Protocol},
    reply::Reply,
    stream::{self, Pace},
    wire::{Answer, Wire},
};

/// The largest request body that is read.
const BODY_LIMIT: usize = 64 << 20;

/// How many `fail N once` are remembered; then all are forgotten, so that memory stays bounded.
const MAX_FAILED: usize = 100_000;

/// What outlives a request. A clone is another handle on the same.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Arc<Log>,
    record: bool,
    answers: AtomicU64,
    failed: Mutex<HashSet<u64>>,
    stop: CancellationToken,
    hurry: watch::Sender<()>,
}

impl Model {
    /// A model that writes to `log`, if it is to `record`, and breaks off its answers at `stop`.
    pub(crate) fn new(log: Arc<Log>, record: bool, stop: CancellationToken) -> Model {
        let (answers, failed) = (AtomicU64::new(0), Mutex::default());
        let hurry = watch::Sender::new(());
        Model { shared: Arc::new(Shared { log, record, answers, failed, stop, hurry }) }
    }

    pub(crate) fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Ends the pauses of the answers under way.
    pub(crate) fn hurry(&self) {
        self.shared.hurry.send_replace(());
    }

    fn pace(&self) -> Pace {
        Pace::new(self.shared.stop.clone(), self.shared.hurry.subscribe())
    }

    fn start(&self, protocol: Protocol, headers: HeaderMap, body: &Bytes) -> InFlight {
        if self.shared.record {
            self.shared.log.start(protocol, headers, body)
        } else {
            InFlight::unrecorded()
        }
    }

    /// The status of the failure that is due, if one is.
    fn failure(&self, fails: &[Fail]) -> Option<u16> {
        fails.iter().find_map(|fail| match fail.once {
            None => Some(fail.status),
            Some(key) => {
                let mut failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.len() >= MAX_FAILED {
                    failed.clear();
                }
                failed.insert(key).then_some(fail.status)
            }
        })
    }

    /// Unique in this oracle by the count, and nearly so beyond it by the request.
    fn id(&self, body: &[u8]) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write(body);
        let n = self.shared.answers.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}{n:04x}", hasher.finish())
    }
}

/// Answers a request of protocol `W`.
pub(crate) async fn answer<W: Wire>(State(model): State<Model>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match to_bytes(body, BODY_LIMIT).await {
        Ok(body) => body,
        Err(error) => return failed::<W>(413, &error.to_string()),
    };
    // Before it is on record: whoever sees it there can hurry it.
    let mut pace = model.pace();
    let mut in_flight = model.start(W::PROTOCOL, parts.headers, &body);
    let request = match W::read(&body) {
        Ok(request) => request,
        Err(error) => {
            in_flight.end(400, None);
            return failed::<W>(400, &format!("cannot read the request: {error}"));
        }
    };
    let turn = request.conversation.turn();
    if let Some(status) = model.failure(&turn.fails) {
        in_flight.end(status, None);
        return failed::<W>(status, &format!("the oracle was told to fail with {status}"));
    }
    let reply = Reply::new(&turn, &request.conversation.tools);
    let text = reply.text();
    let usage = request.conversation.usage(&text);
    let id = model.id(&body);
    let answer = Answer {
        id: &id,
        model: &request.model,
        reply: &reply,
        text: &text,
        usage,
        include_usage: request.include_usage,
    };
    // A tool call comes at once; what is slow is the answer.
    let slow = turn.slow.filter(|_| matches!(reply, Reply::Text(_)));
    if request.stream {
        let events = W::events(&answer);
        let body = match slow {
            None => stream::at_once(events, in_flight, usage),
            Some(slow) => stream::spread(events, slow, in_flight, usage, pace),
        };
        return event_stream(body);
    }
    let whole = W::whole(&answer);
    if !pace.pause(slow.unwrap_or_default()).await {
        return failed::<W>(503, "the oracle was stopped");
    }
    in_flight.end(200, Some(usage));
    Json(whole).into_response()
}

fn event_stream(body: Body) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}

fn failed<W: Wire>(status: u16, message: &str) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (code, Json(W::error(status, message))).into_response();
    if status == 429 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Answers `POST /v1/messages/count_tokens`.
pub(crate) async fn count_tokens(State(model): State<Model>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match to_bytes(body, BODY_LIMIT).await {
        Ok(body) => body,
        Err(error) => return failed::<Messages>(413, &error.to_string()),
    };
    let mut in_flight = model.start(Protocol::CountTokens, parts.headers, &body);
    let (status, response) = match Messages::read(&body) {
        Ok(request) => {
            let tokens = request.conversation.usage("").input_tokens;
            (200, Json(json!({"input_tokens": tokens})).into_response())
        }
        Err(error) => (400, failed::<Messages>(400, &format!("cannot read the request: {error}"))),
    };
    in_flight.end(status, None);
    response
}
