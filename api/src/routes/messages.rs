//! A session's messages, in the order of arrival.

use axum::Json as Reply;
use axum::extract::State;
use roundhouse_shared::domain::{MessageId, MessageView, SessionId};
use roundhouse_shared::store::{MessagePage, StoreError};
use serde::Deserialize;

use super::List;
use crate::app::Shared;
use crate::extract::{Path, Query, limit};
use crate::openapi::SessionListProblems;
use crate::problem::ApiProblem;

/// Which messages to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessageQuery {
    /// Only later ones than this.
    after: Option<i64>,
    /// Only earlier ones than this; without `after`, the newest of them.
    before: Option<i64>,
    /// At most so many, 1 to 200.
    limit: Option<i64>,
}

/// Lists messages, oldest first.
///
/// `nextCursor` is the next page's `after`, or its `before` where only `before` was given.
#[utoipa::path(get, path = "/sessions/{id}/messages", tag = "sessions",
    params(("id" = SessionId, Path, description = "The session"), MessageQuery),
    responses((status = 200, description = "A page of messages", body = List<MessageView>), SessionListProblems))]
pub(crate) async fn list_messages(
    State(app): State<Shared>,
    Path(id): Path<SessionId>,
    Query(query): Query<MessageQuery>,
) -> Result<Reply<List<MessageView>>, ApiProblem> {
    let limit = limit(query.limit)?;
    let page = MessagePage {
        after: query.after.map(MessageId),
        before: query.before.map(MessageId),
        limit: limit + 1,
    };
    let mut rows = app.store.messages(id, page).await?;
    if rows.is_empty() {
        app.store.session(id).await?.ok_or(StoreError::SessionNotFound)?;
    }
    if page.after.is_some() || page.before.is_none() {
        return Ok(Reply(List::page(rows, limit, |last| last.id.to_string())));
    }
    // From the end: the one too many is the oldest.
    let more = usize::try_from(limit).is_ok_and(|limit| limit < rows.len());
    if more {
        rows.remove(0);
    }
    let next_cursor = rows.first().filter(|_| more).map(|first| first.id.to_string());
    Ok(Reply(List { items: rows.into_iter().map(Into::into).collect(), next_cursor }))
}
