//! A turn's row: the attempt that begins, and the clock of how long all attempts have worked.

use super::db::values;
use super::tx::SessionTx;
use super::{Store, StoreError};
use crate::domain::{Lease, TurnId};

impl Store {
    /// Keeps for how long a running turn has worked. The time never becomes less, so this may be repeated; of a turn that
    /// another run has taken up, or that has ended, nothing is changed.
    pub async fn keep_worked(&self, lease: &Lease, turn: TurnId, worked_ms: i64) -> Result<(), StoreError> {
        // The turn's own row says who runs it: the session need not be locked.
        let sql = "UPDATE turns SET worked_ms = $4 WHERE id = $1 AND worker_id = $2 AND token = $3 \
                   AND state = 'running' AND worked_ms < $4";
        let mut tx = self.db.begin().await?;
        tx.run(sql, values![turn.0, lease.worker.0, lease.token.0, worked_ms]).await?;
        tx.commit().await
    }
}

/// A turn's row as an attempt finds it.
pub(super) struct OpenTurn {
    /// Which attempt this is.
    pub(super) attempt: i64,
    /// The attempt before was handed back on purpose.
    pub(super) handed_back: bool,
    /// For how long the attempts before have worked.
    pub(super) worked_ms: i64,
}

/// Writes the turn's row, or takes up the one that was cut off.
pub(super) async fn open_turn(
    held: &mut SessionTx,
    lease: &Lease,
    turn: TurnId,
    continued: bool,
    model: Option<&str>,
) -> Result<OpenTurn, StoreError> {
    if continued {
        let sql = "UPDATE turns SET state = 'running', attempt = attempt + 1, worker_id = $2, token = $3 \
                   WHERE id = $1 RETURNING attempt, handed_back, worked_ms";
        let row = held.tx.one(sql, values![turn.0, lease.worker.0, lease.token.0]).await?;
        return Ok(OpenTurn {
            attempt: row.get("attempt")?,
            handed_back: row.get("handed_back")?,
            worked_ms: row.get("worked_ms")?,
        });
    }
    let sql = "INSERT INTO turns (id, session_id, state, attempt, worker_id, token, model, started_ms) \
               VALUES ($1, $2, 'running', $3, $4, $5, $6, $7)";
    let values =
        values![turn.0, lease.session.0, 1_i64, lease.worker.0, lease.token.0, model, held.row.now_ms,];
    held.tx.run(sql, values).await?;
    Ok(OpenTurn { attempt: 1, handed_back: false, worked_ms: 0 })
}
