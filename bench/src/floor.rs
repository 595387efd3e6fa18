//! The floor: what the same machine does without Roundhouse.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use axum::routing::post;
use futures::{Stream, StreamExt};
use roundhouse_shared::domain::{
    ContextSource, EngineKind, JobId, OnBusy, SessionId, Usage, Worker, WorkerId,
};
use roundhouse_shared::store::{
    Admission, Begin, NewSession, Settings, Store, Target, TurnEnd, TurnOutcome, WrittenMessage,
};
use serde_json::{Value, json};
use sqlx::Connection;
use tokio::task::JoinSet;

/// A server that only streams from the oracle.
pub(crate) struct Bare {
    url: String,
    _task: tokio_util::task::AbortOnDropHandle<()>,
}

impl Bare {
    /// Starts it.
    pub(crate) async fn start(oracle: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let state = (http, format!("{oracle}/v1/chat/completions"));
        let router = axum::Router::new().route("/chat", post(chat)).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/chat", listener.local_addr()?);
        #[expect(clippy::disallowed_methods, reason = "owned by the handle")]
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, _task: tokio_util::task::AbortOnDropHandle::new(task) })
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }
}

async fn chat(
    State((http, oracle)): State<(reqwest::Client, String)>,
    Json(body): Json<Value>,
) -> impl IntoResponse {
    let request = json!({
        "model": "oracle", "stream": true, "messages": [{"role": "user", "content": body["message"]}],
    });
    let answer = http.post(&oracle).json(&request).send().await;
    let bytes = answer.map(reqwest::Response::bytes_stream);
    let stream: std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>> = match bytes {
        Ok(bytes) => {
            let deltas = bytes.filter_map(async |piece| {
                let piece = piece.ok()?;
                Some(Ok(Event::default().event("message.delta").data(format!("{} bytes", piece.len()))))
            });
            let done = futures::stream::once(async {
                Ok(Event::default().event("done").data("{\"sessionId\":\"-\"}"))
            });
            Box::pin(deltas.chain(done))
        }
        Err(error) => Box::pin(futures::stream::once(async move {
            Ok(Event::default().event("error").data(error.to_string()))
        })),
    };
    Sse::new(stream)
}

/// A new, empty database on that server.
pub(crate) async fn fresh_database(server: &str, name: &str) -> Result<String> {
    let name = format!("{name}_{}", std::process::id());
    let mut connection = sqlx::PgConnection::connect(server).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await?;
    let (base, _) = server.rsplit_once('/').context("a URL with a database")?;
    Ok(format!("{base}/{name}"))
}

/// Measures admit, begin and finish alone.
pub(crate) async fn transactions(postgres: Option<&str>, sessions: &[usize]) -> Result<()> {
    println!("| store | sessions | turns/s |\n|---|---|---|");
    let dir = tempfile::tempdir()?;
    let mut stores = vec![("SQLite", Settings::default())];
    if let Some(postgres) = postgres {
        let url = fresh_database(postgres, "floor").await?;
        stores.push(("Postgres", Settings { url, ..Settings::default() }));
    }
    for (name, settings) in stores {
        let store = Store::connect(&settings, dir.path()).await?;
        store.migrate().await?;
        for &n in sessions {
            println!("| {name} | {n} | {:.0} |", rate(&store, n, 2_000).await?);
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a report for people")]
async fn rate(store: &Store, sessions: usize, turns: usize) -> Result<f64> {
    let left = Arc::new(AtomicUsize::new(turns));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..sessions {
        let (store, left) = (store.clone(), left.clone());
        tasks.spawn(async move {
            let worker = WorkerId::generate();
            store.register_worker(&bench_worker(worker), 3_600_000).await?;
            let mut session = None;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                session = Some(turn(&store, worker, session).await?);
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(turns as f64 / started.elapsed().as_secs_f64())
}

fn bench_worker(id: WorkerId) -> Worker {
    Worker {
        id,
        host: "bench".to_owned(),
        pid: i64::from(std::process::id()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slots: 1,
        agents: Vec::new(),
        stopping: false,
        started_ms: 0,
        seen_ms: 0,
        expires_ms: 0,
        leases: Vec::new(),
    }
}

async fn turn(store: &Store, worker: WorkerId, session: Option<SessionId>) -> Result<SessionId> {
    let target = session.map_or_else(
        || {
            Target::New(NewSession {
                id: SessionId::generate(),
                agent: "bench".to_owned(),
                engine: EngineKind::OpenAi,
                model: None,
                title: None,
                cwd: String::new(),
                metadata: json!({}),
            })
        },
        Target::Existing,
    );
    let admitted = store
        .admit(&Admission {
            job: JobId::generate(),
            target,
            message: "say hello".to_owned(),
            attachments: None,
            origin: "user".to_owned(),
            model: None,
            on_busy: OnBusy::Inject,
            idempotency: None,
        })
        .await?;
    let Begin::Started(lease, mail) = store.begin(admitted.session, worker, |_| true).await? else {
        anyhow::bail!("the session does not start");
    };
    let end = TurnEnd {
        turn: mail.turn,
        outcome: TurnOutcome::Answered,
        messages: vec![WrittenMessage { content: "hello".to_owned(), ..WrittenMessage::default() }],
        model: None,
        iterations: 1,
        usage: Usage::default(),
        context_source: ContextSource::Replay,
        undelivered: Vec::new(),
    };
    store.finish(&lease, end).await?;
    Ok(admitted.session)
}
