//! A worker with its surroundings, and an engine whose native sessions are files with an anchor on each line.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use roundhouse_engines::contract::{
    Capabilities, ContextKind, Engine, EngineError, EngineSession, Fork, Forked, Intake, Native, OpenSession,
};
use roundhouse_shared::bus::Bus;
use roundhouse_shared::domain::{
    Agent, ContextSource, Cut, EngineKind, JobId, Lane, OnBusy, SessionId, Usage, Worker, WorkerId,
};
use roundhouse_shared::lifecycle::Lifecycle;
use roundhouse_shared::queue::Queue;
use roundhouse_shared::store::{
    Admission, Begin, CutAdmission, NewSession, Outcome, Settings as StoreSettings, Store, Target, TurnEnd,
    TurnOutcome, WrittenMessage,
};
use roundhouse_shared::units::Span;
use roundhouse_shared::workspaces::Workspaces;
use roundhouse_worker::{HeartStore, Limits, Parts, Settings, WorkerAgent};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;
use tokio::sync::Notify;

/// Longer than anything here takes, also on a machine that is busy.
const SOON: Duration = Duration::from_mins(1);

/// An engine that keeps its conversations in files.
#[derive(Debug, Default)]
pub(crate) struct Filing {
    folder: PathBuf,
    pub(crate) fails: AtomicBool,
    pub(crate) cannot_delete: AtomicBool,
    /// Makes a fork wait after its file is written, until it is dropped.
    pub(crate) hangs: AtomicBool,
    pub(crate) written: Notify,
    pub(crate) forks: AtomicUsize,
}

#[async_trait]
impl Engine for Filing {
    fn capabilities(&self) -> Capabilities {
        Capabilities { context: ContextKind::Native, works_on_files: false, intake: Intake::Boundaries }
    }

    async fn available(&self) -> Result<(), EngineError> {
        Ok(())
    }

    async fn open(&self, _spec: OpenSession) -> Result<Box<dyn EngineSession>, EngineError> {
        Err(EngineError::Unavailable("it runs no turns".to_owned()))
    }

    async fn fork(&self, fork: Fork) -> Result<Forked, EngineError> {
        self.forks.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(EngineError::ForkFailed("no space left".to_owned()));
        }
        let source = std::fs::read_to_string(self.folder.join(&fork.source.id))
            .map_err(|error| EngineError::ForkFailed(error.to_string()))?;
        let kept = source.lines().position(|line| line == fork.at).expect("an anchor of the source");
        let anchors: HashMap<_, _> =
            source.lines().take(kept + 1).map(|line| (line.to_owned(), format!("{line}+"))).collect();
        let lines: Vec<_> = source.lines().take(kept + 1).map(|line| anchors[line].clone()).collect();
        std::fs::write(self.folder.join(&fork.into.id), lines.join("\n")).unwrap();
        self.written.notify_one();
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(Forked { anchors })
    }

    async fn delete(&self, native: Native) -> Result<(), EngineError> {
        if self.cannot_delete.load(Ordering::SeqCst) {
            return Err(EngineError::Unavailable("the disk does not answer".to_owned()));
        }
        // One that is not there is deleted.
        let _ = std::fs::remove_file(self.folder.join(native.id));
        Ok(())
    }
}

/// A store, a queue and a bus, with workers on them.
pub(crate) struct Site {
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) engine: Arc<Filing>,
    pub(crate) raw: SqlitePool,
    queue: Queue,
    folder: TempDir,
}

/// A worker that runs.
pub(crate) struct Running {
    lifecycle: Lifecycle,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Stops it as an operator would who does not want to wait.
    pub(crate) async fn stop(self) {
        self.lifecycle.soft().cancel();
        self.lifecycle.hard().cancel();
        soon(self.task).await.unwrap();
    }
}

/// Waits for something that happens by itself.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("waited in vain")
}

/// Asks again and again until it is so: for what no event tells.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

