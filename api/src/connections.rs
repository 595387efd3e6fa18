//! Accepts connections and serves HTTP/1.1 and HTTP/2 on them, with a bound on their number and on silent clients.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use roundhouse_shared::lifecycle::Lifecycle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a client may take from the connection, or from its last request, to a request's complete header. Half-sent
/// requests otherwise hold file descriptors for as long as their sender likes.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a silent HTTP/2 connection is asked whether its client is still there, and for how long.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long the listener waits after an accept that failed for want of file descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long connections may take for their last bytes once everything ends.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// How often a client that has sent the beginning of an HTTP/2 preface is looked at again.
const PREFACE_RETRY: Duration = Duration::from_millis(20);
/// How an HTTP/2 client without TLS begins (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// File descriptors that stay free for the store, the bus and the engines' processes.
const RESERVED_FILES: u64 = 512;

/// How many connections are served at once, by the process's limit of open files; the kernel queues the rest.
pub(crate) fn capacity(open_files: u64) -> usize {
    let left = open_files.saturating_sub(RESERVED_FILES).max(open_files / 2).max(1);
    usize::try_from(left).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)
}

/// Serves until the process stops. Softly: no new connections, and each ends after the response that it is at. Hard:
/// handlers see the stop themselves, and connections get a moment for what those still say.
pub(crate) async fn serve(listener: TcpListener, router: Router, lifecycle: Lifecycle, capacity: usize) {
    let slots = Arc::new(Semaphore::new(capacity));
    let mut connections = JoinSet::new();
    let soft = lifecycle.soft().clone();
    loop {
        let accepted = tokio::select! {
            biased;
            () = soft.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Some((stream, slot)) => {
                let (router, lifecycle) = (router.clone(), lifecycle.clone());
                connections.spawn(async move {
                    converse(stream, router, &lifecycle).await;
                    drop(slot);
                });
            }
            None => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let mut all = pin!(all);
    tokio::select! {
        () = &mut all => return,
        () = lifecycle.hard().cancelled() => {}
    }
    if tokio::time::timeout(LAST_BYTES, all).await.is_err() {
        tracing::debug!("connections were closed before their last bytes were sent");
    }
}

/// The next connection and its slot. `None`: it cannot be had now.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, slot)),
        Err(error) => {
            // A client that is gone already is no reason to wait; the wait is short, and all else is.
            tracing::warn!(%error, "a connection could not be accepted");
            None
        }
    }
}

/// Serves one connection to its end.
async fn converse(stream: TcpStream, router: Router, lifecycle: &Lifecycle) {
    // Events are small and must not wait for one another.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was not set");
    }
    let begun = tokio::select! {
        begun = tokio::time::timeout(HEADER_TIMEOUT, speaks_http2(&stream)) => begun,
        () = lifecycle.soft().cancelled() => return,
    };
    let Ok(Ok(http2)) = begun else { return };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = lifecycle.soft().cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(error, "a connection ended");
    }
}

/// Whether the client begins with the HTTP/2 preface. Its bytes stay in the socket.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    loop {
        let had = stream.peek(&mut start).await?;
        if had == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if start[..had] != PREFACE[..had] {
            return Ok(false);
        }
        if had == PREFACE.len() {
            return Ok(true);
        }
        // The socket stays readable with the bytes that were seen: only time tells whether more come.
        tokio::time::sleep(PREFACE_RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::capacity;

    #[test]
    fn descriptors_stay_free_for_others() {
        for (open_files, expected) in [(1024, 512), (20_000, 19_488), (100, 50), (1, 1), (0, 1)] {
            assert_eq!(capacity(open_files), expected, "{open_files}");
        }
    }
}
