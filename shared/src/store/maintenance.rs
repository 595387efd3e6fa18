//! Fork, trim and reset: jobs like any other, which take the lease and have no turn.
//!
//! Such a job is admitted only where nothing else is open, so it is always the first in the mailbox. What it may touch is
//! decided then: messages that come later are kept by it, and answered after it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::admit::{Idempotency, NewJob, admitted_before, insert_job};
use super::cut::{end_orphaned_wakes, fork_point, trim};
use super::db::{Tx, values};
use super::doomed::spare;
use super::drain::{Begin, Needs};
use super::finish::{Ended, end_job, to_json};
use super::fork::fork;
use super::lease::{Attempt, release};
use super::outbox::{self, Closing};
use super::rows::json;
use super::step::{EndedReceipt, Stepped, ended_again};
use super::tx::{Locked, SessionTx};
use super::{Outcome, Store, StoreError};
use crate::domain::{
    Anchor, Cut, EngineKind, JobId, JobKind, Lease, MessageId, SessionId, SessionJob, Stored,
};
use crate::problem::Problem;

/// A fork, trim or reset that somebody asks for.
#[derive(Debug, Clone)]
pub struct CutAdmission {
    /// The id its job will have.
    pub job: JobId,
    /// The session.
    pub session: SessionId,
    /// What is to be done.
    pub cut: Cut,
    /// The client's key, by which a repeated request is known.
    pub idempotency: Option<Idempotency>,
}

/// A fork, trim or reset that was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedCut {
    /// The job.
    pub job: JobId,
    /// Whether the same request was admitted before.
    pub replayed: bool,
}

/// A fork, trim or reset that is to be done now.
#[derive(Debug, Clone)]
pub struct Work {
    /// The job.
    pub job: JobId,
    /// What is to be done.
    pub cut: Cut,
    /// The session's agent.
    pub agent: String,
    /// Its engine.
    pub engine: EngineKind,
    /// The session's title.
    pub title: Option<String>,
    /// The session's working directory; empty for the worker's choice.
    pub cwd: String,
    /// Its native session.
    pub native_session: Option<String>,
    /// Where that has to be forked for it.
    pub anchor: Option<Anchor>,
    /// The newest of what was stored before to be published of the session, and was there when this began.
    pub left_over: Option<i64>,
}

/// A copy of a native session that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeFork {
    /// What was copied.
    pub source: String,
    /// The copy.
    pub native: String,
    /// The host that has its files.
    pub host: String,
    /// The anchors of the source that it has, and what they are in it.
    pub anchors: HashMap<String, String>,
}

/// How a fork, trim or reset went, as far as it is the worker's.
#[derive(Debug, Clone)]
pub enum WorkEnd {
    /// The rows can follow.
    Ready {
        /// The copy of the native session, where one was needed.
        native: Option<NativeFork>,
        /// The working directory of the new session, for a fork.
        cwd: String,
    },
    /// It has failed, and nothing is changed.
    Failed(Problem),
}

/// A fork, trim or reset that has ended.
#[derive(Debug)]
pub struct Worked {
    /// The job, and wakes that nobody waits for any more.
    pub ended: Vec<Ended>,
    /// The job to ring for, where the session has mail. The lease is gone.
    pub next: Option<SessionJob>,
    /// What is to be published of it.
    pub stored: Option<Stored>,
}

/// What the job's row says of it.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    #[serde(flatten)]
    cut: Cut,
    /// The newest message when it was admitted: later ones are not its business.
    newest: Option<MessageId>,
}

impl Store {
    /// The engine that a cut of a session needs, as things are now, since it copies the native session; `None`: it only
    /// changes rows.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`].
    pub async fn cut_needs(&self, session: SessionId, cut: &Cut) -> Result<Option<EngineKind>, StoreError> {
        let SessionTx { mut tx, row } = self.lock(session).await?;
        let anchor = anchor_of(&mut tx, &row, cut, row.last_message).await?;
        Ok(anchor.map(|_| row.engine))
    }

    /// Admits a fork, a trim or a reset.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`]; [`StoreError::MessageNotFound`]; [`StoreError::SessionBusy`];
    /// [`StoreError::IdempotencyConflict`]. Nothing is stored then.
    pub async fn admit_cut(&self, admission: &CutAdmission) -> Result<AdmittedCut, StoreError> {
        self.transact(|| self.admit_cut_once(admission)).await
    }

