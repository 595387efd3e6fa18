//! Cancel: a flag for the turn that runs, an answer at once for what no turn has taken.

use super::db::{Tx, values};
use super::finish::{Ended, end_job, unanswered};
use super::outbox::Closing;
use super::progress::{CallEnd, close_open_calls, count_messages};
use super::step::Noted;
use super::tx::{Locked, SessionTx};
use super::{Outcome, Store, StoreError};
use crate::domain::{ChatResult, JobId, JobKind, JobState, Lane, SessionId, Stored, TurnId, Usage};

/// What a cancel did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cancelled {
    /// The turn that will be ended by whoever runs it.
    pub turn: Option<TurnId>,
    /// Jobs that were answered without any turn.
    pub ended: Vec<Ended>,
    /// What is to be published of them.
    pub stored: Option<Stored>,
}

impl Cancelled {
    /// Whether there was anything to cancel.
    pub fn any(&self) -> bool {
        self.turn.is_some() || !self.ended.is_empty()
    }
}

impl Store {
    /// Cancels what a session does now: the turn that runs and the messages injected before, or the job that would
    /// run next. An idle session is left alone.
    pub async fn cancel_session(&self, session: SessionId) -> Result<Cancelled, StoreError> {
        self.transact(|| self.cancel_session_once(session)).await
    }

    async fn cancel_session_once(&self, session: SessionId) -> Result<Cancelled, StoreError> {
        let SessionTx { mut tx, mut row } = self.lock(session).await?;
        let cancelled = cancel_in(&mut tx, &mut row, Reach::Now).await?;
        tx.commit().await?;
        Ok(cancelled)
    }

    /// Cancels all that a session has not done: what it does now, and the jobs that wait for turns of their own.
    pub async fn cancel_all(&self, session: SessionId) -> Result<Cancelled, StoreError> {
        self.transact(|| self.cancel_all_once(session)).await
    }

    async fn cancel_all_once(&self, session: SessionId) -> Result<Cancelled, StoreError> {
        let SessionTx { mut tx, mut row } = self.lock(session).await?;
        let cancelled = cancel_in(&mut tx, &mut row, Reach::All).await?;
        tx.commit().await?;
        Ok(cancelled)
    }

    /// Cancels one job: at once where no turn has taken it, by way of its turn where one has. An injection in a turn that
    /// others wait for too is left alone, as is an ended job.
    ///
    /// # Errors
    /// [`StoreError::JobNotFound`].
    pub async fn cancel_job(&self, job: JobId) -> Result<(SessionId, Cancelled), StoreError> {
        self.transact(|| self.cancel_job_once(job)).await
    }

    async fn cancel_job_once(&self, job: JobId) -> Result<(SessionId, Cancelled), StoreError> {
        let found = self.job(job).await?.ok_or(StoreError::JobNotFound)?;
        let SessionTx { mut tx, mut row } = self.lock(found.session).await?;
        let sql = "SELECT kind, state, turn_id FROM jobs WHERE id = $1";
        let Some(now) = tx.first(sql, values![job.0]).await? else { return Err(StoreError::JobNotFound) };
        let turn = now.get::<Option<uuid::Uuid>>("turn_id")?.map(TurnId);
        let mut cancelled = Cancelled::default();
        match JobState::from_name(&now.get::<String>("state")?) {
            Some(JobState::Pending) => {
                cancelled.ended.push(end_unclaimed(&mut tx, &mut row, job, found.kind, turn).await?);
            }
            Some(JobState::Claimed) => {
                let sql = "SELECT id FROM jobs WHERE session_id = $1 AND turn_id = $2 AND state = 'claimed' \
                           AND id <> $3 LIMIT 1";
                let others = tx.first(sql, values![row.id.0, turn.map(|turn| turn.0), job.0]).await?;
                cancelled.turn = turn.filter(|_| found.kind != JobKind::Inject || others.is_none());
                flag(&mut tx, &row, cancelled.turn).await?;
            }
            _ => {}
        }
        leave(&mut tx, &row, &mut cancelled).await?;
        tx.commit().await?;
        Ok((row.id, cancelled))
    }
}

/// How far a cancel reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// What the session does now. Jobs that wait for turns of their own stay.
    Now,
    /// The same for a message that is to be answered soon: it comes after a fork, a trim or a reset, which stays.
    Interrupt,
    /// Everything.
    All,
}

