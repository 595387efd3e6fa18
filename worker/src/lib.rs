//! The session actor and what keeps it honest.
//!
//! A worker takes rings from the queues (`jobs`), takes the session's lease and runs it until it has no mail
//! (`session`, `turn`), on an engine that it opens or has kept warm (`opening`, `warm`). Beside that it renews its leases
//! (`heartbeat`), declares those dead that do not, takes over from workers that died (`reaper`) and rings for mail that was forgotten (`sweeper`). Forks, trims
//! and resets are runs without a turn (`maintenance`); what they leave of the engines' own conversations is deleted
//! (`collector`).

mod announced;
mod asked;
mod between;
mod claims;
mod collector;
mod events;
mod heartbeat;
mod incarnation;
mod jobs;
mod listener;
mod maintenance;
mod opening;
mod outbox;
mod progress;
mod published;
mod reaper;
mod registry;
mod session;
mod settings;
mod sweeper;
mod translate;
mod turn;
mod turn_clock;
mod warm;
mod watch;
mod workspace;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use roundhouse_engines::contract::Engine;
use roundhouse_shared::bus::Bus;
use roundhouse_shared::domain::{Agent, AgentStatus, EngineKind, Worker as WorkerRow, WorkerId};
use roundhouse_shared::leftovers;
use roundhouse_shared::lifecycle::Lifecycle;
use roundhouse_shared::queue::Queue;
use roundhouse_shared::store::{Store, StoreError};
use roundhouse_shared::units::Span;
use roundhouse_shared::workspaces::Workspaces;

pub use settings::{Limits, Settings};

use announced::Announced;
use incarnation::{Identity, Incarnation};
use registry::Registry;
use warm::Warm;

/// What a worker is made of.
pub struct Parts {
    /// The `[worker]` section.
    pub settings: Settings,
    /// The limits of a turn.
    pub limits: Limits,
    /// The store.
    pub store: Store,
    /// How the heartbeat opens a store of its own: nothing that this process does may keep it from being renewed.
    pub heart: HeartStore,
    /// The bus.
    pub bus: Bus,
    /// The queues.
    pub queue: Queue,
    /// What this worker can run.
    pub agents: Vec<WorkerAgent>,
    /// Where sessions may work.
    pub workspaces: Workspaces,
    /// The name of this host.
    pub host: String,
    /// The version of this binary.
    pub version: String,
    /// The process.
    pub lifecycle: Lifecycle,
}

/// Where the heartbeat finds the store.
#[derive(Debug, Clone)]
pub struct HeartStore {
    /// The `[store]` section.
    pub settings: roundhouse_shared::store::Settings,
    /// The data directory.
    pub data_dir: PathBuf,
}

/// An agent and what runs it here.
pub struct WorkerAgent {
    /// The agent.
    pub agent: Agent,
    /// Its engine, or why it cannot run here.
    pub engine: Result<Arc<dyn Engine>, String>,
    /// Its own limit for a turn; `None`: that of all.
    pub turn_timeout: Option<Span>,
}

/// An agent that this worker can run.
pub(crate) struct Runnable {
    agent: Agent,
    engine: Arc<dyn Engine>,
    turn_timeout: Span,
}

/// A worker that runs, shared by all its tasks.
pub(crate) struct Worker {
    identity: Identity,
    settings: Settings,
    limits: Limits,
    store: Store,
    bus: Bus,
    queue: Queue,
    engines: HashMap<String, Runnable>,
    workspaces: Workspaces,
    host: String,
    registry: Arc<Registry>,
    warm: Warm,
    announced: Announced,
    published: published::Published,
    lifecycle: Lifecycle,
}

impl Worker {
    /// The kinds of engines that it has, some perhaps more than once.
    fn engine_kinds(&self) -> impl Iterator<Item = EngineKind> {
        self.engines.values().map(|here| here.agent.engine)
    }
}

/// A worker that has made itself known and can be run.
pub struct Ready {
    worker: Arc<Worker>,
    heart: HeartStore,
    row: WorkerRow,
}