    async fn admit_cut_once(&self, admission: &CutAdmission) -> Result<AdmittedCut, StoreError> {
        let mut held = self.lock(admission.session).await?;
        let idempotency = admission.idempotency.as_ref();
        if let Some(known) = admitted_before(&mut held.tx, idempotency).await? {
            return Ok(AdmittedCut { job: known.job, replayed: true });
        }
        if let Cut::Trim { at } | Cut::Fork(crate::domain::Fork { at: Some(at), .. }) = &admission.cut {
            find(&mut held.tx, held.row.id, *at).await?;
        }
        if held.is_busy().await? {
            return Err(StoreError::SessionBusy);
        }
        let SessionTx { mut tx, mut row } = held;
        let request = Request { cut: admission.cut.clone(), newest: row.last_message };
        let new = NewJob {
            id: admission.job,
            kind: admission.cut.kind(),
            message: None,
            model: None,
            request: Some(to_json(&request)),
            idempotency,
        };
        if !insert_job(&mut tx, &mut row, new).await? {
            // Another request with the same key was faster, in another session.
            return Err(StoreError::IdempotencyConflict);
        }
        let sql = "UPDATE sessions SET last_seq = $2, updated_ms = $3, enqueued_ms = $3 WHERE id = $1";
        tx.run(sql, values![row.id.0, row.last_seq, row.now_ms]).await?;
        tx.commit().await?;
        Ok(AdmittedCut { job: admission.job, replayed: false })
    }

    /// Ends a fork, trim or reset: changes the rows, answers the job and releases the lease, all or nothing.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was written. So too where the job has ended.
    pub async fn finish_work(&self, lease: &Lease, job: JobId, end: &WorkEnd) -> Result<Worked, StoreError> {
        self.transact(|| self.finish_work_once(lease, job, end)).await
    }

    async fn finish_work_once(&self, lease: &Lease, job: JobId, end: &WorkEnd) -> Result<Worked, StoreError> {
        let mut held = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(mut held, receipt) => {
                let (ended, next, stored): (Vec<EndedReceipt>, _, _) = receipt.read()?;
                let ended = ended_again(&mut held.tx, ended).await?;
                return Ok(Worked { ended, next, stored: outbox::find(&mut held.tx, stored).await? });
            }
        };
        let sql = "SELECT id, kind, request FROM jobs WHERE id = $1 AND session_id = $2 AND state = 'claimed' \
                   AND claim_token = $3";
        let values = values![job.0, lease.session.0, lease.token.0];
        let Some(found) = held.tx.first(sql, values).await? else { return Err(StoreError::LeaseLost) };
        let request: Request = json(&found, "jobs", "request")?
            .ok_or_else(|| StoreError::inconsistent("jobs", "request", job))?;
        let kind = request.cut.kind();
        let outcome = match end {
            WorkEnd::Failed(problem) => Outcome::Failed(problem.clone()),
            WorkEnd::Ready { native, cwd } => carry_out(&mut held, &request, native.as_ref(), cwd).await?,
        };
        let SessionTx { tx, row } = &mut held;
        let mut ended = vec![end_job(tx, job, kind, outcome, row.now_ms).await?];
        if kind != JobKind::Fork {
            ended.extend(end_orphaned_wakes(tx, row).await?);
        }
        let next = release(&mut held, Attempt::Spent).await?;
        let SessionTx { tx, row } = &mut held;
        let mut closing = Closing::of(row);
        closing.worked(&request.cut, &ended);
        let stored = closing.leave(tx, self.step).await?;
        let id = stored.as_ref().map(|stored| stored.id);
        self.note(tx, row, &(EndedReceipt::of(&ended), next, id)).await?;
        held.tx.commit().await?;
        Ok(Worked { ended, next, stored })
    }
}

/// Changes the rows.
async fn carry_out(
    held: &mut SessionTx,
    request: &Request,
    native: Option<&NativeFork>,
    cwd: &str,
) -> Result<Outcome, StoreError> {
    let SessionTx { tx, row } = held;
    if let Some(native) = native
        && !spare(tx, &native.native, row.now_ms).await?
    {
        let detail = "the copy was not ready in time";
        return Ok(Outcome::Failed(Problem::with_detail(row.engine.fork_failed(), detail)));
    }
    let newest = request.newest.unwrap_or(MessageId(0));
    Ok(Outcome::Cut(match &request.cut {
        Cut::Trim { at } => trim(tx, row, *at, newest, native).await?,
        Cut::Reset => {
            let result = trim(tx, row, MessageId(0), newest, None).await?;
            zero_usage(tx, row).await?;
            result
        }
        Cut::Fork(asked) => fork(tx, row, asked, newest, native, cwd).await?,
    }))
}

