//! Where a case runs, and short ways to ring and to read.

use std::future::poll_fn;

use apalis_core::backend::Backend as _;
use apalis_core::worker::context::WorkerContext;
use roundhouse_shared::domain::{Lane, SessionId};
use roundhouse_shared::queue::{Delivery, Queue, Slots, Source};
use roundhouse_shared::redis::Settings;
use tokio_util::sync::CancellationToken;

use crate::support::{eventually, shared, soon};

/// Runs each case within one process and over Redis.
macro_rules! on_both {
    ($($case:ident,)*) => {
        mod within_one_process {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(crate::site::Site::local()).await;
                }
            )*
        }

        mod over_redis {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(crate::site::Site::redis()).await;
                }
            )*
        }
    };
}

/// One deployment, which processes take part in.
pub(crate) enum Site {
    /// All of them are one.
    Local(Queue),
    /// They have a Redis in common.
    Redis(Settings),
}

impl Site {
    pub(crate) fn local() -> Self {
        let nowhere = Settings { url: String::new(), ..Settings::default() };
        Self::Local(Queue::connect(&nowhere).unwrap())
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(shared())
    }

    /// The queues as another process has them.
    pub(crate) fn queue(&self) -> Queue {
        match self {
            Self::Local(queue) => queue.clone(),
            Self::Redis(settings) => Queue::connect(settings).unwrap(),
        }
    }
}

/// A ring that can be told from others.
pub(crate) fn ring() -> SessionId {
    SessionId::generate()
}

/// Rings so many times.
pub(crate) async fn push(queue: &Queue, lane: Lane, count: usize) -> Vec<SessionId> {
    let rings: Vec<_> = (0..count).map(|_| ring()).collect();
    for ring in &rings {
        queue.push(lane, *ring).await.unwrap();
    }
    rings
}

/// Waits until so many rings wait.
pub(crate) async fn depth(queue: &Queue, lane: Lane, depth: u64) {
    eventually(&format!("{depth} rings wait"), async || {
        queue.depth(lane).await.is_ok_and(|waiting| waiting == depth)
    })
    .await;
}

/// One worker's source of one queue, read as apalis reads it.
pub(crate) struct Reader {
    source: Source,
    context: WorkerContext,
    pub(crate) slots: Slots,
    pub(crate) stop: CancellationToken,
}

impl Reader {
    pub(crate) fn start(queue: &Queue, lane: Lane, slots: usize) -> Self {
        Self::with(queue, lane, Slots::new(slots))
    }

    /// The same with slots that are not its own only.
    pub(crate) fn with(queue: &Queue, lane: Lane, slots: Slots) -> Self {
        let stop = CancellationToken::new();
        let source = queue.source(lane, slots.clone(), stop.clone());
        Self { source, context: WorkerContext::new("reader"), slots, stop }
    }

    /// The next delivery; `None` when there will be no other.
    pub(crate) async fn try_next(&mut self) -> Option<Delivery> {
        let ready = poll_fn(|context| self.source.poll_ready(context, &self.context));
        let Ok(()) = soon("the source is ready", ready).await;
        let Ok(task) = poll_fn(|context| self.source.poll_next(context, &self.context)).await.transpose();
        task.map(|task| task.args)
    }

    pub(crate) async fn next(&mut self) -> Delivery {
        soon("a delivery", self.try_next()).await.expect("the source has ended")
    }

    /// The next jobs. Each ends at once.
    pub(crate) async fn jobs(&mut self, count: usize) -> Vec<SessionId> {
        let mut jobs = Vec::new();
        for _ in 0..count {
            jobs.push(self.next().await.session);
        }
        jobs
    }

    /// Waits until so many slots are free.
    pub(crate) async fn free(&self, free: usize) {
        eventually(&format!("{free} slots are free"), async || self.slots.free() == free).await;
    }
}
