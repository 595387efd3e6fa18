//! What the handlers stand on.

use std::future::Future;
use std::sync::Arc;

use roundhouse_shared::bus::Bus;
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::Agent;
use roundhouse_shared::lifecycle::Lifecycle;
use roundhouse_shared::queue::Queue;
use roundhouse_shared::store::Store;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;

use crate::agents::Directory;
use crate::announce::Announcer;
use crate::problem::ApiProblem;
use crate::settings::{Limits, Settings};
use crate::wait::Waiter;

/// What the HTTP side is made of.
#[derive(Debug)]
pub struct Parts {
    /// The truth.
    pub store: Store,
    /// Where events come from.
    pub bus: Bus,
    /// Where work is rung for.
    pub queue: Queue,
    /// The configured agents; what live workers announce comes on top.
    pub agents: Vec<Agent>,
    /// The `[server]` section.
    pub settings: Settings,
    /// What other sections say.
    pub limits: Limits,
    /// How the process ends, and who owns its tasks.
    pub lifecycle: Lifecycle,
    /// The version of the binary, as clients are told it.
    pub version: &'static str,
}

/// The HTTP side of one process.
#[derive(Debug)]
pub struct App {
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) queue: Queue,
    pub(crate) agents: Directory,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) waiter: Waiter,
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) version: &'static str,
    /// Ends the waiter's task with the last one who could wait.
    _alive: DropGuard,
}

/// How handlers hold it.
pub(crate) type Shared = Arc<App>;

impl App {
    /// Puts the parts together and starts what runs beside the requests. Needs a runtime.
    pub fn new(parts: Parts) -> Self {
        let Parts { store, bus, queue, agents, settings, limits, lifecycle, version } = parts;
        let waiter = Waiter::default();
        let alive = CancellationToken::new();
        let task = waiter.clone().run(store.clone(), bus.notices(), alive.clone());
        let hard = lifecycle.hard().clone();
        lifecycle.spawn_vital("waiter", async move {
            tokio::select! {
                () = task => {}
                () = hard.cancelled() => {}
            }
        });
        let announcer = Arc::new(Announcer::new(store.clone(), bus.clone(), queue.clone()));
        let (gaps, hard, alive_too) =
            (announcer.clone().tell_gaps(), lifecycle.hard().clone(), alive.clone());
        lifecycle.spawn(async move {
            tokio::select! {
                () = gaps => {}
                () = hard.cancelled() => {}
                () = alive_too.cancelled() => {}
            }
        });
        Self {
            agents: Directory::new(agents, limits.worker_gap.0, queue.is_shared()),
            announcer,
            waiter,
            store,
            bus,
            queue,
            settings,
            limits,
            lifecycle,
            version,
            _alive: alive.drop_guard(),
        }
    }

    /// Runs something to its end even if the client goes away meanwhile: what is stored has to be told as well.
    pub(crate) async fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiProblem>> + Send + 'static,
    ) -> Result<T, ApiProblem> {
        match self.lifecycle.spawn(work.in_current_span()).await {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a request's work was cut off");
                Err(ApiProblem::new(Code::Internal))
            }
        }
    }
}