/// Zeroes the session's usage totals. The ledger keeps what its turns used: `turns` rows outlive a reset.
async fn zero_usage(tx: &mut Tx, row: &Locked) -> Result<(), StoreError> {
    let sql = "UPDATE sessions SET input_tokens = 0, output_tokens = 0, cache_tokens = 0, cost_nanos = NULL \
               WHERE id = $1";
    tx.run(sql, values![row.id.0]).await.map(drop)
}

/// Whether a session has a message.
pub(super) async fn find(tx: &mut Tx, session: SessionId, message: MessageId) -> Result<(), StoreError> {
    let sql = "SELECT id FROM messages WHERE session_id = $1 AND id = $2";
    match tx.first(sql, values![session.0, message.0]).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::MessageNotFound),
    }
}

/// Claims the fork, trim or reset that is first in the mailbox of a held session, if the worker `has` what it needs. `None`:
/// there is none.
pub(super) async fn begin_work(
    mut held: SessionTx,
    lease: Lease,
    has: &(impl Fn(Needs<'_>) -> bool + Sync),
) -> Result<Option<Begin>, StoreError> {
    let sql = "SELECT id, request FROM jobs WHERE session_id = $1 AND state = 'pending' ORDER BY seq LIMIT 1";
    let Some(head) = held.tx.first(sql, values![lease.session.0]).await? else { return Ok(None) };
    let Some(request) = json::<Request>(&head, "jobs", "request")? else { return Ok(None) };
    let job = JobId(head.get("id")?);
    let SessionTx { mut tx, row } = held;
    let anchor = anchor_of(&mut tx, &row, &request.cut, request.newest).await?;
    if anchor.is_some() && !has(Needs::Engine(row.engine)) {
        return Ok(Some(Begin::NotHere));
    }
    let sql = "UPDATE jobs SET state = 'claimed', claim_token = $2, worker_id = $3, attempt = attempt + 1, \
               started_ms = coalesce(started_ms, $4) WHERE id = $1";
    tx.run(sql, values![job.0, lease.token.0, lease.worker.0, row.now_ms]).await?;
    let sql = "UPDATE sessions SET lease_worker = $2, lease_token = $3, updated_ms = $4, enqueued_ms = 0, \
               refused = FALSE WHERE id = $1 \
               RETURNING title, (SELECT max(o.id) FROM outbox o WHERE o.session_id = sessions.id) AS left_over";
    let values = values![row.id.0, lease.worker.0, lease.token.0, row.now_ms];
    let updated = tx.one(sql, values).await?;
    let (title, left_over) = (updated.get("title")?, updated.get("left_over")?);
    tx.commit().await?;
    let Locked { agent, engine, cwd, native_session, .. } = row;
    let work = Work { job, cut: request.cut, agent, engine, title, cwd, native_session, anchor, left_over };
    Ok(Some(Begin::Maintenance(lease, work)))
}

/// Where the native session has to be forked, if it can be.
async fn anchor_of(
    tx: &mut Tx,
    row: &Locked,
    cut: &Cut,
    newest: Option<MessageId>,
) -> Result<Option<Anchor>, StoreError> {
    let at = match cut {
        Cut::Reset => return Ok(None),
        Cut::Trim { at } => Some(*at),
        Cut::Fork(asked) => asked.at.or(newest),
    };
    match at {
        Some(at) => fork_point(tx, row, at).await,
        None => Ok(None),
    }
}

/// Ends a fork, trim or reset that a dead run had, and that will not be tried again.
pub(super) async fn end_hopeless_work(
    held: &mut SessionTx,
    max_attempts: i64,
) -> Result<Vec<Ended>, StoreError> {
    let SessionTx { tx, row } = held;
    let sql =
        "SELECT id, kind, attempt FROM jobs WHERE session_id = $1 AND state = 'claimed' AND attempt >= $2";
    let mut ended = Vec::new();
    for claimed in tx.all(sql, values![row.id.0, max_attempts]).await? {
        let job = JobId(claimed.get("id")?);
        let kind = JobKind::from_name(&claimed.get::<String>("kind")?)
            .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
        let attempt: i64 = claimed.get("attempt")?;
        let outcome = Outcome::Failed(super::lease::worker_lost(attempt));
        ended.push(end_job(tx, job, kind, outcome, row.now_ms).await?);
    }
    Ok(ended)
}
