//! A deployment: processes, a store, a bus, and the oracle behind its agents.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use roundhouse_oracle::Oracle;
use serde_json::Value;

use super::claude::{ORACLE, claude_agents};
use super::pgbouncer::PgBouncer;
use super::seen::started_with;
use super::services::{Database, redis_url};
use super::{Client, Process, until};
use crate::proxy::{Proxy, target_of};

/// Which store, which bus, and how many processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One process, SQLite, everything else in process: the default.
    Embedded,
    /// One process on Postgres.
    EmbeddedPostgres,
    /// One process on SQLite with queue and bus in Redis.
    EmbeddedRedis,
    /// Two api processes and two workers on Postgres and Redis.
    Distributed,
}

/// What a test wants otherwise than usual.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) apis: usize,
    pub(crate) workers: usize,
    pub(crate) slots: usize,
    pub(crate) lease: &'static str,
    /// Further variables for every process.
    pub(crate) env: Vec<(&'static str, String)>,
    /// The address of a Redis of the test's own.
    pub(crate) redis: Option<String>,
    /// Whether Postgres is reached through a PgBouncer of the test's own.
    pub(crate) pgbouncer: bool,
    /// Whether there are agents that Claude Code runs: every process then asks that for its version.
    pub(crate) claude: bool,
    /// Whether the processes reach Postgres through a proxy of the test's own.
    pub(crate) proxied: bool,
    /// Further agents, as the configuration has them; [`ORACLE`] in it is the oracle's address.
    pub(crate) agents: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            apis: 2,
            workers: 2,
            slots: 8,
            lease: "10s",
            env: Vec::new(),
            redis: None,
            pgbouncer: false,
            claude: false,
            proxied: false,
            agents: String::new(),
        }
    }
}

/// A deployment that runs.
pub(crate) struct Deployment {
    pub(crate) kind: Kind,
    pub(crate) oracle: Oracle,
    /// Processes that serve HTTP.
    pub(crate) apis: Vec<Process>,
    /// Processes that only run turns.
    pub(crate) workers: Vec<Process>,
    /// A client for each of `apis`.
    pub(crate) clients: Vec<Client>,
    /// Processes that were replaced: their logs are looked at in the end.
    pub(super) replaced: Vec<Process>,
    env: Vec<(String, String)>,
    database: Option<Database>,
    _pgbouncer: Option<PgBouncer>,
    proxy: Option<Proxy>,
    dir: tempfile::TempDir,
    started: usize,
}

impl Deployment {
    pub(crate) async fn start(kind: Kind) -> Self {
        Self::with(kind, Options::default()).await
    }

    pub(crate) async fn with(kind: Kind, options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let oracle = Oracle::start().await.unwrap();
        let all = agents(&oracle) + &claude_agents(&options) + &options.agents;
        let all = all.replace(ORACLE, &oracle.base_url());
        std::fs::write(dir.path().join("roundhouse.toml"), all).unwrap();
        let database = match kind {
            Kind::Embedded | Kind::EmbeddedRedis => None,
            Kind::EmbeddedPostgres | Kind::Distributed => Some(Database::create().await),
        };
        let mut env: Vec<(String, String)> = Vec::new();
        let mut set = |key: &str, value: String| env.push((key.to_owned(), value));
        set("ROUNDHOUSE_LISTEN", "127.0.0.1:0".to_owned());
        set("ROUNDHOUSE_DATA_DIR", dir.path().join("data").display().to_string());
        set("ROUNDHOUSE_LEASE", options.lease.to_owned());
        set("ROUNDHOUSE_SWEEP", "500ms".to_owned());
        set("ROUNDHOUSE_SLOTS", options.slots.to_string());
        // What a shell or a program of the host's user reads when it starts is no part of a test.
        set("HOME", dir.path().display().to_string());
        set("RUST_BACKTRACE", "1".to_owned());
        set("ROUNDHOUSE_LOG", "debug,sqlx=warn,hyper=warn,h2=warn,reqwest=warn,apalis=info".to_owned());
        let mut proxy = None;
        if let Some(database) = &database {
            let url = database.url();
            if options.proxied {
                proxy = Some(Proxy::to(&target_of(&url)).await);
            }
            set("ROUNDHOUSE_DATABASE_URL", proxy.as_ref().map_or(url.clone(), |proxy| proxy.url(&url)));
        }
        let pgbouncer = database.as_ref().filter(|_| options.pgbouncer).map(|database| {
            let pgbouncer = PgBouncer::start(&database.url());
            set("ROUNDHOUSE_DATABASE_URL", pgbouncer.url(&database.url()));
            set("ROUNDHOUSE_PGBOUNCER", "true".to_owned());
            pgbouncer
        });
        if matches!(kind, Kind::EmbeddedRedis | Kind::Distributed) {
            set("ROUNDHOUSE_REDIS_URL", options.redis.clone().unwrap_or_else(redis_url));
            set("ROUNDHOUSE_REDIS_PREFIX", format!("it-{}", uuid::Uuid::now_v7().simple()));
        }
        for (key, value) in &options.env {
            set(key, value.clone());
        }
        let mut deployment = Self {
            kind,
            oracle,
            apis: Vec::new(),
            workers: Vec::new(),
            clients: Vec::new(),
            replaced: Vec::new(),
            env,
            database,
            _pgbouncer: pgbouncer,
            proxy,
            dir,
            started: 0,
        };
        if kind == Kind::Distributed {
            for _ in 0..options.apis {
                deployment.add_api("api").await;
            }
            for _ in 0..options.workers {
                deployment.add_worker();
            }
        } else {
            deployment.add_api("up").await;
        }
        deployment.await_agent().await;
        deployment
    }

