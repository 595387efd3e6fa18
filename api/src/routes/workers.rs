//! The workers, as operators see them.

use axum::Json as Reply;
use axum::extract::State;

use super::List;
use crate::app::Shared;
use crate::openapi::ReadProblems;
use crate::problem::ApiProblem;
use crate::views::WorkerView;

/// Lists the workers that are alive, with what each can run and runs.
#[utoipa::path(get, path = "/workers", tag = "operations",
    responses((status = 200, description = "All live workers", body = List<WorkerView>), ReadProblems))]
pub(crate) async fn list_workers(State(app): State<Shared>) -> Result<Reply<List<WorkerView>>, ApiProblem> {
    let workers = app.store.workers().await?;
    Ok(Reply(List::whole(workers.into_iter().map(Into::into).collect())))
}
