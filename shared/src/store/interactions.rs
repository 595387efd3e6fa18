//! Interactions: a turn waits for a person. The first answer counts.

use serde_json::Value;

use super::db::{Tx, values};
use super::rows::{INTERACTION_COLUMNS, interaction};
use super::step::Stepped;
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
    /// Asks a person, in the name of a running turn. Where a run of this turn that died had asked the same, and has not
    /// taken the answer that it got, that question is returned instead.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing is asked.
    pub async fn ask(&self, lease: &Lease, new: NewInteraction) -> Result<Interaction, StoreError> {
        let SessionTx { mut tx, row } = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(mut held, receipt) => {
                let id: InteractionId = receipt.read()?;
                let sql = concat!("SELECT ", INTERACTION_COLUMNS!(), " FROM interactions WHERE id = $1");
                return interaction(&held.tx.one(sql, values![id.0]).await?);
            }
        };
        if row.active_turn != Some(new.turn) {
            return Err(StoreError::LeaseLost);
        }
        if let Some(given) = given_to_the_dead(&mut tx, &new, row.id).await? {
            return Ok(given);
        }
        let id = InteractionId::generate();
        let expires_ms = row.now_ms.saturating_add(new.open_ms);
        let sql = "INSERT INTO interactions (id, session_id, turn_id, kind, state, payload, created_ms, expires_ms) \
                   VALUES ($1, $2, $3, $4, 'open', $5, $6, $7)";
        let payload = new.payload.to_string();
        let values = values![id.0, row.id.0, new.turn.0, new.kind.as_str(), payload, row.now_ms, expires_ms];
        tx.run(sql, values).await?;
        self.note(&mut tx, &row, &id).await?;
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
        self.transact(|| self.resolve_once(session, id, answer)).await
    }

    async fn resolve_once(
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

    /// Notes that a run goes on with what came of a question: from now on the answer is used up. A question whose run died
    /// before has had no effect.
    pub async fn take_answer(&self, lease: &Lease, id: InteractionId) -> Result<(), StoreError> {
        let SessionTx { mut tx, row } = self.lock_leased(lease).await?;
        let sql =
            "UPDATE interactions SET taken_ms = coalesce(taken_ms, $2) WHERE id = $1 AND session_id = $3";
        tx.run(sql, values![id.0, row.now_ms, row.id.0]).await?;
        tx.commit().await
    }

    /// Closes the open questions of a run that does not want to know any more, not even an answer that came just now;
    /// returns which those were.
    pub async fn withdraw(&self, lease: &Lease) -> Result<Vec<InteractionId>, StoreError> {
        let SessionTx { mut tx, row } = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(_, receipt) => return receipt.read(),
        };
        let closed = close_interactions(&mut tx, &row, InteractionState::Cancelled).await?;
        let sql = "UPDATE interactions SET taken_ms = $2 WHERE session_id = $1 AND taken_ms IS NULL";
        tx.run(sql, values![row.id.0, row.now_ms]).await?;
        self.note(&mut tx, &row, &closed).await?;
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

/// The question that a run of the same turn has asked before it died, with an answer that it did not live to take.
async fn given_to_the_dead(
    tx: &mut Tx,
    new: &NewInteraction,
    session: SessionId,
) -> Result<Option<Interaction>, StoreError> {
    let sql = concat!(
        "SELECT ",
        INTERACTION_COLUMNS!(),
        " FROM interactions WHERE session_id = $1 AND turn_id = $2 AND kind = $3 AND state = 'answered' \
          AND taken_ms IS NULL ORDER BY id"
    );
    for found in tx.all(sql, values![session.0, new.turn.0, new.kind.as_str()]).await? {
        let given = interaction(&found)?;
        if asks_the_same(&given.payload, &new.payload) {
            return Ok(Some(given));
        }
    }
    Ok(None)
}

/// Whether two questions are the same to the person who is asked. A model that begins anew gives its call another id.
fn asks_the_same(one: &Value, other: &Value) -> bool {
    let without_id = |payload: &Value| {
        let mut payload = payload.clone();
        if let Some(fields) = payload.as_object_mut() {
            fields.remove("toolCallId");
        }
        payload
    };
    without_id(one) == without_id(other)
}

/// Closes what a run that died leaves open. Returns which those were, and whether the run waited for a person: it has not
/// taken what came of its last question, so the call that it was about has not begun.
pub(super) async fn supersede(
    tx: &mut Tx,
    row: &Locked,
    turn: TurnId,
) -> Result<(Vec<InteractionId>, bool), StoreError> {
    let superseded = close_interactions(tx, row, InteractionState::Superseded).await?;
    let sql =
        "SELECT id FROM interactions WHERE session_id = $1 AND turn_id = $2 AND taken_ms IS NULL LIMIT 1";
    let waited = tx.first(sql, values![row.id.0, turn.0]).await?.is_some();
    // An answer can still be taken. Whatever else came of it, the next run asks anew.
    let sql = "UPDATE interactions SET taken_ms = $3 \
               WHERE session_id = $1 AND turn_id = $2 AND taken_ms IS NULL AND state <> 'answered'";
    tx.run(sql, values![row.id.0, turn.0, row.now_ms]).await?;
    Ok((superseded, waited))
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
