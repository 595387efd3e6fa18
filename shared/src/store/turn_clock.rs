//! The clock of a turn: for how long it has worked, over all its attempts.

use super::db::values;
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