impl Site {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::connect(&StoreSettings::default(), folder.path()).await.unwrap();
        store.migrate().await.unwrap();
        let natives = folder.path().join("natives");
        std::fs::create_dir(&natives).unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("roundhouse.db"));
        Self {
            store,
            bus: Bus::local(),
            engine: Arc::new(Filing { folder: natives, ..Filing::default() }),
            raw: SqlitePool::connect_with(options).await.unwrap(),
            queue: Queue::connect(&roundhouse_shared::redis::Settings::default()).unwrap(),
            folder,
        }
    }

    /// Starts a worker that has the engine under the name of this agent.
    pub(crate) async fn worker(&self, agent: &str) -> Running {
        let lifecycle = Lifecycle::new();
        let known = Agent { name: agent.to_owned(), engine: EngineKind::ClaudeCli, model: None, demo: false };
        let ready = roundhouse_worker::register(Parts {
            settings: Settings { sweep: Span(Duration::from_millis(100)), ..Settings::default() },
            limits: Limits {
                turn_timeout: Span(SOON),
                cancel_grace: Span(SOON),
                interaction_timeout: Span(SOON),
            },
            store: self.store.clone(),
            heart: HeartStore { settings: StoreSettings::default(), data_dir: self.folder.path().to_owned() },
            bus: self.bus.clone(),
            queue: self.queue.clone(),
            agents: vec![
                WorkerAgent { agent: known, engine: Ok(self.engine.clone()), turn_timeout: None },
                // What a session's agent is configured with now says nothing of its engine.
                WorkerAgent {
                    agent: Agent {
                        name: "moved".to_owned(),
                        engine: EngineKind::OpenAi,
                        model: None,
                        demo: false,
                    },
                    engine: Ok(Arc::new(Filing { fails: true.into(), ..Filing::default() })),
                    turn_timeout: None,
                },
            ],
            workspaces: Workspaces { data_dir: self.folder.path().to_owned(), roots: Vec::new() },
            host: "here".to_owned(),
            version: "1.2.3".to_owned(),
            lifecycle: lifecycle.clone(),
        })
        .await
        .unwrap();
        let task = lifecycle.spawn(ready.run());
        Running { lifecycle, task }
    }

    /// A session of this agent with the turns `q1`, `a1`, … whose native session `native` has the anchors `@a1`, ….
    pub(crate) async fn talked(&self, agent: &str, native: &str, turns: usize) -> SessionId {
        let id = SessionId::generate();
        let new = NewSession {
            id,
            agent: agent.to_owned(),
            engine: EngineKind::ClaudeCli,
            model: None,
            title: None,
            cwd: String::new(),
            metadata: serde_json::json!({}),
        };
        self.store.create_session(&new).await.unwrap();
        for n in 1..=turns {
            self.turn(id, native, n).await;
        }
        let sql = "UPDATE messages SET native_session_id = $1, engine_metadata = '{\"claude_uuid\":\"@' || content \
                   || '\"}' WHERE role = 'assistant' AND session_id = $2";
        sqlx::query(sql).bind(native).bind(id.0).execute(&self.raw).await.unwrap();
        let sql = "UPDATE sessions SET native_host = 'here' WHERE id = $1";
        sqlx::query(sql).bind(id.0).execute(&self.raw).await.unwrap();
        let lines: Vec<_> = (1..=turns).map(|n| format!("@a{n}")).collect();
        std::fs::write(self.native(native), lines.join("\n")).unwrap();
        id
    }

    async fn turn(&self, session: SessionId, native: &str, n: usize) {
        let admission = Admission {
            job: JobId::generate(),
            target: Target::Existing(session),
            message: format!("q{n}"),
            attachments: None,
            origin: "user".to_owned(),
            model: None,
            on_busy: OnBusy::Inject,
            idempotency: None,
        };
        self.store.admit(&admission).await.unwrap();
        let worker = Worker {
            id: WorkerId::generate(),
            host: "elsewhere".to_owned(),
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
        self.store.register_worker(&worker, 3_600_000).await.unwrap();
        let begun = self.store.begin(session, worker.id, |_| true).await.unwrap();
        let Begin::Started(lease, mail) = begun else { panic!("{begun:?}") };
        self.store.adopt_native(&lease, native, "here").await.unwrap();
        let message = WrittenMessage { content: format!("a{n}"), ..WrittenMessage::default() };
        let end = TurnEnd {
            turn: mail.turn,
            outcome: TurnOutcome::Answered,
            messages: vec![message],
            model: None,
            iterations: 1,
            usage: Usage::default(),
            context_source: ContextSource::Native,
            undelivered: Vec::new(),
        };
        self.store.finish(&lease, end).await.unwrap();
    }

    /// The file of a native session.
    pub(crate) fn native(&self, native: &str) -> PathBuf {
        self.engine.folder.join(native)
    }

    /// How many native sessions there are.
    pub(crate) fn natives(&self) -> usize {
        std::fs::read_dir(&self.engine.folder).unwrap().count()
    }

    /// Asks for a cut and rings for it.
    pub(crate) async fn ask(&self, session: SessionId, cut: Cut) -> JobId {
        let admission = CutAdmission { job: JobId::generate(), session, cut, idempotency: None };
        let job = self.store.admit_cut(&admission).await.unwrap().job;
        self.queue.push(Lane::Maintenance, session).await.unwrap();
        job
    }

    /// What became of a job.
    pub(crate) async fn outcome(&self, job: JobId) -> Outcome {
        soon(async {
            loop {
                if let Some((_, outcome)) = self.store.outcomes(&[job]).await.unwrap().pop() {
                    return outcome;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// The text that a query gives.
    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        sqlx::query_scalar(sql).fetch_all(&self.raw).await.unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}
