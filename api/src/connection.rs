//! One connection: what runs on it, and when it is closed for sending too slowly.
//!
//! hyper's own header timeout also counts the idle time between two requests, which proxies want to be long. So the two
//! have deadlines of their own here, and one that waits for a request can be closed to make room for another.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// How long a connection without a request stays open after its last one. Longer than proxies usually keep theirs.
const IDLE: Duration = Duration::from_secs(75);

/// How long a connection that is being closed has to say so to its peer.
const CLOSING: Duration = Duration::from_secs(1);

/// How often HTTP/2 asks whether the peer is still there, and how long that may take to answer.
const PING: Duration = Duration::from_secs(20);

/// The most requests at once on one HTTP/2 connection.
const STREAMS: u32 = 256;

/// What is known of a connection; shared by its task, its requests and the one who accepts connections.
#[derive(Debug)]
pub(crate) struct Connection {
    /// How long the head of a request may take.
    head_timeout: Duration,
    state: Mutex<State>,
    changed: Notify,
    evicted: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// Requests whose response is not sent to its end.
    running: usize,
    /// Since when none runs.
    idle_since: Instant,
    /// When the first byte behind the last request came.
    head_since: Option<Instant>,
    has_served: bool,
    /// HTTP/2 has frames between requests: bytes do not mean that one has begun.
    is_http2: bool,
}

impl Connection {
    pub(crate) fn new(head_timeout: Duration) -> Arc<Self> {
        let state = State {
            running: 0,
            idle_since: Instant::now(),
            head_since: None,
            has_served: false,
            is_http2: false,
        };
        Arc::new(Self {
            head_timeout,
            state: Mutex::new(state),
            changed: Notify::new(),
            evicted: CancellationToken::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not brought a whole request so far.
    pub(crate) fn is_new(&self) -> bool {
        !self.state().has_served
    }

    /// Whether no request runs on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().running == 0
    }

    /// Closes it at once.
    pub(crate) fn evict(&self) {
        self.evicted.cancel();
    }

    fn read_something(&self) {
        let mut state = self.state();
        if state.running == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    fn begin(self: &Arc<Self>, version: Version) -> Running {
        let mut state = self.state();
        state.running += 1;
        state.head_since = None;
        state.has_served = true;
        state.is_http2 = version == Version::HTTP_2;
        Running(Arc::clone(self))
    }

    /// When it has to be closed, as things are.
    fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        if state.running > 0 {
            return None;
        }
        let idle = if state.has_served { IDLE } else { self.head_timeout };
        let head = state.head_since.filter(|_| !state.is_http2).map(|since| since + self.head_timeout);
        Some(head.map_or(state.idle_since + idle, |head| head.min(state.idle_since + idle)))
    }

    /// Returns when the peer has taken too long.
    async fn overdue(&self) {
        loop {
            match self.deadline() {
                Some(at) if at <= Instant::now() => return,
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// Serves the connection to its end. `soft`: the requests that run are answered, and no others.
    pub(crate) async fn serve(self: Arc<Self>, stream: TcpStream, router: Router, soft: CancellationToken) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(STREAMS);
        let io = TokioIo::new(Metered { stream, connection: Arc::clone(&self) });
        let connection = Arc::clone(&self);
        let service = service_fn(move |request: Request<Incoming>| {
            let running = connection.begin(request.version());
            let router = router.clone();
            async move {
                let response = router.oneshot(request.map(Body::new)).await?;
                Ok::<_, std::convert::Infallible>(response.map(|body| Tracked { body, _running: running }))
            }
        });
        let mut serving = std::pin::pin!(builder.serve_connection(io, service));
        let closing = tokio::select! {
            _ = serving.as_mut() => return,
            () = self.evicted.cancelled() => return,
            () = self.overdue() => Some(CLOSING),
            () = soft.cancelled() => None,
        };
        serving.as_mut().graceful_shutdown();
        if let Some(most) = closing {
            let _ = tokio::time::timeout(most, serving).await;
        } else {
            tokio::select! {
                _ = serving => {}
                () = self.overdue() => {}
            }
        }
    }
}

/// A request that runs, until it is dropped.
#[derive(Debug)]
struct Running(Arc<Connection>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.running = state.running.saturating_sub(1);
        state.idle_since = Instant::now();
        if state.running == 0 {
            self.0.changed.notify_one();
        }
    }
}

/// A response's body. Its request runs until this is sent or dropped.
struct Tracked {
    body: Body,
    _running: Running,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that reports when something was read.
struct Metered {
    stream: TcpStream,
    connection: Arc<Connection>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if before < buffer.filled().len() {
            self.connection.read_something();
        }
        read
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
