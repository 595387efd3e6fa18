//! Settings become parts: the store, the bus, the queues, the agents' engines.

use std::fs::DirBuilder;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::Duration;

use roundhouse_oracle::Oracle;
use roundhouse_shared::bus::{Bus, BusError};
use roundhouse_shared::lifecycle::Lifecycle;
use roundhouse_shared::queue::{Queue, QueueError};
use roundhouse_shared::store::{JobFilter, Store, StoreError};
use roundhouse_shared::workspaces::Workspaces;
use roundhouse_worker::{HeartStore, Ready, WorkerAgent};
use tokio::net::TcpListener;

use crate::agents::{self, Built, Offered, Runs, reason};
use crate::config::{ConfigError, Loaded, shown_url};
use crate::hardening;
use crate::patience::until_up;

/// How long a start waits for Postgres and Redis.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Why a process does not start, or has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("`agents.{name}` cannot be used: {reason}")]
    Agent { name: String, reason: String },
    #[error("the data directory {} cannot be used", path.display())]
    DataDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot listen on {address}")]
    Listen {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the database has not the schema of this version: run `roundhouse migrate`")]
    Schema(#[source] StoreError),
    #[error("{what} at {url} is still away after {} s", START_PATIENCE.as_secs())]
    Away {
        what: &'static str,
        url: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("the built-in oracle cannot start")]
    Oracle(#[source] io::Error),
    #[error("a task that the process cannot live without has ended; the log says which")]
    Failed,
}

/// What api and worker stand on.
pub(crate) struct Foundation {
    pub(crate) loaded: Loaded,
    pub(crate) data_dir: PathBuf,
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) queue: Queue,
    pub(crate) lifecycle: Lifecycle,
}

/// Opens the store alone.
pub(crate) async fn open_store(loaded: &Loaded) -> Result<(Store, PathBuf), StartError> {
    let dir = &loaded.config.data.dir;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir).and_then(|()| dir.canonicalize());
    let data_dir = made.map_err(|source| StartError::DataDir { path: dir.clone(), source })?;
    hardening::warn_where_readable(&data_dir);
    let store = Store::connect(&loaded.config.store, &data_dir).await?;
    if let Some(file) = loaded.config.store.sqlite_file(&data_dir) {
        hardening::warn_where_readable(&file);
    }
    Ok((store, data_dir))
}

/// Brings the schema up to date, waiting for the database if need be.
pub(crate) async fn migrate(store: &Store) -> Result<(), StoreError> {
    until_up("the database", START_PATIENCE, || store.migrate(), StoreError::is_outage).await
}

impl Foundation {
    /// Opens everything that other processes have to provide, waiting for it if need be.
    pub(crate) async fn open(loaded: Loaded) -> Result<Self, StartError> {
        let (store, data_dir) = open_store(&loaded).await?;
        await_up("the database", &loaded.config.store.url, || store.ping(), StoreError::is_outage).await?;
        let redis = &loaded.config.redis;
        let (bus, queue) = (Bus::connect(redis)?, Queue::connect(redis)?);
        let is_away = |error: &QueueError| matches!(error, QueueError::Unavailable(_));
        await_up("Redis", &redis.url, || queue.ping(), is_away).await?;
        let is_away = |error: &BusError| matches!(error, BusError::Unavailable(_));
        await_up("Redis", &redis.url, || bus.ping(), is_away).await?;
        Ok(Self { loaded, data_dir, store, bus, queue, lifecycle: Lifecycle::new() })
    }

    /// Waits until another process has brought the schema up to date.
    pub(crate) async fn await_schema(&self) -> Result<(), StartError> {
        let one = JobFilter { limit: 1, ..JobFilter::default() };
        let asked =
            until_up("the database's schema", START_PATIENCE, || self.store.jobs(one), |_| true).await;
        match asked {
            Ok(_) => Ok(()),
            Err(error) if error.is_outage() => Err(error.into()),
            Err(error) => Err(StartError::Schema(error)),
        }
    }

    /// The agents of this process.
    pub(crate) async fn agents(&self) -> Vec<Offered> {
        let mut agents = agents::offered(&self.loaded.config, &self.loaded.environment);
        for agent in &mut agents {
            agent.find_model(&self.loaded.environment).await;
        }
        agents
    }

    /// Where sessions may work. A root that is missing now may be made later, and is compared as it was written.
    fn workspaces(&self) -> Workspaces {
        let roots = self.loaded.config.workspaces.roots.iter();
        let real = |root: &PathBuf| root.canonicalize().unwrap_or_else(|_| root.clone());
        Workspaces { data_dir: self.data_dir.clone(), roots: roots.map(real).collect() }
    }