    /// The agents, as the configuration has them.
    pub(crate) fn configuration(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("roundhouse.toml")).unwrap()
    }

    /// Stops the only process as an operator would, and starts it with other agents.
    pub(crate) async fn reconfigure(&mut self, agents: &str) {
        self.apis[0].stop().await;
        std::fs::write(self.dir.path().join("roundhouse.toml"), agents).unwrap();
        self.restart(0).await;
    }

    /// Starts one more process that serves HTTP, and a client for it.
    pub(crate) async fn add_api(&mut self, role: &'static str) {
        let mut process = self.spawn(role);
        self.clients.push(Client::new(process.url().await));
        self.apis.push(process);
    }

    /// Starts one more worker.
    pub(crate) fn add_worker(&mut self) {
        let process = self.spawn("worker");
        self.workers.push(process);
    }

    /// Starts a process on this deployment's data.
    pub(super) fn spawn(&mut self, role: &'static str) -> Process {
        self.started += 1;
        Process::start(role, self.started, self.dir.path(), &self.env)
    }

    /// Waits until every client can chat, and every worker that runs is known.
    pub(crate) async fn await_agent(&self) {
        let workers = if self.kind == Kind::Distributed { &self.workers } else { &self.apis };
        let pids: Vec<_> = workers.iter().filter(|process| process.runs()).map(Process::pid).collect();
        for client in self.live_clients() {
            until("the agent to be available", async || {
                let workers = client.get("/workers").await.json();
                let known: Vec<_> =
                    workers["items"].as_array()?.iter().map(|worker| worker["pid"].clone()).collect();
                let agents = client.get("/agents").await.json();
                let agent =
                    agents["items"].as_array()?.iter().find(|agent| agent["name"] == "oracle")?.clone();
                (pids.iter().all(|pid| known.contains(&Value::from(*pid))) && agent["available"] == true)
                    .then_some(())
            })
            .await;
        }
    }

    /// The clients of processes that run.
    pub(super) fn live_clients(&self) -> impl Iterator<Item = &Client> {
        self.apis.iter().zip(&self.clients).filter(|(api, _)| api.runs()).map(|(_, client)| client)
    }

    /// The value of a variable that every process has.
    pub(super) fn variable(&self, name: &str) -> &str {
        &self.env.iter().rfind(|(key, _)| key == name).expect("a variable that is set").1
    }

    /// The data directory of its processes.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the processes reach Postgres through, where that was asked for.
    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a deployment with a proxy")
    }

    /// The database, where it is a Postgres.
    pub(crate) fn database(&self) -> &Database {
        self.database.as_ref().expect("a kind with Postgres")
    }

    /// The only client, or the first of them.
    pub(crate) fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// The last client: another process than the first, where there are two.
    pub(crate) fn other(&self) -> &Client {
        self.clients.last().unwrap()
    }

    /// Stops everything as an operator would. Nothing may be left over: no open job, no lease, no process.
    pub(crate) async fn end(mut self) {
        let client = self.live_clients().next().expect("a process to ask").clone();
        until("all jobs to end and all leases to go", async || {
            let queues = client.get("/queues").await.json();
            let open: i64 = queues["items"]
                .as_array()?
                .iter()
                .map(|queue| queue["depth"].as_i64().unwrap_or(1) + queue["running"].as_i64().unwrap_or(1))
                .sum();
            let workers = client.get("/workers").await.json();
            let leased = workers["items"]
                .as_array()?
                .iter()
                .any(|worker| worker["leases"].as_array().is_none_or(|leases| !leases.is_empty()));
            (open == 0 && !leased).then_some(())
        })
        .await;
        for process in self.workers.iter_mut().chain(&mut self.apis) {
            process.stop().await;
        }
        for process in self.workers.iter().chain(&self.apis).chain(&self.replaced) {
            let log = process.log();
            assert!(!log.contains("panicked"), "{} panicked:\n{log}", process.role);
        }
        let home = format!("HOME={}", self.dir.path().display());
        until("every process that was started here to be gone", async || {
            started_with(|variable| variable == home).is_empty().then_some(())
        })
        .await;
        if let Some(database) = self.database.take() {
            database.drop().await;
        }
    }

    /// Everything that all processes have logged, for a failing test to show.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for process in self.workers.iter().chain(&self.apis) {
            let _ = writeln!(text, "=== {} {}\n{}", process.role, process.pid(), process.log());
        }
        text
    }

    /// Waits until a worker runs a turn of this session; returns the worker's process.
    pub(crate) async fn worker_of(&self, session: &str) -> &Process {
        let pid = until("a worker to take the session", async || self.pid_of(session).await).await;
        let all = self.workers.iter().chain(&self.apis);
        all.into_iter().find(|process| u64::from(process.pid()) == pid).expect("a process of this deployment")
    }
}

