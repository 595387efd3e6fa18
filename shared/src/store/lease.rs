//! The end of a lease that its run does not end: its worker is dead, its run broke off, or it is given back on purpose.

use serde::{Deserialize, Serialize};

use super::cancel::cut_short;
use super::children::first_with_child;
use super::db::values;
use super::finish::{Ended, end_job, to_json};
use super::interactions::supersede;
use super::maintenance::end_hopeless_work;
use super::outbox::{self, Closing};
use super::progress::{CallEnd, close_calls, count_messages, open_calls};
use super::step::{EndedReceipt, Noted, Stepped, ended_again};
use super::sweep::head;
use super::tx::{SessionTx, lives};
use super::{Outcome, Store, StoreError};
use crate::code::Code;
use crate::domain::{
    InteractionId, JobId, JobKind, Lease, LeaseToken, SessionId, SessionJob, Stored, TurnId, WorkerId,
};
use crate::problem::Problem;

/// A session that was taken from a run which did not end by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Reaped {
    /// The session.
    pub session: SessionId,
    /// The worker that had it.
    pub worker: WorkerId,
    /// The token of its lease.
    pub token: LeaseToken,
    /// The turn that was cut off.
    pub turn: Option<TurnId>,
    /// The questions to people that were open, and are superseded now.
    pub superseded: Vec<InteractionId>,
    /// The job to ring for, where the session has mail.
    pub next: Option<SessionJob>,
    /// The jobs that ended with it, because their tries are used up or because they were cancelled.
    pub ended: Vec<Ended>,
    /// What is to be published of all that.
    pub stored: Option<Stored>,
}

impl Store {
    /// The sessions of workers that were declared dead or whose rows are gone, in the order of their ids, after `after`.
    pub async fn reapable(&self, after: Option<SessionId>, limit: i64) -> Result<Vec<SessionId>, StoreError> {
        let sql = "SELECT s.id FROM sessions s LEFT JOIN workers w ON w.id = s.lease_worker \
                   WHERE s.lease_worker IS NOT NULL AND (w.id IS NULL OR w.dead_ms IS NOT NULL) AND s.id > $1 \
                   ORDER BY s.id LIMIT $2";
        let after = after.map_or_else(uuid::Uuid::nil, |session| session.0);
        let rows = self.db.all(sql, values![after, limit]).await?;
        rows.iter().map(|row| Ok(SessionId(row.get("id")?))).collect()
    }

    /// Takes a session from a dead worker: what its turn had claimed goes back to the mailbox, or fails with
    /// `WORKER_LOST` once the turn was tried `max_attempts` times. `None`: somebody else was faster, the worker lives, the
    /// session is gone, or somebody holds it or its parent: a reaper does not wait for one session but looks again later.
    pub async fn reap(&self, session: SessionId, max_attempts: i64) -> Result<Option<Reaped>, StoreError> {
        let taken = async {
            let mut held = self.lock_short_wait(session).await?;
            let Some(worker) = held.row.lease_worker else { return Ok(None) };
            if lives(&mut held.tx, worker).await? {
                return Ok(None);
            }
            take_back(self, held, worker, max_attempts, Attempt::Spent).await.map(Some)
        };
        match taken.await {
            Err(StoreError::SessionNotFound) => Ok(None),
            Err(error) if error.is_locked() => Ok(None),
            taken => taken,
        }
    }

    /// The same for a lease whose worker lives but whose run is gone, because it broke off in the middle. `None`: somebody
    /// holds the session or its parent.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] where the lease is no longer the session's.
    pub async fn abandon(&self, lease: &Lease, max_attempts: i64) -> Result<Option<Reaped>, StoreError> {
        let taken = async {
            let held = self.lock_short_wait(lease.session).await?;
            held.is_held_by(lease)?;
            take_back(self, held, lease.worker, max_attempts, Attempt::Spent).await.map(Some)
        };
        match taken.await {
            Err(StoreError::SessionNotFound) => Err(StoreError::LeaseLost),
            Err(error) if error.is_locked() => Ok(None),
            taken => taken,
        }
    }

    /// Gives a session back on purpose: its claims return to the mailbox, and no try is spent. A turn that somebody
    /// cancelled ends here.
    pub async fn hand_back(&self, lease: &Lease) -> Result<Reaped, StoreError> {
        self.transact(|| self.hand_back_once(lease)).await
    }

    async fn hand_back_once(&self, lease: &Lease) -> Result<Reaped, StoreError> {
        let held = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(mut held, receipt) => {
                let TakenReceipt { turn, superseded, next, ended, stored } = receipt.read()?;
                let ended = ended_again(&mut held.tx, ended).await?;
                let stored = outbox::find(&mut held.tx, stored).await?;
                let (session, worker, token) = (lease.session, lease.worker, lease.token);
                return Ok(Reaped { session, worker, token, turn, superseded, next, ended, stored });
            }
        };
        take_back(self, held, lease.worker, i64::MAX, Attempt::Refunded).await
    }
}

/// Whether a claim that is given back counts as a try.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attempt {
    Spent,
    Refunded,
}

