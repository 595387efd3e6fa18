//! A worker process on a database of its own, with an engine whose turns end when they are let, and a clock that can step.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use roundhouse_engines::contract::{
    Answer, AssistantMessage, Capabilities, ContextKind, Engine, EngineError, EngineEvent, EngineSession,
    InputMessage, Intake, OpenSession, TurnDone, TurnInput,
};
use roundhouse_shared::bus::Bus;
use roundhouse_shared::domain::{
    Agent, EngineKind, Job, JobId, JobState, Lane, OnBusy, SessionId, SessionJob, Worker, WorkerId,
};
use roundhouse_shared::lifecycle::Lifecycle;
use roundhouse_shared::queue::Queue;
use roundhouse_shared::store::{Admission, Clock, NewSession, Settings as StoreSettings, Store, Target};
use roundhouse_shared::units::Span;
use roundhouse_shared::workspaces::Workspaces;
use roundhouse_worker::{HeartStore, Limits, Parts, Settings, WorkerAgent};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::support::{soon, until};

/// Long for a machine that is busy, and short for whoever waits for several of them.
const LEASE: Duration = Duration::from_secs(6);

/// An engine whose turns end when they are let.
struct Patient(watch::Receiver<bool>);

struct Turn {
    may_end: watch::Receiver<bool>,
    left: Vec<EngineEvent>,
}

#[async_trait]
impl Engine for Patient {
    fn capabilities(&self) -> Capabilities {
        Capabilities { context: ContextKind::Replayed, works_on_files: false, intake: Intake::Boundaries }
    }

    async fn available(&self) -> Result<(), EngineError> {
        Ok(())
    }

    async fn open(&self, _spec: OpenSession) -> Result<Box<dyn EngineSession>, EngineError> {
        Ok(Box::new(Turn { may_end: self.0.clone(), left: Vec::new() }))
    }
}

#[async_trait]
impl EngineSession for Turn {
    async fn send(&mut self, _input: TurnInput) -> Result<(), EngineError> {
        let answer = AssistantMessage { content: "done".to_owned(), ..AssistantMessage::default() };
        let end = TurnDone { iterations: 1, ..TurnDone::default() };
        self.left = vec![EngineEvent::TurnDone(end), EngineEvent::MessageDone(answer)];
        Ok(())
    }

    async fn next(&mut self) -> EngineEvent {
        let _ = self.may_end.wait_for(|may_end| *may_end).await;
        match self.left.pop() {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    async fn proceed(&mut self, _messages: Vec<InputMessage>) {}
    async fn answer(&mut self, _id: &str, _answer: Answer) {}
    async fn interrupt(&mut self) {}
    async fn close(self: Box<Self>, _grace: Duration) {}
}

/// A database, a clock, and a worker process on it.
pub(crate) struct House {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    queue: Queue,
    pub(crate) may_end: watch::Sender<bool>,
    lifecycle: Lifecycle,
    task: tokio::task::JoinHandle<()>,
    url: String,
    schema: Option<(String, String)>,
    folder: TempDir,
}

/// Where a house stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Sqlite,
    Postgres,
}

/// A schema of its own on the tests' server: the URL with it, and how to delete it.
async fn postgres() -> (String, (String, String)) {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where the server is")]
    let server = std::env::var("ROUNDHOUSE_TEST_POSTGRES_URL").expect("run the tests by `cargo xtask test`");
    let schema = format!("worker_{}", uuid::Uuid::now_v7().simple());
    let mut connection = PgConnection::connect(&server).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&mut connection).await.unwrap();
    let joint = if server.contains('?') { '&' } else { '?' };
    (format!("{server}{joint}options[search_path]={schema}"), (server, schema))
}

impl House {
    pub(crate) async fn new(on: On) -> Self {
        Self::with_heart(on, |url| url).await
    }

