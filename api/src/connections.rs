//! Accepts connections, as many at once as the process can afford, until the process stops.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use roundhouse_shared::lifecycle::Lifecycle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connection::Connection;

/// File descriptors that stay free for the store, the bus and the engines' processes.
const RESERVED_FILES: u64 = 512;
/// The most connections, however many files may be open.
const CONNECTIONS_MOST: u64 = 16_384;

/// How long accepting pauses when the process has no file descriptor left, or another resource.
const PAUSE: Duration = Duration::from_millis(200);

/// How often a full server looks whether a connection has become idle.
const LOOK: Duration = Duration::from_millis(200);

/// How often the log is told that connections are refused or closed for want of room.
const COMPLAIN: Duration = Duration::from_mins(1);

/// How long connections have after a hard stop. What waits for an answer is told of the stop within moments.
const HARD_GRACE: Duration = Duration::from_secs(5);

/// How many connections are served at once, by the process's limit of open files.
pub(crate) fn capacity(open_files: u64) -> usize {
    let left = open_files.saturating_sub(RESERVED_FILES).max(open_files / 2).clamp(1, CONNECTIONS_MOST);
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// The connections that are open.
pub(crate) struct Connections {
    router: Router,
    lifecycle: Lifecycle,
    head_timeout: Duration,
    most: usize,
    room: Arc<Semaphore>,
    /// In the order in which they came; some may be closed by now.
    open: VecDeque<Weak<Connection>>,
    tasks: JoinSet<()>,
    complained: Option<Instant>,
}

impl Connections {
    /// Serves the router, whose clone has to be cheap: each request gets one.
    pub(crate) fn new(router: Router, lifecycle: Lifecycle, most: usize, head_timeout: Duration) -> Self {
        Self {
            router,
            lifecycle,
            head_timeout,
            most,
            room: Arc::new(Semaphore::new(most)),
            open: VecDeque::new(),
            tasks: JoinSet::new(),
            complained: None,
        }
    }

    /// Accepts until the soft stop, and returns when all connections have ended, or some time after the hard stop.
    pub(crate) async fn serve(mut self, listener: TcpListener) {
        let (soft, hard) = (self.lifecycle.soft().clone(), self.lifecycle.hard().clone());
        tokio::select! {
            biased;
            () = soft.cancelled() => {}
            () = self.accept(&listener) => {}
        }
        drop(listener);
        let mut tasks = self.tasks;
        tokio::select! {
            () = async { while tasks.join_next().await.is_some() {} } => {}
            () = async { hard.cancelled().await; tokio::time::sleep(HARD_GRACE).await } => {
                tracing::warn!(connections = tasks.len(), "connections did not end in time");
            }
        }
    }

    async fn accept(&mut self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let place = self.place().await;
                    self.start(stream, place);
                }
                Err(error) if is_of_peer(&error) => {}
                Err(error) => {
                    // Usually no file descriptor is left: at once it would be the same again, in a busy loop.
                    self.complain(format_args!("cannot accept a connection: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
            while self.tasks.try_join_next().is_some() {}
        }
    }

    fn start(&mut self, stream: TcpStream, place: OwnedSemaphorePermit) {
        // Events are small and must not wait for one another.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was not set");
        }
        let connection = Connection::new(self.head_timeout);
        if self.open.len() >= 2 * self.most {
            self.open.retain(|connection| connection.strong_count() > 0);
        }
        self.open.push_back(Arc::downgrade(&connection));
        let serving = connection.serve(stream, self.router.clone(), self.lifecycle.soft().clone());
        self.tasks.spawn(async move {
            serving.await;
            drop(place);
        });
    }

    /// A place for one more connection. Where there is none, connections on which no request runs are closed: first those
    /// that have never brought one, which cost a peer nothing to hold.
    async fn place(&mut self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(place) = Arc::clone(&self.room).try_acquire_owned() {
                return place;
            }
            let most = self.most;
            self.complain(format_args!("all {most} connections are in use; closing idle ones"));
            self.evict();
            let place = Arc::clone(&self.room).acquire_owned();
            if let Ok(Ok(place)) = tokio::time::timeout(LOOK, place).await {
                return place;
            }
        }
    }

    /// Several at once, so that a flood of connections does not go through all of them for each.
    fn evict(&mut self) {
        self.open.retain(|connection| connection.strong_count() > 0);
        let some = self.most.div_ceil(16);
        let open: Vec<_> = self.open.iter().filter_map(Weak::upgrade).filter(|one| one.is_idle()).collect();
        let mut evicted = 0;
        for connection in open.iter().filter(|one| one.is_new()).take(some) {
            connection.evict();
            evicted += 1;
        }
        if evicted == 0 {
            open.iter().take(some).for_each(|connection| connection.evict());
        }
    }

    fn complain(&mut self, what: std::fmt::Arguments<'_>) {
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAIN) {
            self.complained = Some(Instant::now());
            tracing::warn!("{what}");
        }
    }
}

/// Whether accepting has failed for the one connection alone.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::capacity;

    #[test]
    fn descriptors_stay_free_for_others() {
        for (open_files, expected) in
            [(1024, 512), (16_000, 15_488), (20_000, 16_384), (100, 50), (1, 1), (0, 1)]
        {
            assert_eq!(capacity(open_files), expected, "{open_files}");
        }
    }
}
