//! Trim, fork, reset, and the deletion of one message.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use roundhouse_shared::domain::{ContextSource, Cut, CutResult, Fork, MessageId, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::StoreError;
use serde::{Deserialize, Serialize};

use super::chat::{AdmittedJob, later};
use crate::admit::IdempotencyKey;
use crate::app::{App, Shared};
use crate::cut::{Carried, carry_out};
use crate::extract::{Json, Path, Paths, Query};
use crate::openapi::{CutProblems, ForkProblems, MessageProblems};
use crate::problem::ApiProblem;
use crate::views::SessionView;
use crate::{check, cwd};

/// Where to trim.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrimQuery {
    /// The last message that stays.
    #[param(required)]
    after: Option<i64>,
}

/// What a trim did.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrimDone {
    /// How many messages are gone.
    deleted: i64,
    /// Whether Claude Code's own conversation was forked.
    claude_forked: bool,
    /// Whether the engine's own conversation was forked, whichever engine it is.
    engine_forked: bool,
    /// Where the next turn's memory comes from.
    context_source: ContextSource,
    /// The session as it is now.
    session: SessionView,
}

/// What a reset did.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ResetDone {
    /// How many messages are gone.
    deleted: i64,
    /// The session as it is now.
    session: SessionView,
}

/// What the deletion of a message did.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeleteDone {
    /// How many messages are gone: one.
    deleted: i64,
    /// Whether the engine still remembers it.
    context_drift: bool,
}

/// What to fork.
#[derive(Debug, Default, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ForkRequest {
    /// The last message that the new session gets; without one, all.
    #[serde(default)]
    up_to_message_id: Option<MessageId>,
    /// The new session's title; without one, the old one's.
    #[serde(default)]
    title: Option<String>,
    /// The new session's working directory; without one, the old one's.
    #[serde(default)]
    cwd: Option<String>,
    /// Fork only where the engine can fork its own conversation; otherwise 409.
    #[serde(default)]
    require_anchor: Option<bool>,
}

/// A session that was forked.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ForkDone {
    /// The new session's id.
    session_id: SessionId,
    /// The new session.
    session: SessionView,
    /// Whether Claude Code's own conversation was forked.
    claude_forked: bool,
    /// Whether the engine's own conversation was forked, whichever engine it is.
    engine_forked: bool,
    /// Where the next turn's memory comes from.
    context_source: ContextSource,
}

/// Deletes what comes after a message.
///
/// The message stays, and the agent forgets what comes after it. A busy session is refused.
#[utoipa::path(delete, path = "/sessions/{id}/messages", tag = "sessions",
    params(
        ("id" = SessionId, Path, description = "The session"),
        TrimQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request the same request"),
    ),
    responses(
        (status = 200, description = "What was deleted", body = TrimDone),
        (status = 202, description = "Admitted; the outcome will be at `/jobs/{jobId}`", body = AdmittedJob),
        CutProblems,
    ))]
pub(crate) async fn trim_session(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
    key: IdempotencyKey,
    Query(query): Query<TrimQuery>,
) -> Result<Response, ApiProblem> {
    let after = query.after.ok_or_else(|| Problem::field("after", "is missing").unreadable())?;
    trim(&app, id, MessageId(after), key).await
}

/// Deletes what comes after a message. The same as with `?after=`.
#[utoipa::path(delete, path = "/sessions/{id}/messages/after/{messageId}", tag = "sessions",
    params(
        ("id" = SessionId, Path, description = "The session"),
        ("messageId" = MessageId, Path, description = "The last message that stays"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request the same request"),
    ),
    responses(
        (status = 200, description = "What was deleted", body = TrimDone),
        (status = 202, description = "Admitted; the outcome will be at `/jobs/{jobId}`", body = AdmittedJob),
        CutProblems,
    ))]
pub(crate) async fn trim_session_after(
    State(app): State<Shared>,
    Paths(id, after): Paths<SessionId, MessageId>,
    key: IdempotencyKey,
) -> Result<Response, ApiProblem> {
    trim(&app, id, after, key).await
}

async fn trim(
    app: &Shared,
    id: SessionId,
    at: MessageId,
    key: IdempotencyKey,
) -> Result<Response, ApiProblem> {
    let idempotency = key.of("DELETE", &format!("/sessions/{id}/messages/after/{at}"), &());
    match carry_out(app, id, Cut::Trim { at }, idempotency).await? {
        Carried::Later(job) => Ok(later(id, job)),
        Carried::Out(CutResult { deleted, claude_forked, engine_forked, context_source, .. }) => {
            let session = view(app, id).await?;
            let trimmed = TrimDone { deleted, claude_forked, engine_forked, context_source, session };
            Ok(Reply(trimmed).into_response())
        }
    }
}