/// The agents of every test: `oracle` answers from its context, `priced` also has a price, `brittle` gives up after
/// the second try; `tooled` has tools, `asking` asks before it uses a shell, `foreman` too and has children, `limited` may not go on for long.
fn agents(oracle: &Oracle) -> String {
    let tools = r#"["shell", "read_file", "write_file", "edit_file", "list_files", "search_files", "ask_user", "spawn_agent"]"#;
    let spawn = r#"spawn = ["oracle", "tooled", "asking", "manager", "foreman"]"#;
    let agents = [
        ("oracle", String::new()),
        ("priced", "prices = { input = 1.0, output = 10.0, cache = 0.1 }\n".to_owned()),
        ("brittle", "max_tries = 2\n".to_owned()),
        ("tooled", format!("tools = {tools}\n{spawn}\n")),
        ("asking", "tools = [\"shell\"]\npermissions = { ask = [\"shell\"] }\n".to_owned()),
        (
            "foreman",
            format!("tools = [\"shell\", \"spawn_agent\"]\n{spawn}\npermissions = {{ ask = [\"shell\"] }}\n"),
        ),
        ("manager", format!("tools = [\"spawn_agent\"]\n{spawn}\n")),
        ("hasty", "turn_timeout = \"5s\"\n".to_owned()),
        (
            "frugal",
            "tools = [\"shell\"]\nprices = { input = 1.0, output = 10.0 }\nmax_cost = 0.000001\n".to_owned(),
        ),
        ("forgetful", "context_window = 500\n".to_owned()),
        ("limited", "tools = [\"shell\"]\nmax_iterations = 2\n".to_owned()),
    ];
    let (base, mut file) = (oracle.base_url(), String::new());
    for (name, more) in agents {
        let _ = writeln!(
            file,
            "[agents.{name}]\nengine = \"openai\"\nbase_url = \"{base}/v1\"\nmodel = \"oracle\"\n{more}"
        );
    }
    file
}

/// A further agent, whose model is a server of the test's own ([`Options::agents`]).
pub(crate) fn agent(name: &str, base_url: &str, more: &str) -> String {
    format!("[agents.{name}]\nengine = \"openai\"\nbase_url = \"{base_url}\"\nmodel = \"m\"\n{more}\n")
}

/// A field of a JSON object as text.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A moment, where a test has to give something the chance to go wrong.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);