/// Ends a run that did not end by itself.
async fn take_back(
    store: &Store,
    mut held: SessionTx,
    worker: WorkerId,
    max_attempts: i64,
    attempt: Attempt,
) -> Result<Reaped, StoreError> {
    let turn = held.row.active_turn;
    let (mut ended, mut superseded) = (Vec::new(), Vec::new());
    if let Some(turn) = turn {
        count_attempt(&mut held, turn, attempt).await?;
        ended = end_hopeless(&mut held, turn, max_attempts).await?;
        let SessionTx { tx, row } = &mut held;
        let waited;
        (superseded, waited) = supersede(tx, row, turn).await?;
        let mut open = open_calls(tx, row, turn).await?;
        if ended.is_empty() {
            // A call that waits for a person has not begun, one that has a child finds it again, and none after them has
            // begun: whoever goes on asks anew.
            let begun = if waited { Some(0) } else { first_with_child(tx, &open).await? };
            open.truncate(begun.unwrap_or(open.len()));
        }
        let end = match attempt {
            Attempt::Spent => CallEnd::Unknown,
            Attempt::Refunded => CallEnd::Stopped,
        };
        let closed = close_calls(tx, row, turn, open, end).await?;
        count_messages(tx, row, closed.len(), &Noted::NOTHING).await?;
    }
    if turn.is_none() {
        ended = end_hopeless_work(&mut held, max_attempts).await?;
    }
    let next = release(&mut held, attempt).await?;
    let SessionTx { tx, row } = &mut held;
    let mut closing = Closing::of(row);
    closing.taken_back(turn, &superseded, &ended);
    let stored = closing.leave(tx, store.step).await?;
    let receipt = TakenReceipt {
        turn,
        superseded: superseded.clone(),
        next,
        ended: EndedReceipt::of(&ended),
        stored: stored.as_ref().map(|stored| stored.id),
    };
    store.note(tx, row, &receipt).await?;
    held.tx.commit().await?;
    let token = held.row.lease_token;
    Ok(Reaped { session: held.row.id, worker, token, turn, superseded, next, ended, stored })
}

/// A session that was given back, as a receipt has it.
#[derive(Debug, Serialize, Deserialize)]
struct TakenReceipt {
    turn: Option<TurnId>,
    superseded: Vec<InteractionId>,
    next: Option<SessionJob>,
    ended: Vec<EndedReceipt>,
    stored: Option<i64>,
}

/// Notes in a turn's row how its attempt has ended. One that was handed back does not count.
async fn count_attempt(held: &mut SessionTx, turn: TurnId, attempt: Attempt) -> Result<(), StoreError> {
    let (refund, handed_back) = match attempt {
        Attempt::Spent => (0_i64, false),
        Attempt::Refunded => (1, true),
    };
    let sql = "UPDATE turns SET attempt = attempt - $2, handed_back = $3 WHERE id = $1";
    held.tx.run(sql, values![turn.0, refund, handed_back]).await.map(drop)
}

/// What is told of a job whose workers have all died.
pub(super) fn worker_lost(attempt: i64) -> Problem {
    Problem::with_detail(Code::WorkerLost, format!("the worker died {attempt} times while it ran this"))
}

/// Ends the jobs of a cut-off turn that will not be tried again.
async fn end_hopeless(
    held: &mut SessionTx,
    turn: TurnId,
    max_attempts: i64,
) -> Result<Vec<Ended>, StoreError> {
    let SessionTx { tx, row } = held;
    let cancelled = row.cancel_turn == Some(turn);
    let attempt: i64 =
        tx.one("SELECT attempt FROM turns WHERE id = $1", values![turn.0]).await?.get("attempt")?;
    if attempt < max_attempts && !cancelled {
        return Ok(Vec::new());
    }
    let problem = worker_lost(attempt);
    let sql =
        "SELECT id, kind FROM jobs WHERE session_id = $1 AND turn_id = $2 AND state = 'claimed' ORDER BY seq";
    let mut ended = Vec::new();
    for claimed in tx.all(sql, values![row.id.0, turn.0]).await? {
        let job = JobId(claimed.get("id")?);
        let kind = JobKind::from_name(&claimed.get::<String>("kind")?)
            .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
        let outcome = if cancelled {
            Outcome::Answered(Box::new(cut_short(tx, row, job, kind, Some(turn)).await?))
        } else {
            Outcome::Failed(problem.clone())
        };
        ended.push(end_job(tx, job, kind, outcome, row.now_ms).await?);
    }
    let (state, problem) = if cancelled { ("cancelled", None) } else { ("failed", Some(to_json(&problem))) };
    let sql = "UPDATE turns SET state = $2, problem = $3, ended_ms = $4 WHERE id = $1";
    tx.run(sql, values![turn.0, state, problem, row.now_ms]).await?;
    let sql = "UPDATE sessions SET last_turn_failed = $2 WHERE id = $1";
    tx.run(sql, values![row.id.0, !cancelled]).await?;
    Ok(ended)
}

/// Ends a lease without an answer: claims go back to the mailbox. Returns the job to ring for.
pub(super) async fn release(
    held: &mut SessionTx,
    attempt: Attempt,
) -> Result<Option<SessionJob>, StoreError> {
    let refund = match attempt {
        Attempt::Spent => 0_i64,
        Attempt::Refunded => 1,
    };
    let sql = "UPDATE jobs SET state = 'pending', claim_token = NULL, attempt = attempt - $2 \
               WHERE session_id = $1 AND state = 'claimed'";
    held.tx.run(sql, values![held.row.id.0, refund]).await?;
    let sql = "UPDATE sessions SET lease_worker = NULL, active_turn_id = NULL, \
               cancel_turn_id = NULL, enqueued_ms = $2, updated_ms = $2 WHERE id = $1";
    held.tx.run(sql, values![held.row.id.0, held.row.now_ms]).await?;
    head(held).await
}