    /// One whose heartbeat finds the database at another address.
    pub(crate) async fn with_heart(on: On, heart_url: impl FnOnce(String) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (url, schema) = match on {
            On::Sqlite => ("sqlite".to_owned(), None),
            On::Postgres => {
                let (url, schema) = postgres().await;
                (url, Some(schema))
            }
        };
        let settings = StoreSettings { url: url.clone(), max_connections: 6, ..StoreSettings::default() };
        let store = Store::connect(&settings, folder.path()).await.unwrap();
        store.migrate().await.unwrap();
        let clock = settings.clock.clone();
        let queue = Queue::connect(&roundhouse_shared::redis::Settings::default()).unwrap();
        let (may_end, turns) = watch::channel(false);
        let lifecycle = Lifecycle::new();
        let minute = Span(Duration::from_mins(1));
        let agent =
            Agent { name: "patient".to_owned(), engine: EngineKind::OpenAi, model: None, demo: false };
        let ready = roundhouse_worker::register(Parts {
            settings: Settings {
                lease: Span(LEASE),
                sweep: Span(Duration::from_millis(200)),
                ..Settings::default()
            },
            limits: Limits { turn_timeout: minute, cancel_grace: minute, interaction_timeout: minute },
            store: store.clone(),
            heart: HeartStore {
                settings: StoreSettings { url: heart_url(url.clone()), ..settings },
                data_dir: folder.path().to_owned(),
            },
            bus: Bus::local(),
            queue: queue.clone(),
            agents: vec![WorkerAgent { agent, engine: Ok(Arc::new(Patient(turns))), turn_timeout: None }],
            workspaces: Workspaces { data_dir: folder.path().to_owned(), roots: Vec::new() },
            host: "here".to_owned(),
            version: "1.2.3".to_owned(),
            lifecycle: lifecycle.clone(),
        })
        .await
        .unwrap();
        let task = lifecycle.spawn(ready.run());
        Self { store, clock, queue, may_end, lifecycle, task, url, schema, folder }
    }

    /// Admits a message of a new session, without a ring.
    pub(crate) async fn admit(&self) -> SessionJob {
        let session = NewSession {
            id: SessionId::generate(),
            agent: "patient".to_owned(),
            engine: EngineKind::OpenAi,
            model: None,
            title: None,
            cwd: String::new(),
            metadata: serde_json::json!({}),
        };
        let admission = Admission {
            job: JobId::generate(),
            target: Target::New(session),
            message: "work".to_owned(),
            attachments: None,
            origin: "user".to_owned(),
            model: None,
            on_busy: OnBusy::Inject,
            idempotency: None,
        };
        let admitted = self.store.admit(&admission).await.unwrap();
        SessionJob { job: admitted.job, session: admitted.session, kind: admitted.kind }
    }

    /// A job of a new session that the worker process runs.
    pub(crate) async fn running(&self) -> SessionJob {
        let job = self.admit().await;
        self.queue.push(Lane::Chat, job.session).await.unwrap();
        until(async || self.job(job).await.state == JobState::Claimed).await;
        job
    }

    pub(crate) async fn job(&self, job: SessionJob) -> Job {
        self.store.job(job.job).await.unwrap().unwrap()
    }

    /// The job once it has ended.
    pub(crate) async fn ended(&self, job: SessionJob) -> Job {
        until(async || self.job(job).await.state.ended()).await;
        self.job(job).await
    }

    async fn beats(&self) -> i64 {
        self.store.sightings().await.unwrap().iter().map(|seen| seen.beats).max().unwrap()
    }

    /// Waits until the worker process was renewed so many times more.
    pub(crate) async fn renewed(&self, times: i64) {
        let before = self.beats().await;
        until(async || before + times <= self.beats().await).await;
    }

    /// Changes what no method of the store changes.
    pub(crate) async fn execute(&self, sql: &'static str) {
        if self.schema.is_some() {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        } else {
            let options = SqliteConnectOptions::new().filename(self.folder.path().join("roundhouse.db"));
            let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        }
    }

    /// A connection that can hold locks on rows, of a house on Postgres.
    pub(crate) async fn operator(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn end(self) {
        self.lifecycle.soft().cancel();
        self.lifecycle.hard().cancel();
        soon(self.task).await.unwrap();
        self.store.close().await;
        if let Some((server, schema)) = self.schema {
            let mut connection = PgConnection::connect(&server).await.unwrap();
            let sql = format!("DROP SCHEMA {schema} CASCADE");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        }
    }

    /// A job of a new session, once the worker process has run it.
    pub(crate) async fn running_to_the_end(&self) -> Job {
        let job = self.admit().await;
        self.queue.push(Lane::Chat, job.session).await.unwrap();
        self.ended(job).await
    }
}
/// A worker that has died right after its registration, without a word.
pub(crate) async fn dead_worker(house: &House) -> WorkerId {
    let row = Worker {
        id: WorkerId::generate(),
        host: "gone".to_owned(),
        pid: 1,
        version: "1.2.3".to_owned(),
        slots: 1,
        agents: Vec::new(),
        stopping: false,
        started_ms: 0,
        seen_ms: 0,
        expires_ms: 0,
        leases: Vec::new(),
    };
    let lease_ms = i64::try_from(LEASE.as_millis()).unwrap();
    house.store.register_worker(&row, lease_ms).await.unwrap();
    row.id
}
