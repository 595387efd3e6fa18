//! An api of a test's own, a client for it, and a worker that is told what to answer.

mod client;
mod worker;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use roundhouse_api::{App, Limits, Parts, Settings};
use roundhouse_shared::bus::{Bus, Follow, Notice};
use roundhouse_shared::domain::{Agent, EngineKind, SessionId, WorkerId};
use roundhouse_shared::lifecycle::Lifecycle;
use roundhouse_shared::queue::Queue;
use roundhouse_shared::store::{Begin, Settings as StoreSettings, Store, Work, WorkEnd};
use roundhouse_shared::units::Span;
use roundhouse_shared::workspaces::Workspaces;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

pub(crate) use client::*;
pub(crate) use worker::*;

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
const LEASE_MS: i64 = 3_600_000;

/// What a test wants to be different.
pub(crate) struct Options {
    pub(crate) settings: Settings,
    pub(crate) injection_timeout: Span,
    pub(crate) json_wait_timeout: Span,
    pub(crate) worker_gap: Span,
    pub(crate) bus: Bus,
    pub(crate) queue: Queue,
    pub(crate) worker: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            injection_timeout: Span(LONG),
            json_wait_timeout: Span(LONG),
            worker_gap: Span::from_millis(0),
            bus: Bus::local(),
            queue: Queue::connect(&roundhouse_shared::redis::Settings::default()).unwrap(),
            worker: true,
        }
    }
}

/// An api with its surroundings.
pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) worker: WorkerId,
    pub(crate) folder: TempDir,
}

pub(crate) fn agent(name: &str) -> Agent {
    Agent { name: name.to_owned(), engine: EngineKind::OpenAi, model: Some("oracle".to_owned()), demo: false }
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let (app, api) = Self::app(options).await;
        Self { router: roundhouse_api::router(app), ..api }
    }

    /// The app itself, and its surroundings with an empty router.
    pub(crate) async fn app(options: Options) -> (App, Self) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::connect(&StoreSettings::default(), folder.path()).await.unwrap();
        store.migrate().await.unwrap();
        let worker = WorkerId::generate();
        if options.worker {
            store.register_worker(&announced(worker), LEASE_MS).await.unwrap();
        }
        let lifecycle = Lifecycle::new();
        let app = App::new(Parts {
            store: store.clone(),
            bus: options.bus.clone(),
            queue: options.queue,
            agents: vec![agent("helper"), agent("absent")],
            settings: options.settings,
            limits: Limits {
                injection_timeout: options.injection_timeout,
                json_wait_timeout: options.json_wait_timeout,
                worker_gap: options.worker_gap,
                workspaces: Workspaces {
                    data_dir: folder.path().join("data"),
                    roots: vec![folder.path().to_owned()],
                },
            },
            lifecycle: lifecycle.clone(),
            version: "1.2.3",
        });
        (app, Self { router: Router::new(), store, bus: options.bus, lifecycle, worker, folder })
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = within(self.router.clone().oneshot(request)).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = within(axum::body::to_bytes(body, 10 << 20)).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.send(with_json(request(method, path), body)).await
    }

    /// A message, answered as JSON.
    pub(crate) async fn chat(&self, body: &Value) -> Answer {
        self.call("POST", "/agents/helper/chat", body).await
    }

    /// A message whose job is returned at once.
    pub(crate) async fn post(&self, body: &Value) -> Value {
        let request = request("POST", "/agents/helper/chat").header("prefer", "respond-async");
        let answer = self.send(with_json(request, body)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
        answer.json()
    }

    /// A stream of events.
    pub(crate) async fn stream(&self, request: Request<Body>) -> Events {
        let response = within(self.router.clone().oneshot(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// A message, answered as events.
    pub(crate) async fn chat_events(&self, body: &Value) -> Events {
        let request = request("POST", "/agents/helper/chat").header("accept", "text/event-stream");
        self.stream(with_json(request, body)).await
    }

    /// A session that exists.
    pub(crate) async fn session(&self) -> SessionId {
        let answer = self.call("POST", "/sessions", &json!({"agent": "helper"})).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        id(&answer.json()["id"])
    }

    /// A session that exists, made without a request.
    pub(crate) async fn session_without_client(&self) -> SessionId {
        let new = roundhouse_shared::store::NewSession {
            id: SessionId::generate(),
            agent: "helper".to_owned(),
            engine: EngineKind::OpenAi,
            model: None,
            title: None,
            cwd: String::new(),
            metadata: json!({}),
        };
        self.store.create_session(&new).await.unwrap().id
    }

    /// Waits until a message for the session is announced, as a worker is rung for it.
    pub(crate) async fn begin_when_rung(&self, session: SessionId) -> Turn {
        let mut follow = self.bus.follow(session, None).await;
        loop {
            match self.store.begin(session, self.worker, |_| true).await.unwrap() {
                Begin::Started(lease, mail) => return Turn::new(self, lease, mail).await,
                _ => drop(within(follow.next()).await),
            }
        }
    }

    /// Waits until the session is to be cut, and ends that as it is told; returns what was to be done.
    pub(crate) async fn cut_when_rung(&self, session: SessionId, end: WorkEnd) -> Work {
        let mut follow = self.bus.follow(session, None).await;
        loop {
            match self.store.begin(session, self.worker, |_| true).await.unwrap() {
                Begin::Maintenance(lease, work) => {
                    let worked = self.store.finish_work(&lease, work.job, &end).await.unwrap();
                    let notices = worked.ended.iter().map(|ended| Notice::Ended(session, ended.job));
                    self.bus.notify(&notices.collect::<Vec<_>>()).await;
                    return work;
                }
                _ => drop(within(follow.next()).await),
            }
        }
    }

    /// Listens to the session's stream from now on.
    pub(crate) async fn listen(&self, session: SessionId) -> Follow {
        self.bus.follow(session, None).await
    }

    /// Whether the store has nothing of what was refused.
    pub(crate) async fn is_empty(&self) -> bool {
        let jobs = self.get("/jobs").await.json();
        let sessions = self.get("/sessions").await.json();
        jobs["items"] == json!([]) && sessions["items"] == json!([])
    }
}
