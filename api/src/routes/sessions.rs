//! Sessions: create, list, read, change, cancel, delete.

use std::time::Duration;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::{SessionId, SessionStatus};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{SessionFilter, SessionPatch, StoreError};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{CancelResponse, List};
use crate::accept;
use crate::admit::new_session;
use crate::app::{App, Shared};
use crate::check;
use crate::extract::{Json, Path, Query, limit};
use crate::openapi::{AgentProblems, BusyProblems, ChangeProblems, ListProblems, SessionProblems};
use crate::problem::ApiProblem;
use crate::views::SessionView;

/// How long a deletion by force waits until nothing runs any more.
const FORCE_WAIT: Duration = Duration::from_secs(15);
/// How often it tries.
const FORCE_STEP: Duration = Duration::from_millis(250);

/// A session to be created.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateSession {
    /// The agent.
    agent: String,
    /// The working directory; without one it gets a fresh directory.
    #[serde(default)]
    cwd: Option<String>,
    /// The model; without one the agent's.
    #[serde(default)]
    model: Option<String>,
    /// A title for people.
    #[serde(default)]
    title: Option<String>,
    /// The client's own data.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// What to change. What is left out stays; `null` clears.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::option_option, reason = "absent, `null` and a value are three things")]
pub(crate) struct PatchSession {
    /// The title.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    title: Option<Option<String>>,
    /// The model, from the next turn on.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    model: Option<Option<String>>,
    /// The client's own data; replaces what was there.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    metadata: Option<Option<Map<String, Value>>>,
    /// Whether the session is put away.
    #[serde(default)]
    archived: Option<bool>,
}

/// Tells `null` from absent.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Which sessions to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionQuery {
    /// Only of this agent.
    agent: Option<String>,
    /// Only those that do this.
    status: Option<SessionStatus>,
    /// At most so many, 1 to 200.
    limit: Option<i64>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// How to delete.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteQuery {
    /// Cancel what runs and what waits first.
    force: Option<bool>,
}

/// Creates a session.
#[utoipa::path(post, path = "/sessions", tag = "sessions", request_body = CreateSession,
    responses((status = 201, description = "Created", body = SessionView), AgentProblems))]
pub(crate) async fn create_session(
    State(app): State<Shared>,
    Json(request): Json<CreateSession>,
) -> Result<impl IntoResponse, ApiProblem> {
    let CreateSession { agent, cwd, model, title, metadata } = request;
    check::title(title.as_deref())?;
    check::model(model.as_deref())?;
    check::cwd(cwd.as_deref())?;
    check::metadata(metadata.as_ref())?;
    let agent = app.agents.known(&app.store, &agent).await?;
    let new = new_session(&app, agent, cwd, model, title, metadata).await?;
    let session = app.store.create_session(&new).await?;
    let location = format!("/sessions/{}", session.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Reply(SessionView::from(session))))
}

/// Lists sessions, the newest activity first.
#[utoipa::path(get, path = "/sessions", tag = "sessions", params(SessionQuery),
    responses((status = 200, description = "A page of sessions", body = List<SessionView>), ListProblems))]
pub(crate) async fn list_sessions(
    State(app): State<Shared>,
    Query(query): Query<SessionQuery>,
) -> Result<Reply<List<SessionView>>, ApiProblem> {
    let limit = limit(query.limit)?;
    let before = query.cursor.as_deref().map(place).transpose()?;
    let filter = SessionFilter { agent: query.agent, status: query.status, before, limit: limit + 1 };
    let rows = app.store.sessions(&filter).await?;
    Ok(Reply(List::page(rows, limit, |last| format!("{}_{}", last.updated_ms, last.id))))
}

/// A place in the list of sessions.
fn place(cursor: &str) -> Result<(i64, SessionId), Problem> {
    let parts = cursor.split_once('_');
    let place = parts.and_then(|(ms, id)| Some((ms.parse().ok()?, id.parse().ok()?)));
    place.ok_or_else(|| Problem::field("cursor", "is not a `nextCursor` of this list").unreadable())
}

