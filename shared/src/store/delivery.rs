//! Claimed is not delivered: an engine that takes messages at any time says which ones its model has.

use super::db::{Tx, values};
use super::tx::{Locked, SessionTx};
use super::{Store, StoreError};
use crate::domain::{JobId, Lease, TurnId};

impl Store {
    /// The model has the messages of these jobs, and with them whatever a cut had left unsent: from here on they are part
    /// of the conversation.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was written.
    pub async fn delivered(&self, lease: &Lease, turn: TurnId, jobs: &[JobId]) -> Result<(), StoreError> {
        let SessionTx { mut tx, mut row } = self.lock_leased(lease).await?;
        if row.active_turn != Some(turn) {
            return Err(StoreError::LeaseLost);
        }
        let consumed = row.next_seq();
        for job in jobs {
            let sql = "UPDATE messages SET consumed_seq = coalesce(consumed_seq, $3) WHERE job_id = $1 \
                       AND session_id = $2 AND turn_id = $4";
            tx.run(sql, values![job.0, row.id.0, consumed, turn.0]).await?;
        }
        let sql = "UPDATE messages SET unsent = $2 WHERE session_id = $1 AND unsent";
        tx.run(sql, values![row.id.0, false]).await?;
        tx.run("UPDATE sessions SET last_seq = $2 WHERE id = $1", values![row.id.0, row.last_seq]).await?;
        tx.commit().await
    }
}

impl Store {
    /// Whether the model of a turn that runs has the message of this job.
    pub async fn is_consumed(&self, job: JobId) -> Result<bool, StoreError> {
        let sql = "SELECT m.id FROM jobs j JOIN messages m ON m.id = j.message_id \
                   WHERE j.id = $1 AND j.state = 'claimed' AND m.consumed_seq IS NOT NULL";
        Ok(self.db.first(sql, values![job.0]).await?.is_some())
    }
}

/// Puts jobs back that a turn has claimed and whose messages its engine has not shown to the model. It may do so at any
/// moment now: they come first.
pub(super) async fn give_back(
    tx: &mut Tx,
    row: &Locked,
    turn: TurnId,
    jobs: &[JobId],
) -> Result<(), StoreError> {
    for job in jobs {
        let sql = "UPDATE jobs SET state = 'pending', turn_id = NULL, claim_token = NULL, attempt = attempt - 1, \
                   given_back = $4 WHERE id = $1 AND session_id = $2 AND turn_id = $3 AND state = 'claimed'";
        if tx.run(sql, values![job.0, row.id.0, turn.0, true]).await? == 1 {
            let sql = "UPDATE messages SET consumed_seq = NULL, turn_id = NULL WHERE job_id = $1 AND session_id = $2";
            tx.run(sql, values![job.0, row.id.0]).await?;
        }
    }
    Ok(())
}

/// Marks the messages of a cancelled turn that its model was never shown.
pub(super) async fn never_shown(tx: &mut Tx, row: &Locked, turn: TurnId) -> Result<(), StoreError> {
    let sql =
        "UPDATE messages SET cancelled = $3 WHERE session_id = $1 AND turn_id = $2 AND consumed_seq IS NULL";
    tx.run(sql, values![row.id.0, turn.0, true]).await.map(drop)
}