/// Makes a new session with this one's messages up to a point.
///
/// Both go their own ways from there. A busy session is refused.
#[utoipa::path(post, path = "/sessions/{id}/fork", tag = "sessions", request_body = Option<ForkRequest>,
    params(
        ("id" = SessionId, Path, description = "The session"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request the same request"),
    ),
    responses(
        (status = 201, description = "The new session", body = ForkDone),
        (status = 202, description = "Admitted; the outcome will be at `/jobs/{jobId}`", body = AdmittedJob),
        ForkProblems,
    ))]
pub(crate) async fn fork_session(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
    key: IdempotencyKey,
    request: Option<Json<ForkRequest>>,
) -> Result<Response, ApiProblem> {
    let request = request.map(|Json(request)| request).unwrap_or_default();
    check::title(request.title.as_deref())?;
    check::cwd(request.cwd.as_deref())?;
    let idempotency = key.of("POST", &format!("/sessions/{id}/fork"), &request);
    let ForkRequest { up_to_message_id: at, title, cwd, require_anchor } = request;
    let cwd = match cwd {
        Some(cwd) => Some(cwd::resolve(&cwd, &app.limits).await?),
        None => None,
    };
    let require_anchor = require_anchor.unwrap_or_default();
    let fork = Fork { into: SessionId::generate(), at, title, cwd, require_anchor };
    match carry_out(&app, id, Cut::Fork(fork), idempotency).await? {
        Carried::Later(job) => Ok(later(id, job)),
        Carried::Out(CutResult { session_id, claude_forked, engine_forked, context_source, .. }) => {
            let session = view(&app, session_id).await?;
            let location = [(LOCATION, format!("/sessions/{session_id}"))];
            let forked = ForkDone { session_id, session, claude_forked, engine_forked, context_source };
            Ok((StatusCode::CREATED, location, Reply(forked)).into_response())
        }
    }
}

/// Deletes all messages of a session: the agent begins anew.
///
/// What was spent stays counted. A busy session is refused.
#[utoipa::path(post, path = "/sessions/{id}/reset", tag = "sessions",
    params(
        ("id" = SessionId, Path, description = "The session"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request the same request"),
    ),
    responses(
        (status = 200, description = "What was deleted", body = ResetDone),
        (status = 202, description = "Admitted; the outcome will be at `/jobs/{jobId}`", body = AdmittedJob),
        CutProblems,
    ))]
pub(crate) async fn reset_session(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
    key: IdempotencyKey,
) -> Result<Response, ApiProblem> {
    let idempotency = key.of("POST", &format!("/sessions/{id}/reset"), &());
    match carry_out(&app, id, Cut::Reset, idempotency).await? {
        Carried::Later(job) => Ok(later(id, job)),
        Carried::Out(CutResult { deleted, .. }) => {
            let session = view(&app, id).await?;
            Ok(Reply(ResetDone { deleted, session }).into_response())
        }
    }
}

/// Deletes one message.
///
/// Engines that keep conversations of their own still remember it: `contextDrift` says so.
#[utoipa::path(delete, path = "/sessions/{id}/messages/{messageId}", tag = "sessions",
    params(
        ("id" = SessionId, Path, description = "The session"),
        ("messageId" = MessageId, Path, description = "The message"),
    ),
    responses((status = 200, description = "Deleted", body = DeleteDone), MessageProblems))]
pub(crate) async fn delete_message(
    State(app): State<Shared>,
    Paths(id, message): Paths<SessionId, MessageId>,
) -> Result<Reply<DeleteDone>, ApiProblem> {
    let shared = app.clone();
    let deleted = app
        .to_the_end(async move {
            let deleted = shared.store.delete_message(id, message).await?;
            shared.announcer.updated(id).await;
            Ok(deleted)
        })
        .await?;
    Ok(Reply(DeleteDone { deleted: 1, context_drift: deleted.context_drift }))
}

async fn view(app: &App, id: SessionId) -> Result<SessionView, ApiProblem> {
    Ok(app.store.session(id).await?.ok_or(StoreError::SessionNotFound)?.into())
}
