//! How a process ends: a soft stop, then a hard one, and every task has an owner.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tokens and the tasks of a process. Cheap to clone.
///
/// *Soft*: take no new work, finish what runs. *Hard*: stop now, hand back what runs. Hard implies soft.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    hard: CancellationToken,
    soft: CancellationToken,
    failed: CancellationToken,
    tasks: TaskTracker,
}

impl Lifecycle {
    /// A process that runs.
    pub fn new() -> Self {
        let hard = CancellationToken::new();
        Self { soft: hard.child_token(), hard, ..Self::default() }
    }

    /// Ends when the process should take no new work.
    pub fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Ends when the process should stop at once.
    pub fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// Whether the process ends because something went wrong.
    pub fn failed(&self) -> bool {
        self.failed.is_cancelled()
    }

    /// Runs a task that this process owns: it is waited for at the end.
    pub fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Runs a task that must live as long as the process: if it ends before a stop was asked for, or panics, the
    /// process stops and fails.
    pub fn spawn_vital<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let guard = VitalGuard { name, lifecycle: self.clone() };
        self.tasks.spawn(async move {
            let _guard = guard;
            task.await;
        });
    }

    /// Stops softly.
    pub fn stop(&self) {
        self.soft.cancel();
    }

    /// Stops softly, and says that the process failed.
    pub fn fail(&self) {
        self.failed.cancel();
        self.soft.cancel();
    }

    /// Waits for the end: the first signal stops softly, a second one or `grace` after the first stops hard. Returns
    /// once all tasks have ended, or a few seconds after the hard stop.
    pub async fn run(&self, grace: Duration) {
        let stopped = self.clone();
        // Once for both signals: the second may come before the first is dealt with.
        let mut signals = Signals::listen();
        let waiting = async move {
            tokio::select! {
                () = signals.next() => {}
                () = stopped.soft.cancelled() => {}
            }
            tracing::info!(grace_ms = grace.as_millis(), "stopping: finishing what runs");
            stopped.soft.cancel();
            tokio::select! {
                () = signals.next() => {}
                () = tokio::time::sleep(grace) => {}
                () = stopped.hard.cancelled() => {}
            }
            tracing::info!("stopping now: handing back what runs");
            stopped.hard.cancel();
            tokio::time::sleep(HARD_GRACE).await;
            tracing::warn!(tasks = stopped.tasks.len(), "some tasks did not end in time");
        };
        self.tasks.close();
        tokio::select! {
            () = waiting => {}
            () = async { self.soft.cancelled().await; self.tasks.wait().await } => {}
        }
    }
}

/// How long tasks have after a hard stop.
const HARD_GRACE: Duration = Duration::from_secs(10);

struct VitalGuard {
    name: &'static str,
    lifecycle: Lifecycle,
}

impl Drop for VitalGuard {
    fn drop(&mut self) {
        if !self.lifecycle.soft.is_cancelled() {
            tracing::error!(task = self.name, "a task that the process cannot live without has ended");
            self.lifecycle.fail();
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals(Option<(Signal, Signal)>);

impl Signals {
    fn listen() -> Self {
        let both = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        Self(if let (Ok(terminate), Ok(interrupt)) = both { Some((terminate, interrupt)) } else { None })
    }

    /// The next of them.
    async fn next(&mut self) {
        match &mut self.0 {
            Some((terminate, interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            // Without signal handlers the operating system ends the process by itself.
            None => std::future::pending().await,
        }
    }
}
