//! Whether this process lives, and whether it can do its work.

use std::error::Error;
use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::StoreError;
use serde::Serialize;
use tokio::time::Instant;

use crate::app::Shared;

/// How long a dependency may take to answer.
const DEADLINE: Duration = Duration::from_secs(2);

/// That the process lives.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
    /// The version of the binary.
    version: &'static str,
}

/// Whether the process can do its work.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Readiness {
    /// Whether all dependencies answer.
    ready: bool,
    /// Each of them.
    dependencies: [Dependency; 3],
}

/// Something that the process needs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Dependency {
    /// `store`, `queue` or `bus`.
    name: &'static str,
    /// Whether it answered in time; queue and bus also whether they take writes.
    ok: bool,
    /// How long it took, in milliseconds.
    latency_ms: u64,
    /// What is wrong; of queue and bus with its cause.
    error: Option<String>,
}

/// Says that the process lives.
#[utoipa::path(get, path = "/healthz", tag = "operations",
    responses((status = 200, description = "It lives", body = Health)))]
pub(crate) async fn healthz(State(app): State<Shared>) -> Reply<Health> {
    Reply(Health { status: "ok", version: app.version })
}

/// Says whether the process can do its work: whether store, queue and bus answer and take writes.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses(
        (status = 200, description = "It can", body = Readiness),
        (status = 503, description = "Something is down", body = Readiness),
    ))]
pub(crate) async fn readyz(State(app): State<Shared>) -> (StatusCode, Reply<Readiness>) {
    let (store, queue, bus) = tokio::join!(
        tried("store", app.store.ping(), StoreError::to_string),
        // With the cause: a Redis that is full, a replica or without a disk is mended in different ways.
        tried("queue", app.queue.ping(), |error| chain(error)),
        tried("bus", app.bus.ping(), |error| chain(error))
    );
    let dependencies = [store, queue, bus];
    let ready = dependencies.iter().all(|dependency| dependency.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Reply(Readiness { ready, dependencies }))
}

async fn tried<E: Error>(
    name: &'static str,
    ping: impl Future<Output = Result<(), E>>,
    told: fn(&E) -> String,
) -> Dependency {
    let started = Instant::now();
    let error = match tokio::time::timeout(DEADLINE, ping).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            tracing::debug!(name, error = %chain(&error), "not ready");
            Some(told(&error))
        }
        Err(_) => Some(format!("no answer within {} s", DEADLINE.as_secs())),
    };
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Dependency { name, ok: error.is_none(), latency_ms, error }
}