/// Reads a session.
#[utoipa::path(get, path = "/sessions/{id}", tag = "sessions",
    params(("id" = SessionId, Path, description = "The session")),
    responses((status = 200, description = "The session", body = SessionView), SessionProblems))]
pub(crate) async fn get_session(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
) -> Result<Reply<SessionView>, ApiProblem> {
    let session = app.store.session(id).await?.ok_or(StoreError::SessionNotFound)?;
    Ok(Reply(session.into()))
}

/// Changes a session's title, model, metadata or whether it is put away.
#[utoipa::path(patch, path = "/sessions/{id}", tag = "sessions", request_body = PatchSession,
    params(("id" = SessionId, Path, description = "The session")),
    responses((status = 200, description = "The session as it is now", body = SessionView), ChangeProblems))]
pub(crate) async fn patch_session(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
    Json(request): Json<PatchSession>,
) -> Result<Reply<SessionView>, ApiProblem> {
    let PatchSession { title, model, metadata, archived } = request;
    check::title(title.as_ref().and_then(Option::as_deref))?;
    check::model(model.as_ref().and_then(Option::as_deref))?;
    check::metadata(metadata.as_ref().and_then(Option::as_ref))?;
    let metadata = metadata.map(|object| Value::Object(object.unwrap_or_default()));
    let patch = SessionPatch { title, model, metadata, archived };
    let shared = app.clone();
    let session = app
        .to_the_end(async move {
            let session = shared.store.patch_session(id, &patch).await?;
            shared.announcer.updated(id).await;
            Ok(session)
        })
        .await?;
    Ok(Reply(session.into()))
}

/// Deletes a session and all that belongs to it.
///
/// A busy one is refused, unless `force` says to cancel what runs and waits first.
#[utoipa::path(delete, path = "/sessions/{id}", tag = "sessions",
    params(("id" = SessionId, Path, description = "The session"), DeleteQuery),
    responses((status = 204, description = "Deleted"), BusyProblems))]
pub(crate) async fn delete_session(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, ApiProblem> {
    if query.force == Some(true) {
        let shared = app.clone();
        app.to_the_end(async move { delete_by_force(&shared, id).await }).await?;
    } else {
        app.store.delete_session(id).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Cancels until the session is idle, then deletes it. What comes meanwhile is cancelled as well.
async fn delete_by_force(app: &App, id: SessionId) -> Result<(), ApiProblem> {
    let deadline = tokio::time::Instant::now() + FORCE_WAIT;
    let mut notices = app.bus.notices();
    loop {
        accept::cancel_all(app, id).await?;
        let session = app.store.session(id).await?.ok_or(StoreError::SessionNotFound)?;
        let deleted = match session.status {
            SessionStatus::Idle | SessionStatus::Error => {
                // All its jobs have ended: whoever waits here gets its answer while there still is one.
                app.waiter.look(&app.store).await?;
                app.store.delete_session(id).await
            }
            SessionStatus::Queued | SessionStatus::Running | SessionStatus::Waiting => {
                Err(StoreError::SessionBusy)
            }
        };
        match deleted {
            Ok(_) => return Ok(()),
            Err(StoreError::SessionBusy) if tokio::time::Instant::now() < deadline => {}
            Err(error) => return Err(error.into()),
        }
        let ended = async {
            while let Ok(notice) = notices.recv().await {
                if matches!(notice, Notice::Ended(session, _) if session == id) {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        let _ = tokio::time::timeout(FORCE_STEP, ended).await;
    }
}

/// Cancels what a session does now.
///
/// The turn that runs and the messages injected before, or the job that would run next. Jobs that wait for turns of
/// their own stay. An idle session is left alone.
#[utoipa::path(post, path = "/sessions/{id}/cancel", tag = "sessions",
    params(("id" = SessionId, Path, description = "The session")),
    responses((status = 200, description = "What was cancelled", body = CancelResponse), SessionProblems))]
pub(crate) async fn cancel_session(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
) -> Result<Reply<CancelResponse>, ApiProblem> {
    let shared = app.clone();
    let cancelled = app.to_the_end(async move { accept::cancel_session(&shared, id).await }).await?;
    Ok(Reply(cancelled.into()))
}
