//! The server, and the handle that tests hold on one.

use std::{future::IntoFuture, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    http::StatusCode,
    routing::{get, post},
    serve::ListenerExt,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    answer::{Model, answer, count_tokens},
    anthropic::Messages,
    chat::{Chat, openai_error},
    log::{Log, RecordedRequest, WaitTimeout},
    requests,
    responses::Responses,
    wire::CREATED,
};

/// How long open connections may take to end after the stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// How an oracle is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether requests are recorded.
    pub record: bool,
    /// How many requests are kept: the newest.
    pub max_requests: usize,
    /// How many bytes of bodies are kept. The newest request is kept whatever its size.
    pub max_bytes: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { record: true, max_requests: 10_000, max_bytes: 256 << 20 }
    }
}

/// Runs an oracle on `listener` until `stop`. Answers under way are broken off then.
pub async fn serve(listener: TcpListener, settings: Settings, stop: CancellationToken) -> io::Result<()> {
    let log = Arc::new(Log::new(settings.max_requests, settings.max_bytes));
    run(listener, Model::new(log, settings.record, stop.clone()), stop).await
}

async fn run(listener: TcpListener, model: Model, stop: CancellationToken) -> io::Result<()> {
    // Small answers on kept connections would otherwise wait for the acknowledgement of the one before.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let served = axum::serve(listener, router(model)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let grace_over = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        ended = served.into_future() => ended,
        // A client that keeps half a request open does not keep us.
        () = grace_over => Ok(()),
    }
}

fn router(model: Model) -> Router {
    Router::new()
        .route("/", get(|| async { "roundhouse oracle\n" }))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(answer::<Chat>))
        .route("/v1/messages", post(answer::<Messages>))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/responses", post(answer::<Responses>))
        .route("/requests", get(requests::list).delete(requests::clear))
        .fallback(|| async { (StatusCode::NOT_FOUND, Json(openai_error(404, "no such path"))) })
        .with_state(model)
}

async fn models() -> Json<Value> {
    let model = json!({"id": "oracle", "object": "model", "created": CREATED, "owned_by": "roundhouse"});
    Json(json!({"object": "list", "data": [model]}))
}

/// A running oracle on a free port of 127.0.0.1. It stops when it is dropped.
#[derive(Debug)]
pub struct Oracle {
    addr: SocketAddr,
    model: Model,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Oracle {
    /// Starts an oracle that records.
    pub async fn start() -> io::Result<Oracle> {
        Oracle::start_with(Settings::default()).await
    }

    /// Starts an oracle.
    pub async fn start_with(settings: Settings) -> io::Result<Oracle> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let log = Arc::new(Log::new(settings.max_requests, settings.max_bytes));
        let model = Model::new(log, settings.record, stop.clone());
        let served = run(listener, model.clone(), stop.clone());
        tasks.spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "the oracle ended");
            }
        });
        tasks.close();
        Ok(Oracle { addr, model, stop, tasks })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its root, `http://127.0.0.1:PORT`: what `ANTHROPIC_BASE_URL` wants. The OpenAI protocols want `/v1` behind it.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All requests on record, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.model.log().requests()
    }

    /// Forgets all requests; numbers and `fail N once` go on.
    pub fn clear(&self) {
        self.model.log().clear();
    }

    /// Sends the rest of every slow answer under way at once: so a test decides when an answer ends, and not the clock.
    pub fn hurry(&self) {
        self.model.hurry();
    }

    /// Waits for a request that `matches`, the first of those on record and those to come. It is asked again whenever a
    /// request starts or ends, so it may also ask for an end.
    pub async fn wait_for(
        &self,
        matches: impl Fn(&RecordedRequest) -> bool,
        deadline: Duration,
    ) -> Result<RecordedRequest, WaitTimeout> {
        self.model.log().wait_for(matches, deadline).await
    }

    /// Stops it and waits until it has stopped, about a second at most. Answers under way are broken off.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
