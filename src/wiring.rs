//! Settings become parts: the store, the bus, the queues, the agents' engines.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use roundhouse_oracle::Oracle;
use roundhouse_shared::bus::{Bus, BusError};
use roundhouse_shared::lifecycle::Lifecycle;
use roundhouse_shared::queue::{Queue, QueueError};
use roundhouse_shared::store::{JobFilter, Store, StoreError};
use roundhouse_worker::{HeartStore, Ready, WorkerAgent};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::agents::{self, Built, Offered, Runs};
use crate::config::{ConfigError, Loaded};

/// How long a start waits for Postgres and Redis.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// The first wait between two tries; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest one.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

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
    let made = std::fs::create_dir_all(dir).and_then(|()| dir.canonicalize());
    let data_dir = made.map_err(|source| StartError::DataDir { path: dir.clone(), source })?;
    let store = Store::connect(&loaded.config.store, &data_dir).await?;
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
        until_up("the database", START_PATIENCE, || store.ping(), StoreError::is_outage).await?;
        let bus = Bus::connect(&loaded.config.redis)?;
        let queue = Queue::connect(&loaded.config.redis)?;
        let is_away = |error: &QueueError| matches!(error, QueueError::Unavailable(_));
        until_up("Redis (queues)", START_PATIENCE, || queue.ping(), is_away).await?;
        let is_away = |error: &BusError| matches!(error, BusError::Unavailable(_));
        until_up("Redis (bus)", START_PATIENCE, || bus.ping(), is_away).await?;
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

    /// Makes the worker known. It runs once [`Ready::run`] is called.
    pub(crate) async fn worker(&self, agents: &[Built]) -> Result<Ready, StartError> {
        let config = &self.loaded.config;
        let agents = agents
            .iter()
            .map(|built| WorkerAgent { agent: built.agent.clone(), engine: built.engine.clone() });
        let parts = roundhouse_worker::Parts {
            settings: config.worker.clone(),
            limits: roundhouse_worker::Limits {
                turn_timeout: config.limits.turn_timeout,
                cancel_grace: config.limits.cancel_grace,
            },
            store: self.store.clone(),
            heart: HeartStore { settings: config.store.clone(), data_dir: self.data_dir.clone() },
            bus: self.bus.clone(),
            queue: self.queue.clone(),
            agents: agents.collect(),
            data_dir: self.data_dir.clone(),
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
                body_limit: config.server.body_limit,
            },
            limits: roundhouse_api::Limits {
                injection_timeout: config.limits.injection_timeout,
                json_wait_timeout: config.limits.json_wait_timeout,
                data_dir: self.data_dir.clone(),
                workspace_roots: config.workspaces.roots.clone(),
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
        let agent = agent.build(url.as_deref());
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

/// Asks until it is there. What does not pass by waiting is an error at once.
async fn until_up<T, E, F>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> F,
    passes: impl Fn(&E) -> bool,
) -> Result<T, E>
where
    E: std::error::Error,
    F: Future<Output = Result<T, E>>,
{
    let until = Instant::now() + patience;
    let mut wait = FIRST_WAIT;
    loop {
        match ask().await {
            Err(error) if passes(&error) && Instant::now() + wait < until => {
                tracing::warn!(error = %crate::terminal::chain(&error), "waiting for {what}");
            }
            done => return done,
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// What this host calls itself.
fn host(loaded: &Loaded) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.or_else(|| loaded.environment.get("HOSTNAME").map(str::to_owned));
    name.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_waits_for_what_passes_and_for_nothing_else() {
        let mut tries = 0;
        let asked = || {
            tries += 1;
            let answer = if tries < 2 { Err(io::Error::other("away")) } else { Ok(tries) };
            async move { answer }
        };
        assert_eq!(until_up("it", START_PATIENCE, asked, |_| true).await.unwrap(), 2);

        let mut tries = 0;
        let mut wrong = || {
            tries += 1;
            async { Err::<(), _>(io::Error::other("wrong")) }
        };
        assert!(until_up("it", START_PATIENCE, &mut wrong, |_| false).await.is_err());
        assert!(until_up("it", FIRST_WAIT * 2, &mut wrong, |_| true).await.is_err());
        assert_eq!(tries, 3);
    }
}