    /// Makes the worker known. It runs once [`Ready::run`] is called.
    pub(crate) async fn worker(&self, agents: &[Built]) -> Result<Ready, StartError> {
        let config = &self.loaded.config;
        let agents = agents.iter().map(|built| WorkerAgent {
            agent: built.agent.clone(),
            engine: built.engine.clone(),
            turn_timeout: config.agents.get(&built.agent.name).and_then(|agent| agent.turn_timeout),
        });
        let parts = roundhouse_worker::Parts {
            settings: config.worker.clone(),
            limits: roundhouse_worker::Limits {
                turn_timeout: config.limits.turn_timeout,
                cancel_grace: config.limits.cancel_grace,
                interaction_timeout: config.limits.interaction_timeout,
            },
            store: self.store.clone(),
            heart: HeartStore { settings: config.store.clone(), data_dir: self.data_dir.clone() },
            bus: self.bus.clone(),
            queue: self.queue.clone(),
            agents: agents.collect(),
            workspaces: self.workspaces(),
            host: host(&self.loaded),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lifecycle: self.lifecycle.clone(),
        };
        Ok(roundhouse_worker::register(parts).await?)
    }

    /// Listens where the configuration says.
    pub(crate) async fn listen(&self) -> Result<(TcpListener, SocketAddr), StartError> {
        let server = &self.loaded.config.server;
        if !server.is_loopback() {
            tracing::warn!(
                listen = server.listen,
                "insecure_bind: whoever reaches this address can use every agent, there are no API keys"
            );
        }
        let bound = async {
            let listener = TcpListener::bind(&server.listen).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        bound.await.map_err(|source| StartError::Listen { address: server.listen.clone(), source })
    }

    /// The HTTP side, to be served.
    pub(crate) fn app(&self, agents: Vec<roundhouse_shared::domain::Agent>) -> roundhouse_api::App {
        let config = &self.loaded.config;
        roundhouse_api::App::new(roundhouse_api::Parts {
            store: self.store.clone(),
            bus: self.bus.clone(),
            queue: self.queue.clone(),
            agents,
            settings: roundhouse_api::Settings {
                listen: config.server.listen.clone(),
                public_origins: config.server.public_origins.clone(),
                public_hosts: config.server.public_hosts.clone(),
                body_limit: config.server.body_limit,
                open_files: hardening::open_files(),
                ..roundhouse_api::Settings::default()
            },
            limits: roundhouse_api::Limits {
                injection_timeout: config.limits.injection_timeout,
                json_wait_timeout: config.limits.json_wait_timeout,
                worker_gap: config.limits.worker_gap,
                workspaces: self.workspaces(),
            },
            lifecycle: self.lifecycle.clone(),
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    /// Waits for the end of the process.
    pub(crate) async fn run(self) -> Result<(), StartError> {
        self.lifecycle.run(self.loaded.config.worker.shutdown_grace.0).await;
        self.store.close().await;
        if self.lifecycle.failed() { Err(StartError::Failed) } else { Ok(()) }
    }
}

/// The engines of the agents, and the oracle that some of them may run on. It lives as long as it is held.
pub(crate) async fn build(
    agents: Vec<Offered>,
    configured: bool,
) -> Result<(Vec<Built>, Option<Oracle>), StartError> {
    let wants_oracle = agents.iter().any(|agent| matches!(agent.runs, Runs::Oracle(_)));
    let oracle = if wants_oracle {
        let settings =
            roundhouse_oracle::Settings { record: false, ..roundhouse_oracle::Settings::default() };
        Some(Oracle::start_with(settings).await.map_err(StartError::Oracle)?)
    } else {
        None
    };
    let url = oracle.as_ref().map(Oracle::base_url);
    let mut built = Vec::new();
    for agent in agents {
        let has_all = !matches!(agent.runs, Runs::Nothing(..));
        let is_program = matches!(agent.runs, Runs::ClaudeCli(_));
        let mut agent = agent.build(url.as_deref());
        // A program is there or not, and of the right version or not, from the start. A server may come later.
        if is_program
            && let Ok(engine) = &agent.engine
            && let Err(error) = engine.available().await
        {
            agent.engine = Err(reason(error));
            built.push(agent);
            continue;
        }
        match &agent.engine {
            // Something in its table is wrong.
            Err(reason) if configured && has_all => {
                return Err(StartError::Agent { name: agent.agent.name, reason: reason.clone() });
            }
            _ => built.push(agent),
        }
    }
    Ok((built, oracle))
}

/// Asks until it is there, and says what is not.
async fn await_up<T, E, F>(
    what: &'static str,
    url: &str,
    ask: impl FnMut() -> F,
    passes: impl Fn(&E) -> bool,
) -> Result<T, StartError>
where
    E: std::error::Error + Send + Sync + 'static,
    F: Future<Output = Result<T, E>>,
    StartError: From<E>,
{
    until_up(what, START_PATIENCE, ask, &passes).await.map_err(|error| {
        if passes(&error) {
            StartError::Away { what, url: shown_url(url), source: Box::new(error) }
        } else {
            error.into()
        }
    })
}

/// What this host calls itself.
fn host(loaded: &Loaded) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.or_else(|| loaded.environment.get("HOSTNAME").map(str::to_owned));
    name.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}
