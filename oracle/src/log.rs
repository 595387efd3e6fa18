//! What the oracle was sent, and when: bounded, in one order of starts and ends, so that a test can tell whether two
//! requests ever ran at once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{
    HeaderMap,
    header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION},
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::usage::Usage;

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`, which calls no model
    CountTokens,
    /// `POST /v1/responses`
    Responses,
}

/// One request and what became of it. A clone is cheap: the body is shared.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The number of the request, from 1.
    pub seq: u64,
    /// Its protocol.
    pub protocol: Protocol,
    /// The place of its start in the one order of all starts and ends.
    pub start_n: u64,
    /// The place of its end in that order; `None` while it is in flight. It ends just before the last bytes of the
    /// answer are sent, so a client cannot see the end before it is recorded.
    pub end_n: Option<u64>,
    /// When it started, in milliseconds since the oracle did.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// The client hung up (or the oracle was stopped) before the answer was out.
    pub client_gone: bool,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// The usage that the answer reports; `None` for failures.
    pub usage: Option<Usage>,
    /// The headers sent, without credentials.
    pub headers: Arc<HeaderMap>,
    /// The body as sent.
    pub body: Bytes,
}

impl RecordedRequest {
    /// Whether the request is still being answered.
    pub fn in_flight(&self) -> bool {
        self.end_n.is_none()
    }

    /// Whether there was a moment at which both requests were being answered.
    pub fn overlaps(&self, other: &RecordedRequest) -> bool {
        let before = |one: &Self, two: &Self| one.end_n.is_some_and(|end| end < two.start_n);
        !before(self, other) && !before(other, self)
    }

    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The largest number of these requests that were being answered at one moment.
pub fn most_at_once(requests: &[RecordedRequest]) -> usize {
    let mut steps: Vec<(u64, bool)> = Vec::with_capacity(requests.len() * 2);
    for request in requests {
        steps.push((request.start_n, true));
        steps.push((request.end_n.unwrap_or(u64::MAX), false));
    }
    steps.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, starts) in steps {
        now = if starts { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}

/// No request came that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such request within {waited:?}; {seen} requests on record")]
pub struct WaitTimeout {
    /// How long was waited.
    pub waited: Duration,
    /// How many requests are on record.
    pub seen: usize,
}

/// The record.
#[derive(Debug)]
pub(crate) struct Log {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
    began: Instant,
    max_requests: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    requests: VecDeque<RecordedRequest>,
    bytes: usize,
    seq: u64,
    n: u64,
}

impl Log {
    pub(crate) fn new(max_requests: usize, max_bytes: usize) -> Log {
        let inner = Mutex::default();
        Log { inner, changed: watch::Sender::new(()), began: Instant::now(), max_requests, max_bytes }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock leaves the record half written.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a request; it is in flight until the guard is finished or dropped.
    pub(crate) fn start(
        self: &Arc<Self>,
        protocol: Protocol,
        mut headers: HeaderMap,
        body: &Bytes,
    ) -> InFlight {
        for name in [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE] {
            headers.remove(name);
        }
        headers.remove("x-api-key");
        let started_ms = self.now_ms();
        let mut inner = self.inner();
        inner.seq += 1;
        inner.n += 1;
        let seq = inner.seq;
        let request = RecordedRequest {
            seq,
            protocol,
            start_n: inner.n,
            end_n: None,
            started_ms,
            ended_ms: None,
            client_gone: false,
            status: None,
            usage: None,
            headers: Arc::new(headers),
            body: body.clone(),
        };
        inner.bytes += body.len();
        inner.requests.push_back(request);
        while inner.requests.len() > 1
            && (inner.requests.len() > self.max_requests || inner.bytes > self.max_bytes)
        {
            if let Some(oldest) = inner.requests.pop_front() {
                inner.bytes -= oldest.body.len();
            }
        }
        drop(inner);
        self.changed.send_replace(());
        InFlight { log: Some(self.clone()), seq }
    }

    fn end(&self, seq: u64, change: impl FnOnce(&mut RecordedRequest)) {
        let now = self.now_ms();
        let mut inner = self.inner();
        inner.n += 1;
        let n = inner.n;
        // Numbers are gapless from the oldest on; the request may have been dropped or cleared since.
        let oldest = inner.requests.front().map_or(u64::MAX, |request| request.seq);
        let at = seq.checked_sub(oldest).and_then(|at| usize::try_from(at).ok());
        if let Some(request) = at.and_then(|at| inner.requests.get_mut(at)) {
            request.end_n = Some(n);
            request.ended_ms = Some(now);
            change(request);
        }
        drop(inner);
        self.changed.send_replace(());
    }

    /// All requests on record, oldest first.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.inner().requests.iter().cloned().collect()
    }

    /// Forgets all requests; the numbers go on.
    pub(crate) fn clear(&self) {
        let mut inner = self.inner();
        inner.requests.clear();
        inner.bytes = 0;
        drop(inner);
        self.changed.send_replace(());
    }

    /// Waits for a request that matches, among those on record and those to come.
    pub(crate) async fn wait_for(
        &self,
        matches: impl Fn(&RecordedRequest) -> bool,
        deadline: Duration,
    ) -> Result<RecordedRequest, WaitTimeout> {
        // Subscribed before the first look, so that nothing falls between the look and the wait.
        let mut changed = self.changed.subscribe();
        let found = tokio::time::timeout(deadline, async {
            loop {
                changed.mark_unchanged();
                if let Some(found) = self.requests().into_iter().find(&matches) {
                    return Some(found);
                }
                changed.changed().await.ok()?;
            }
        });
        match found.await {
            Ok(Some(found)) => Ok(found),
            _ => Err(WaitTimeout { waited: deadline, seen: self.inner().requests.len() }),
        }
    }
}

/// A request being answered. Dropped without an end, the client has hung up: the server drops the answer then.
#[derive(Debug)]
pub(crate) struct InFlight {
    log: Option<Arc<Log>>,
    seq: u64,
}

impl InFlight {
    /// A request that is not recorded.
    pub(crate) fn unrecorded() -> InFlight {
        InFlight { log: None, seq: 0 }
    }

    /// Says that the answer is out.
    pub(crate) fn end(&mut self, status: u16, usage: Option<Usage>) {
        if let Some(log) = self.log.take() {
            log.end(self.seq, |request| (request.status, request.usage) = (Some(status), usage));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            log.end(self.seq, |request| request.client_gone = true);
        }
    }
}

#[cfg(test)]
mod tests;
