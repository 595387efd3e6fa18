//! `POST /agents/{agent}/chat`: admit, then wait, stream or leave.

use std::convert::Infallible;

use axum::Json as Reply;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{ACCEPT, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{ChatResult, JobId, JobKind, SessionId};
use roundhouse_shared::store::Outcome;
use serde::Serialize;
use tokio::time::Instant;

use crate::accept::{Accepted, accept, is_consumed};
use crate::admit::{ChatRequest, IdempotencyKey, admission, session_of};
use crate::app::Shared;
use crate::extract::{Json, Path};
use crate::openapi::ChatProblems;
use crate::problem::ApiProblem;
use crate::request::Context;
use crate::request_stream::RequestStream;
use crate::sse;

/// A job that was admitted and has no answer yet.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names of the contract")]
pub(crate) struct AdmittedJob {
    /// The session.
    session_id: SessionId,
    /// The job: its answer will be at `/jobs/{jobId}`.
    job_id: JobId,
    /// The job's id again: it is the correlation id.
    correlation_id: JobId,
}

/// How the client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// When it is there, as JSON.
    Result,
    /// As it comes, as events.
    Events,
    /// Later: it will ask for it.
    Nothing,
}

impl<S: Send + Sync> FromRequestParts<S> for Wanted {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let listed = |name: HeaderName| {
            let values = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let items = values.flat_map(|value| value.split(','));
            items.map(|item| item.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        };
        if listed(HeaderName::from_static("prefer")).any(|item| item == "respond-async") {
            return Ok(Self::Nothing);
        }
        // The first kind that we know counts.
        let known = |kind: &String| {
            matches!(kind.as_str(), "text/event-stream" | "application/json" | "application/*" | "*/*")
        };
        let first = listed(ACCEPT).find(known);
        Ok(if first.as_deref() == Some("text/event-stream") { Self::Events } else { Self::Result })
    }
}

/// Sends a message to an agent.
///
/// Without `sessionId` a session is created. With `Accept: text/event-stream` the answer comes as events: first
/// `job.accepted`, then what happens, and at the end exactly one `done` (the result) or `error` (the problem). With
/// `Prefer: respond-async` the job is returned at once. A message for a session at work becomes part of what runs,
/// unless `onBusy` says otherwise.
#[utoipa::path(
    post,
    path = "/agents/{agent}/chat",
    tag = "chat",
    params(
        ("agent" = String, Path, description = "The agent's name"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request the same request"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: return the job at once"),
    ),
    request_body = ChatRequest,
    responses(
        (status = 200, description = "The answer", content(
            (ChatResult = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 202, description = "Admitted; the answer will be at `/jobs/{jobId}`", body = AdmittedJob),
        ChatProblems,
    ),
)]
pub(crate) async fn chat(
    State(app): State<Shared>,
    context: Context,
    Path(agent): Path<String>,
    wanted: Wanted,
    key: IdempotencyKey,
    Json(request): Json<ChatRequest>,
) -> Result<Response, ApiProblem> {
    let cancel_on_disconnect = request.cancel_on_disconnect.unwrap_or_default();
    let admission = admission(&app, &agent, key, request).await?;
    match wanted {
        Wanted::Nothing => {
            let mut accepted = accept(&app, admission, cancel_on_disconnect).await?;
            accepted.guard.disarm();
            let preference = [(HeaderName::from_static("preference-applied"), "respond-async")];
            Ok((preference, later(accepted.session, accepted.job)).into_response())
        }
        Wanted::Result => {
            let accepted = accept(&app, admission, cancel_on_disconnect).await?;
            answer(&app, accepted).await
        }
        Wanted::Events => {
            // Followed before it is admitted: no event of the job can be missed.
            let followed = session_of(&admission.target);
            let follow = app.bus.follow(followed, None).await;
            let accepted = accept(&app, admission, cancel_on_disconnect).await?;
            let follow = (accepted.session == followed).then_some(follow);
            Ok(sse::response(RequestStream::open(app, context, accepted, follow).await))
        }
    }
}

/// Waits for the answer as long as is allowed.
async fn answer(app: &Shared, mut accepted: Accepted) -> Result<Response, ApiProblem> {
    let injected = accepted.kind == JobKind::Inject;
    let patience = if injected { app.limits.injection_timeout } else { app.limits.json_wait_timeout };
    // A job of our own cannot have ended unheard; one of an earlier request can.
    let mut outcome = if accepted.replayed { accepted.waiting.look(&app.store).await } else { None };
    let mut consumed = !injected;
    let asked = Instant::now();
    let mut until = asked + patience.0;
    while outcome.is_none() {
        outcome = tokio::select! {
            outcome = accepted.waiting.outcome() => Some(outcome),
            () = tokio::time::sleep_until(until) => accepted.waiting.look(&app.store).await,
            () = app.lifecycle.hard().cancelled() => {
                accepted.guard.disarm();
                return Ok(later(accepted.session, accepted.job));
            }
        };
        // The model works on it: it is answered as any message.
        if outcome.is_some() || consumed || !is_consumed(app, accepted.job).await {
            break;
        }
        consumed = true;
        until = asked + app.limits.json_wait_timeout.0;
    }
    accepted.guard.disarm();
    let told = |problem: ApiProblem| problem.about(accepted.session, accepted.job);
    match outcome {
        Some(Outcome::Answered(result)) => Ok(Reply(result).into_response()),
        Some(Outcome::Failed(problem)) => Err(told(problem.into())),
        Some(Outcome::Cut(_) | Outcome::Cancelled) => Err(told(ApiProblem::new(Code::Internal))),
        None if !consumed => Err(told(ApiProblem::new(Code::InjectionTimeout))),
        None => Ok(later(accepted.session, accepted.job)),
    }
}

/// Where the answer will be.
pub(super) fn later(session: SessionId, job: JobId) -> Response {
    let body = AdmittedJob { session_id: session, job_id: job, correlation_id: job };
    (StatusCode::ACCEPTED, [(LOCATION, format!("/jobs/{job}"))], Reply(body)).into_response()
}
