//! Questions of an agent to a person.

use axum::Json as Reply;
use axum::extract::State;
use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::{InteractionAnswer, InteractionId, InteractionView, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::StoreError;

use super::List;
use crate::app::Shared;
use crate::check;
use crate::extract::{Json, Path, Paths};
use crate::openapi::{InteractionProblems, SessionListProblems};
use crate::problem::ApiProblem;

/// Lists the open questions of a session, the oldest first.
#[utoipa::path(get, path = "/sessions/{id}/interactions", tag = "interactions",
    params(("id" = SessionId, Path, description = "The session")),
    responses((status = 200, description = "The open questions", body = List<InteractionView>), SessionListProblems))]
pub(crate) async fn list_interactions(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
) -> Result<Reply<List<InteractionView>>, ApiProblem> {
    let open = app.store.open_interactions(id).await?;
    if open.is_empty() {
        app.store.session(id).await?.ok_or(StoreError::SessionNotFound)?;
    }
    Ok(Reply(List::whole(open.into_iter().map(Into::into).collect())))
}

/// Answers a question. The first answer counts.
#[utoipa::path(post, path = "/sessions/{id}/interactions/{interaction}", tag = "interactions",
    params(
        ("id" = SessionId, Path, description = "The session"),
        ("interaction" = InteractionId, Path, description = "The question"),
    ),
    request_body = InteractionAnswer,
    responses((status = 200, description = "The question, answered", body = InteractionView), InteractionProblems))]
pub(crate) async fn answer_interaction(
    State(app): State<Shared>,
    Paths(session, id): Paths<SessionId, InteractionId>,
    Json(answer): Json<InteractionAnswer>,
) -> Result<Reply<InteractionView>, ApiProblem> {
    readable(&answer)?;
    let shared = app.clone();
    let resolved = app
        .to_the_end(async move {
            let resolved = shared.store.resolve(session, id, &answer).await?;
            // The waiting turn looks by itself now and then; this makes it fast.
            shared.bus.notify(&[Notice::Resolved(session, id)]).await;
            Ok(resolved)
        })
        .await?;
    Ok(Reply(resolved.into()))
}

/// Whether the texts of an answer can be stored.
fn readable(answer: &InteractionAnswer) -> Result<(), Problem> {
    check::text("message", answer.message.as_deref())?;
    check::object("answers", answer.answers.as_ref())?;
    check::object("updatedInput", answer.updated_input.as_ref())
}
