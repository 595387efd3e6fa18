//! Interactions: a turn waits for a person. The first answer counts.

use serde_json::Value;

use super::db::{Tx, values};
use super::rows::{INTERACTION_COLUMNS, interaction};
use super::tx::{Locked, SessionTx};
use super::{Store, StoreError};
use crate::domain::{
    Interaction, InteractionAnswer, InteractionId, InteractionKind, InteractionState, Lease, SessionId,
    TurnId,
};

/// A question that is to be asked.
#[derive(Debug, Clone)]
pub struct NewInteraction {
    /// The turn that waits.
    pub turn: TurnId,
    /// What is asked for.
    pub kind: InteractionKind,
    /// The question, as it is shown.
    pub payload: Value,
    /// How long it may be open, in milliseconds.
    pub open_ms: i64,
}

impl Store {
    /// Asks a person, in the name of a running turn.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing is asked.
    pub async fn ask(&self, lease: &Lease, new: NewInteraction) -> Result<Interaction, StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        if row.active_turn != Some(new.turn) {
            return Err(StoreError::LeaseLost);
        }
        let id = InteractionId::generate();
        let expires_ms = row.now_ms.saturating_add(new.open_ms);
        let sql = "INSERT INTO interactions (id, session_id, turn_id, kind, state, payload, created_ms, expires_ms) \
                   VALUES ($1, $2, $3, $4, 'open', $5, $6, $7)";
        let payload = new.payload.to_string();
        let values = values![id.0, row.id.0, new.turn.0, new.kind.as_str(), payload, row.now_ms, expires_ms];
        tx.run(sql, values).await?;
        tx.commit().await?;
        Ok(Interaction {
            id,
            session: row.id,
            turn: new.turn,
            kind: new.kind,
            state: InteractionState::Open,
            payload: new.payload,
            answer: None,
            created_ms: row.now_ms,
            expires_ms,
            resolved_ms: None,
        })
    }

    /// Answers a question. The first answer counts.
    ///
    /// # Errors
    /// [`StoreError::InteractionNotFound`], [`StoreError::InteractionResolved`].
    pub async fn resolve(
        &self,
        session: SessionId,
        id: InteractionId,
        answer: &InteractionAnswer,
    ) -> Result<Interaction, StoreError> {
        let SessionTx { mut tx, row } = self.lock(session).await?;
        let sql = "UPDATE interactions SET state = 'answered', answer = $3, resolved_ms = $4 \
                   WHERE id = $1 AND session_id = $2 AND state = 'open' AND expires_ms > $4";
        let values = values![id.0, session.0, super::finish::to_json(answer), row.now_ms];
        if tx.run(sql, values).await? == 0 {
            drop(tx);
            return Err(match self.interaction(session, id).await? {
                Some(_) => StoreError::InteractionResolved,
                None => StoreError::InteractionNotFound,
            });
        }
        tx.commit().await?;
        self.interaction(session, id).await?.ok_or(StoreError::InteractionNotFound)
    }

    /// Closes a question whose time is up. An answer that came first stands; the question is returned as it is then.
    pub async fn expire(&self, lease: &Lease, id: InteractionId) -> Result<Interaction, StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        let sql = "UPDATE interactions SET state = 'expired', resolved_ms = $2 \
                   WHERE id = $1 AND session_id = $3 AND state = 'open'";
        tx.run(sql, values![id.0, row.now_ms, row.id.0]).await?;
        tx.commit().await?;
        self.interaction(lease.session, id).await?.ok_or(StoreError::InteractionNotFound)
    }

    /// Closes the open questions of a run that does not want to know any more; returns which those were.
    pub async fn withdraw(&self, lease: &Lease) -> Result<Vec<InteractionId>, StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        let closed = close_interactions(&mut tx, &row, InteractionState::Cancelled).await?;
        tx.commit().await?;
        Ok(closed)
    }

    /// A question.
    pub async fn interaction(
        &self,
        session: SessionId,
        id: InteractionId,
    ) -> Result<Option<Interaction>, StoreError> {
        let sql = concat!(
            "SELECT ",
            INTERACTION_COLUMNS!(),
            " FROM interactions WHERE id = $1 AND session_id = $2"
        );
        self.db.first(sql, values![id.0, session.0]).await?.as_ref().map(interaction).transpose()
    }

    /// The open questions of a session, oldest first.
    pub async fn open_interactions(&self, session: SessionId) -> Result<Vec<Interaction>, StoreError> {
        let sql = concat!(
            "SELECT ",
            INTERACTION_COLUMNS!(),
            " FROM interactions WHERE session_id = $1 AND state = 'open' ORDER BY id"
        );
        self.db.all(sql, values![session.0]).await?.iter().map(interaction).collect()
    }
}

/// Closes what a run leaves open. Returns which those were.
pub(super) async fn close_interactions(
    tx: &mut Tx,
    row: &Locked,
    state: InteractionState,
) -> Result<Vec<InteractionId>, StoreError> {
    let sql = "UPDATE interactions SET state = $2, resolved_ms = $3 \
               WHERE session_id = $1 AND state = 'open' RETURNING id";
    let closed = tx.all(sql, values![row.id.0, state.as_str(), row.now_ms]).await?;
    closed.iter().map(|row| Ok(InteractionId(row.get("id")?))).collect()
}
