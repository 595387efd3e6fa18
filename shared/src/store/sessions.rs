//! Sessions as clients read and change them.

use super::admit::{NewSession, insert_session};
use super::db::values;
use super::doomed::doom_own;
use super::outbox::ANSWERS_KEPT_MS;
use super::rows::{SESSION_COLUMNS, session};
use super::{Store, StoreError};
use crate::domain::{Session, SessionId, SessionStatus};

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only those that do this.
    pub status: Option<SessionStatus>,
    /// Only those whose last activity lies before this place in the list.
    pub before: Option<(i64, SessionId)>,
    /// At most so many.
    pub limit: i64,
}

/// What to change in a session. `None`: leave it; `Some(None)`: clear it.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// The title.
    pub title: Option<Option<String>>,
    /// The model.
    pub model: Option<Option<String>>,
    /// The client's own data.
    pub metadata: Option<serde_json::Value>,
    /// Whether it is put away.
    pub archived: Option<bool>,
}

/// What a deletion took away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// The engine's own conversation, which outlives the row until a worker of its host deletes it.
    pub native_session: Option<String>,
}

impl Store {
    /// Creates a session.
    pub async fn create_session(&self, new: &NewSession) -> Result<Session, StoreError> {
        let mut tx = self.db.begin().await?;
        let now_ms = tx.now_ms().await?;
        insert_session(&mut tx, new, now_ms).await?;
        tx.commit().await?;
        self.session(new.id).await?.ok_or(StoreError::SessionNotFound)
    }

    /// A session.
    pub async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        let sql = concat!("SELECT ", SESSION_COLUMNS!(), " FROM sessions s WHERE s.id = $1");
        self.db.first(sql, values![id.0]).await?.as_ref().map(session).transpose()
    }

    /// Sessions, the newest activity first.
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        let sql = concat!(
            "SELECT * FROM (SELECT ",
            SESSION_COLUMNS!(),
            " FROM sessions s) q WHERE ($1 = '' OR agent = $1) AND ($2 = '' OR status = $2) \
             AND (updated_ms < $3 OR (updated_ms = $3 AND id < $4)) ORDER BY updated_ms DESC, id DESC LIMIT $5"
        );
        let (before_ms, before) = filter.before.map_or((i64::MAX, uuid::Uuid::max()), |(ms, id)| (ms, id.0));
        let values = values![
            filter.agent.as_deref().unwrap_or_default(),
            filter.status.map_or("", SessionStatus::as_str),
            before_ms,
            before,
            filter.limit,
        ];
        self.db.all(sql, values).await?.iter().map(session).collect()
    }

    /// Changes what a client may change. Allowed at any time: nothing that runs depends on it before its next turn.
    pub async fn patch_session(&self, id: SessionId, patch: &SessionPatch) -> Result<Session, StoreError> {
        self.transact(|| self.patch_session_once(id, patch)).await
    }

    async fn patch_session_once(&self, id: SessionId, patch: &SessionPatch) -> Result<Session, StoreError> {
        let mut held = self.lock(id).await?;
        let sql = "UPDATE sessions SET title = CASE WHEN $2 THEN $3 ELSE title END, \
                   model = CASE WHEN $4 THEN $5 ELSE model END, \
                   metadata = CASE WHEN $6 THEN $7 ELSE metadata END, \
                   archived = CASE WHEN $8 THEN $9 ELSE archived END, updated_ms = $10 WHERE id = $1";
        let values = values![
            id.0,
            patch.title.is_some(),
            patch.title.as_ref().and_then(Option::as_deref),
            patch.model.is_some(),
            patch.model.as_ref().and_then(Option::as_deref),
            patch.metadata.is_some(),
            patch.metadata.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string),
            patch.archived.is_some(),
            patch.archived.unwrap_or_default(),
            held.row.now_ms,
        ];
        held.tx.run(sql, values).await?;
        held.tx.commit().await?;
        self.session(id).await?.ok_or(StoreError::SessionNotFound)
    }

    /// Deletes a session and all that belongs to it.
    ///
    /// # Errors
    /// [`StoreError::SessionBusy`] where it runs or has unanswered mail; nothing is deleted then.
    pub async fn delete_session(&self, id: SessionId) -> Result<Deleted, StoreError> {
        self.transact(|| self.delete_session_once(id)).await
    }

    async fn delete_session_once(&self, id: SessionId) -> Result<Deleted, StoreError> {
        let mut held = self.lock(id).await?;
        if held.row.lease_worker.is_some() || held.has_open_jobs().await? {
            return Err(StoreError::SessionBusy);
        }
        doom_own(&mut held.tx, &held.row).await?;
        // Somebody may wait for one of them, and have to be told by another process.
        let sql = "INSERT INTO last_answers (job_id, state, result, problem, ended_ms) \
                   SELECT id, state, result, problem, $2 FROM jobs WHERE session_id = $1 AND ended_ms >= $3";
        let now_ms = held.row.now_ms;
        held.tx.run(sql, values![id.0, now_ms, now_ms - ANSWERS_KEPT_MS]).await?;
        held.tx.run("DELETE FROM sessions WHERE id = $1", values![id.0]).await?;
        held.tx.commit().await?;
        Ok(Deleted { native_session: held.row.native_session })
    }
}
