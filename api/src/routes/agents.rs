//! The agents that can be talked to.

use axum::Json as Reply;
use axum::extract::State;
use roundhouse_shared::domain::AgentStatus;

use super::List;
use crate::app::Shared;
use crate::openapi::ReadProblems;
use crate::problem::ApiProblem;

/// Lists the agents, and says for each whether a live worker can run it.
#[utoipa::path(get, path = "/agents", tag = "chat",
    responses((status = 200, description = "All agents", body = List<AgentStatus>), ReadProblems))]
pub(crate) async fn list_agents(State(app): State<Shared>) -> Result<Reply<List<AgentStatus>>, ApiProblem> {
    let agents = app.agents.all(&app.store).await?;
    Ok(Reply(List::whole(agents)))
}
