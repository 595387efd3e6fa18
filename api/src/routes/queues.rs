//! The queues, as operators see them.

use axum::Json as Reply;
use axum::extract::State;

use super::List;
use crate::app::Shared;
use crate::openapi::ReadProblems;
use crate::problem::ApiProblem;
use crate::views::QueueView;

/// Lists the queues: what waits, what runs, what ended lately.
#[utoipa::path(get, path = "/queues", tag = "operations",
    responses((status = 200, description = "All queues", body = List<QueueView>), ReadProblems))]
pub(crate) async fn list_queues(State(app): State<Shared>) -> Result<Reply<List<QueueView>>, ApiProblem> {
    let stats = app.store.queue_stats().await?;
    let mut queues = Vec::with_capacity(stats.len());
    for of in stats {
        // Unknown where the queue is away: the mailboxes are the truth.
        let bells = app.queue.depth(of.lane).await.ok();
        queues.push(QueueView::new(of, bells));
    }
    Ok(Reply(List::whole(queues)))
}
