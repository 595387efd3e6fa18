//! Jobs: list, read, cancel.

use axum::Json as Reply;
use axum::extract::State;
use roundhouse_shared::domain::{JobId, JobKind, JobState, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{JobFilter, StoreError};
use serde::Deserialize;

use super::{CancelResponse, List};
use crate::accept;
use crate::app::Shared;
use crate::extract::{Path, Query, limit};
use crate::openapi::{JobProblems, ListProblems};
use crate::problem::ApiProblem;
use crate::views::JobView;

/// Which jobs to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobQuery {
    /// Only in this state.
    state: Option<JobState>,
    /// Only of this kind.
    kind: Option<JobKind>,
    /// Only of this session.
    session_id: Option<SessionId>,
    /// At most so many, 1 to 200.
    limit: Option<i64>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// Lists jobs, the newest first.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(JobQuery),
    responses((status = 200, description = "A page of jobs", body = List<JobView>), ListProblems))]
pub(crate) async fn list_jobs(
    State(app): State<Shared>,
    Query(query): Query<JobQuery>,
) -> Result<Reply<List<JobView>>, ApiProblem> {
    let limit = limit(query.limit)?;
    let unknown = |_| Problem::field("cursor", "is not a `nextCursor` of this list").unreadable();
    let before = query.cursor.as_deref().map(str::parse).transpose().map_err(unknown)?;
    let JobQuery { state, kind, session_id: session, .. } = query;
    let rows = app.store.jobs(JobFilter { state, kind, session, before, limit: limit + 1 }).await?;
    Ok(Reply(List::page(rows, limit, |last| last.id.to_string())))
}

/// Reads a job, with its answer once it has one.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "The job", body = JobView), JobProblems))]
pub(crate) async fn get_job(
    State(app): State<Shared>,
    Path(id): Path<JobId>,
) -> Result<Reply<JobView>, ApiProblem> {
    let job = app.store.job(id).await?.ok_or(StoreError::JobNotFound)?;
    Ok(Reply(job.into()))
}

/// Cancels a job.
///
/// At once where no turn has taken it; together with its turn where one has. An ended job is left alone.
#[utoipa::path(post, path = "/jobs/{id}/cancel", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "What was cancelled", body = CancelResponse), JobProblems))]
pub(crate) async fn cancel_job(
    State(app): State<Shared>,
    Path(id): Path<JobId>,
) -> Result<Reply<CancelResponse>, ApiProblem> {
    let shared = app.clone();
    let cancelled = app.to_the_end(async move { accept::cancel_job(&shared, id).await }).await?;
    Ok(Reply(cancelled.into()))
}
