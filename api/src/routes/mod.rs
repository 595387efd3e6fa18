//! The routes, one module for each noun of the contract.

pub(crate) mod agents;
pub(crate) mod chat;
pub(crate) mod cuts;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod interactions;
pub(crate) mod jobs;
pub(crate) mod messages;
pub(crate) mod queues;
pub(crate) mod sessions;
pub(crate) mod workers;

use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::Shared;

/// All routes that the `OpenAPI` document describes.
pub(crate) fn all() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(chat::chat))
        .routes(routes!(sessions::create_session, sessions::list_sessions))
        .routes(routes!(sessions::get_session, sessions::patch_session, sessions::delete_session))
        .routes(routes!(sessions::cancel_session))
        .routes(routes!(cuts::fork_session))
        .routes(routes!(cuts::reset_session))
        .routes(routes!(messages::list_messages, cuts::trim_session))
        .routes(routes!(cuts::trim_session_after))
        .routes(routes!(cuts::delete_message))
        .routes(routes!(events::session_events))
        .routes(routes!(interactions::list_interactions))
        .routes(routes!(interactions::answer_interaction))
        .routes(routes!(jobs::list_jobs))
        .routes(routes!(jobs::get_job))
        .routes(routes!(jobs::cancel_job))
        .routes(routes!(queues::list_queues))
        .routes(routes!(workers::list_workers))
        .routes(routes!(agents::list_agents))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

/// A page of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List<T> {
    /// The entries.
    pub(crate) items: Vec<T>,
    /// What to ask for the next page with; `null` at the end.
    pub(crate) next_cursor: Option<String>,
}

impl<T> List<T> {
    /// All there is.
    pub(crate) const fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }

    /// A page of `limit`, from rows of which one more was asked for; the cursor is made of the last row shown.
    pub(crate) fn page<R: Into<T>>(mut rows: Vec<R>, limit: i64, cursor: impl Fn(&R) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or_default();
        let more = limit < rows.len();
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(cursor);
        Self { items: rows.into_iter().map(Into::into).collect(), next_cursor }
    }
}

/// What a cancel did.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CancelResponse {
    /// Whether there was anything to cancel.
    pub(crate) cancelled: bool,
    /// The turn that will end by it, where one runs.
    pub(crate) turn_id: Option<roundhouse_shared::domain::TurnId>,
}

impl From<roundhouse_shared::store::Cancelled> for CancelResponse {
    fn from(cancelled: roundhouse_shared::store::Cancelled) -> Self {
        Self { cancelled: cancelled.any(), turn_id: cancelled.turn }
    }
}