/// Cancels in a held session.
pub(super) async fn cancel_in(tx: &mut Tx, row: &mut Locked, reach: Reach) -> Result<Cancelled, StoreError> {
    let sql = "SELECT id, kind, state, turn_id FROM jobs WHERE session_id = $1 AND state IN ('pending', 'claimed') \
               ORDER BY turn_id IS NULL, NOT given_back, seq";
    let mut cancelled = Cancelled::default();
    let mut head = true;
    for open in tx.all(sql, values![row.id.0]).await? {
        let job = JobId(open.get("id")?);
        let kind = JobKind::from_name(&open.get::<String>("kind")?)
            .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
        let turn = open.get::<Option<uuid::Uuid>>("turn_id")?.map(TurnId);
        let claimed = open.get::<String>("state")? == JobState::Claimed.as_str();
        let stays = reach == Reach::Interrupt && kind.lane() == Lane::Maintenance;
        if claimed {
            cancelled.turn = turn;
        } else if (head && !stays) || kind == JobKind::Inject || reach == Reach::All {
            cancelled.ended.push(end_unclaimed(tx, row, job, kind, turn).await?);
        }
        head = false;
    }
    flag(tx, row, cancelled.turn).await?;
    leave(tx, row, &mut cancelled).await?;
    Ok(cancelled)
}

/// Stores what is to be published of the jobs that were answered here. What a turn has taken, its run tells.
async fn leave(tx: &mut Tx, row: &Locked, cancelled: &mut Cancelled) -> Result<(), StoreError> {
    let mut closing = Closing::of(row);
    closing.answered(&cancelled.ended, None);
    cancelled.stored = closing.leave(tx, None).await?;
    Ok(())
}

async fn flag(tx: &mut Tx, row: &Locked, turn: Option<TurnId>) -> Result<(), StoreError> {
    let Some(turn) = turn else { return Ok(()) };
    tx.run("UPDATE sessions SET cancel_turn_id = $2 WHERE id = $1", values![row.id.0, turn.0]).await.map(drop)
}

/// The result of a job that was cancelled, with what its turn had come to where one had taken it.
pub(super) async fn cut_short(
    tx: &mut Tx,
    row: &Locked,
    job: JobId,
    kind: JobKind,
    turn: Option<TurnId>,
) -> Result<ChatResult, StoreError> {
    let result = unanswered(row, job, kind);
    let Some(turn) = turn else { return Ok(result) };
    let sql = "SELECT iterations, started_ms, input_tokens, output_tokens, cache_tokens, cost_nanos FROM turns \
               WHERE id = $1";
    let spent = tx.one(sql, values![turn.0]).await?;
    let usage = Usage {
        input_tokens: spent.get("input_tokens")?,
        output_tokens: spent.get("output_tokens")?,
        cache_tokens: spent.get("cache_tokens")?,
        cost_nanos: spent.get("cost_nanos")?,
    };
    Ok(ChatResult {
        turn_id: Some(turn),
        iterations: spent.get::<i64>("iterations")?.max(1),
        duration_ms: (row.now_ms - spent.get::<i64>("started_ms")?).max(0),
        token_usage: usage.into(),
        ..result
    })
}

/// Ends a job that no turn has now. It may be of a turn that was cut off.
async fn end_unclaimed(
    tx: &mut Tx,
    row: &mut Locked,
    job: JobId,
    kind: JobKind,
    turn: Option<TurnId>,
) -> Result<Ended, StoreError> {
    let outcome = if kind.lane() == Lane::Maintenance {
        Outcome::Cancelled
    } else {
        Outcome::Answered(Box::new(cut_short(tx, row, job, kind, turn).await?))
    };
    let ended = end_job(tx, job, kind, outcome, row.now_ms).await?;
    if let Some(turn) = turn {
        // With the last of its jobs it cannot go on.
        let sql = "UPDATE turns SET state = 'cancelled', ended_ms = $3 WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM jobs \
                   WHERE session_id = $2 AND turn_id = $1 AND state IN ('pending', 'claimed'))";
        if tx.run(sql, values![turn.0, row.id.0, row.now_ms]).await? == 1 {
            let closed = close_open_calls(tx, row, turn, CallEnd::Interrupted).await?;
            count_messages(tx, row, closed.len(), &Noted::NOTHING).await?;
        }
    }
    // It stays in the list, marked. A model has seen it only where a turn had taken it and was cut off.
    tx.run(
        "UPDATE messages SET cancelled = $2 WHERE session_id = $3 AND job_id = $1",
        values![job.0, true, row.id.0],
    )
    .await?;
    Ok(ended)
}