/// Makes a worker known in the store. From then on its agents can be asked for.
///
/// # Errors
/// The store's.
pub async fn register(parts: Parts) -> Result<Ready, StoreError> {
    let row = WorkerRow {
        id: WorkerId::generate(),
        host: parts.host.clone(),
        pid: i64::from(std::process::id()),
        version: parts.version,
        slots: i64::try_from(parts.settings.slots).unwrap_or(i64::MAX),
        agents: parts.agents.iter().map(status).collect(),
        stopping: false,
        started_ms: 0,
        seen_ms: 0,
        expires_ms: 0,
        leases: Vec::new(),
    };
    let asked = Instant::now();
    parts.store.register_worker(&row, parts.settings.lease.millis()).await?;
    let engines = parts.agents.into_iter().filter_map(|WorkerAgent { agent, engine, turn_timeout }| {
        let engine = engine.ok()?;
        let turn_timeout = turn_timeout.unwrap_or(parts.limits.turn_timeout);
        Some((agent.name.clone(), Runnable { agent, engine, turn_timeout }))
    });
    let worker = Arc::new(Worker {
        identity: Identity::new(Incarnation::new(
            row.id,
            asked + heartbeat::good_for(parts.settings.lease.0),
        )),
        registry: Arc::new(Registry::default()),
        engines: engines.collect(),
        settings: parts.settings,
        limits: parts.limits,
        store: parts.store,
        bus: parts.bus,
        queue: parts.queue,
        workspaces: parts.workspaces,
        host: parts.host,
        warm: Warm::default(),
        announced: Announced::default(),
        published: published::Published::default(),
        lifecycle: parts.lifecycle,
    });
    Ok(Ready { worker, heart: parts.heart, row })
}

fn status(here: &WorkerAgent) -> AgentStatus {
    AgentStatus {
        agent: here.agent.clone(),
        available: here.engine.is_ok(),
        reason: here.engine.as_ref().err().cloned(),
        left_out_tools: Vec::new(),
    }
}

impl Ready {
    /// What this worker can run, as it says to others.
    pub fn agents(&self) -> &[AgentStatus] {
        &self.row.agents
    }

    /// Runs the worker until it is told to stop and all its turns have ended or are handed back.
    pub async fn run(self) {
        let Self { worker, heart, row } = self;
        tracing::info!(worker.id = %worker.identity.now().id, slots = worker.settings.slots, "worker runs");
        let heartbeat = heartbeat::Heartbeat::start(&worker, heart, row);
        let stop = worker.lifecycle.soft().clone();
        let until_stop = |task: futures::future::BoxFuture<'static, ()>| {
            let stop = stop.clone();
            worker.lifecycle.spawn(async move {
                tokio::select! {
                    () = task => {}
                    () = stop.cancelled() => {}
                }
            })
        };
        until_stop(Box::pin(reaper::run(worker.clone())));
        until_stop(Box::pin(sweeper::run(worker.clone())));
        until_stop(Box::pin(warm::run(worker.clone())));
        until_stop(Box::pin(collector::run(worker.clone())));
        until_stop(Box::pin(published::run(worker.clone())));
        until_stop(Box::pin(leftovers::run(worker.store.clone(), worker.bus.clone(), stop.clone())));
        until_stop(Box::pin(roundhouse_engines::process::reap_strays()));
        let listener = worker.lifecycle.spawn(listener::run(worker.clone()));
        let stopping = worker.lifecycle.spawn({
            let worker = worker.clone();
            async move {
                worker.lifecycle.soft().cancelled().await;
                if let Err(error) = worker.store.stop_worker(worker.identity.now().id).await {
                    tracing::warn!(%error, "could not say that this worker stops");
                }
            }
        });
        jobs::run(&worker).await;
        worker.warm.end_all(&worker).await;
        published::forget(&worker).await;
        // The leases are all gone now; whatever still runs of this worker may go.
        listener.abort();
        heartbeat.stop().await;
        if worker.lifecycle.soft().is_cancelled() {
            let _ = stopping.await;
        }
        tracing::info!(worker.id = %worker.identity.now().id, "worker ended");
    }
}
