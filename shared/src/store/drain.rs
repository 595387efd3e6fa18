//! *drain*: a run takes mail out of the session's box. Taking the lease is draining for the first time.

use super::again::{MailReceipt, mail_again};
use super::db::{Row, Tx, values};
use super::maintenance::{Work, begin_work};
use super::progress::Meanwhile;
use super::rows::json;
use super::step::Stepped;
use super::turns::{OpenTurn, open_turn};
use super::tx::{SessionTx, lives};
use super::{Store, StoreError};
use crate::domain::{EngineKind, JobId, JobKind, Lease, LeaseToken, MessageId, SessionId, TurnId, WorkerId};

/// Most messages that reach an engine as one, or wait in it at once.
pub const MOST_MERGED: usize = 100;

/// What came of the wish to run a session.
#[derive(Debug)]
pub enum Begin {
    /// The lease is granted, and this is the first turn's mail.
    Started(Lease, Mail),
    /// The lease is granted for a fork, a trim or a reset.
    Maintenance(Lease, Work),
    /// Another run has it.
    Held(WorkerId),
    /// There is nothing to do.
    NoMail,
    /// This worker has not what the session's next job needs; another may.
    NotHere,
}

/// What a worker needs for the next job of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs<'a> {
    /// For a turn: the session's agent.
    Agent(&'a str),
    /// For a fork or a trim that copies a native session: an engine of its kind, whichever agent's. Others need nothing.
    Engine(EngineKind),
}

/// The mail of one turn.
#[derive(Debug, Clone)]
pub struct Mail {
    /// The turn that will answer it.
    pub turn: TurnId,
    /// Which attempt of this turn, from 1.
    pub attempt: i64,
    /// What the turn answers, in order; never empty.
    pub jobs: Vec<Claimed>,
    /// The session's agent.
    pub agent: String,
    /// Its engine.
    pub engine: EngineKind,
    /// Whether the turn was cut off before and goes on.
    pub continued: bool,
    /// Whether it was handed back on purpose then: its worker was stopped, and not lost.
    pub handed_back: bool,
    /// For how long it has worked in its earlier attempts, in milliseconds.
    pub worked_ms: i64,
    /// Messages that a cut has left without an answer and the engine does not have: they go in front.
    pub unsent: Vec<Unsent>,
    /// The model asked for, by the message or by the session.
    pub model: Option<String>,
    /// The engine's own conversation.
    pub native_session: Option<String>,
    /// The session's working directory; empty for the worker's choice.
    pub cwd: String,
    /// The newest of what was stored before to be published of the session, and was there when this began.
    pub left_over: Option<i64>,
}

/// A message that is sent along with those of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Unsent {
    /// The message.
    pub message: MessageId,
    /// Its text.
    pub text: String,
    /// Files that came with it, as a JSON array.
    pub attachments: Option<serde_json::Value>,
}

/// A job that a turn has claimed, with its message.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The job.
    pub job: JobId,
    /// What it asks for.
    pub kind: JobKind,
    /// The message that came with it.
    pub message: Option<MessageId>,
    /// The message's text.
    pub text: String,
    /// Files that came with it, as a JSON array.
    pub attachments: Option<serde_json::Value>,
}

impl Store {
    /// Takes the lease of a session that has mail, if the worker `has` what that needs, and its first turn's mail with it.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] where the session was deleted; [`StoreError::LeaseLost`] where the worker was declared
    /// dead or is not known: it has to register again, under another id.
    pub async fn begin(
        &self,
        session: SessionId,
        worker: WorkerId,
        has: impl Fn(Needs<'_>) -> bool + Send + Sync,
    ) -> Result<Begin, StoreError> {
        self.transact(|| self.begin_once(session, worker, &has)).await
    }

    async fn begin_once(
        &self,
        session: SessionId,
        worker: WorkerId,
        has: &(impl Fn(Needs<'_>) -> bool + Sync),
    ) -> Result<Begin, StoreError> {
        let mut held = match self.done(self.lock(session).await?).await? {
            Stepped::Done(mut held, receipt) if held.row.lease_worker == Some(worker) => {
                let lease = Lease { session, worker, token: held.row.lease_token };
                return Ok(Begin::Started(lease, mail_again(&mut held, receipt.read()?).await?));
            }
            Stepped::New(held) | Stepped::Done(held, _) => held,
        };
        // A dead worker's lease is the reaper's to end: it also gives the dead run's claims back.
        if let Some(holder) = held.row.lease_worker {
            return Ok(Begin::Held(holder));
        }
        // Declared dead right after this, the worker has this session too, and the reaper finds it.
        if !lives(&mut held.tx, worker).await? {
            return Err(StoreError::LeaseLost);
        }
        held.row.lease_worker = Some(worker);
        held.row.lease_token = LeaseToken(held.row.lease_token.0 + 1);
        let lease = Lease { session, worker, token: held.row.lease_token };
        if !has(Needs::Agent(&held.row.agent)) {
            return Ok(begin_work(held, lease, has).await?.unwrap_or(Begin::NotHere));
        }
        let Some(mail) = claim_turn(&mut held, &lease).await? else {
            return Ok(begin_work(held, lease, has).await?.unwrap_or(Begin::NoMail));
        };
        self.note(&mut held.tx, &held.row, &MailReceipt::of(&mail)).await?;
        held.tx.commit().await?;
        Ok(Begin::Started(lease, mail))
    }

    /// Takes the next turn's mail under a lease that is held. `None`: there is none.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`], also where a turn runs that this step has not begun.
    pub async fn drain(&self, lease: &Lease) -> Result<Option<Mail>, StoreError> {
        let mut held = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(mut held, receipt) => {
                return mail_again(&mut held, receipt.read()?).await.map(Some);
            }
        };
        if held.row.active_turn.is_some() {
            return Err(StoreError::LeaseLost);
        }
        let Some(mail) = claim_turn(&mut held, lease).await? else { return Ok(None) };
        self.note(&mut held.tx, &held.row, &MailReceipt::of(&mail)).await?;
        held.tx.commit().await?;
        Ok(Some(mail))
    }
}

pub(super) struct Pending {
    pub(super) claimed: Claimed,
    model: Option<String>,
    /// The turn that had claimed it and was cut off.
    pub(super) turn: Option<TurnId>,
}

/// Which of the pending jobs, in order, make the next turn: those of a turn that was cut off go on together; a
/// message with a turn of its own is alone; messages sent while the agent worked are merged, and so is what children say.
fn next_turn(pending: Vec<Pending>) -> Vec<Pending> {
    let Some(head) = pending.first() else { return Vec::new() };
    let (turn, kind) = (head.turn, head.claimed.kind);
    match (turn, kind) {
        (Some(_), _) => pending.into_iter().filter(|job| job.turn == turn).collect(),
        (None, JobKind::Inject | JobKind::Wake) => pending
            .into_iter()
            .take_while(|job| job.turn.is_none() && job.claimed.kind == kind)
            .take(MOST_MERGED)
            .collect(),
        // Admitted only where nothing else was open, such a job is always the first, and no turn's.
        (None, JobKind::Fork | JobKind::Trim | JobKind::Reset) => Vec::new(),
        (None, JobKind::Chat) => pending.into_iter().take(1).collect(),
    }
}

async fn claim_turn(held: &mut SessionTx, lease: &Lease) -> Result<Option<Mail>, StoreError> {
    let mut claims = next_turn(pending_jobs(&mut held.tx, lease.session, Which::Any).await?);
    let Some(head) = claims.first() else { return Ok(None) };
    let continued = head.turn;
    if let Some(turn) = continued {
        claims = pending_jobs(&mut held.tx, lease.session, Which::Of(turn)).await?;
    }
    let turn = continued.unwrap_or_else(TurnId::generate);
    let asked = claims.iter().rev().find_map(|job| job.model.clone());
    let model = asked.or_else(|| held.row.model.clone());

    let OpenTurn { attempt, handed_back, worked_ms } =
        open_turn(held, lease, turn, continued.is_some(), model.as_deref()).await?;
    let claims: Vec<_> = claims.into_iter().map(|job| job.claimed).collect();
    claim(held, lease, turn, &claims, Consumed::Now).await?;
    let unsent = unsent(held).await?;
    let sql = "UPDATE sessions SET lease_worker = $2, lease_token = $3, active_turn_id = $4, \
               cancel_turn_id = NULL, enqueued_ms = 0, refused = FALSE, last_seq = $5, connected_ms = $6, updated_ms = $6 \
               WHERE id = $1 \
               RETURNING cwd, (SELECT max(o.id) FROM outbox o WHERE o.session_id = sessions.id) AS left_over";
    let values =
        values![lease.session.0, lease.worker.0, lease.token.0, turn.0, held.row.last_seq, held.row.now_ms,];
    let updated = held.tx.one(sql, values).await?;
    Ok(Some(Mail {
        turn,
        attempt,
        jobs: claims,
        agent: held.row.agent.clone(),
        engine: held.row.engine,
        continued: continued.is_some(),
        handed_back,
        worked_ms,
        unsent,
        model,
        native_session: held.row.native_session.clone(),
        cwd: updated.get("cwd")?,
        left_over: updated.get("left_over")?,
    }))
}

/// The messages of a held session that are to go in front of the next one.
pub(super) async fn unsent(held: &mut SessionTx) -> Result<Vec<Unsent>, StoreError> {
    if held.row.engine.anchor_key().is_none() {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, content, attachments FROM messages WHERE session_id = $1 AND unsent ORDER BY id";
    let rows = held.tx.all(sql, values![held.row.id.0]).await?;
    rows.iter()
        .map(|row| {
            Ok(Unsent {
                message: MessageId(row.get("id")?),
                text: row.get("content")?,
                attachments: json(row, "messages", "attachments")?,
            })
        })
        .collect()
}

/// When messages that a turn claims enter the order of consumption.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Consumed {
    Now,
    /// Once they are delivered.
    Later,
}

/// Gives jobs to a turn, as messages that reach the engine together. Returns the place in the order of consumption that
/// they share.
pub(super) async fn claim(
    held: &mut SessionTx,
    lease: &Lease,
    turn: TurnId,
    jobs: &[Claimed],
    when: Consumed,
) -> Result<i64, StoreError> {
    let consumed = held.row.next_seq();
    let place = (when == Consumed::Now).then_some(consumed);
    for job in jobs {
        let sql = "UPDATE jobs SET state = 'claimed', turn_id = $2, claim_token = $3, worker_id = $4, \
                   attempt = attempt + 1, started_ms = coalesce(started_ms, $5) WHERE id = $1";
        let values = values![job.job.0, turn.0, lease.token.0, lease.worker.0, held.row.now_ms];
        held.tx.run(sql, values).await?;
        if let Some(message) = job.message {
            let sql =
                "UPDATE messages SET consumed_seq = coalesce(consumed_seq, $2), turn_id = $3 WHERE id = $1";
            held.tx.run(sql, values![message.0, place, turn.0]).await?;
        }
    }
    Ok(consumed)
}

/// Which pending jobs.
#[derive(Clone, Copy)]
pub(super) enum Which {
    /// The first, whatever they are.
    Any,
    /// All those of a turn that was cut off.
    Of(TurnId),
    /// The first that may reach a turn which runs.
    Meanwhile(Meanwhile),
}

/// The jobs of a held session that no turn has now, in order; those of a turn that was cut off come first, whatever their
/// place, then those that the engine has already.
pub(super) async fn pending_jobs(
    tx: &mut Tx,
    session: SessionId,
    which: Which,
) -> Result<Vec<Pending>, StoreError> {
    let sql = "SELECT j.id, j.kind, j.message_id, j.model, j.turn_id, m.content, m.attachments FROM jobs j \
               LEFT JOIN messages m ON m.id = j.message_id \
               WHERE j.session_id = $1 AND j.state = 'pending' AND ($2 OR j.turn_id = $3 \
               OR ($4 AND j.turn_id IS NULL AND (j.kind = 'inject' OR (j.kind = 'wake' AND $5)))) \
               ORDER BY j.turn_id IS NULL, NOT j.given_back, j.seq LIMIT $6";
    let (any, turn, meanwhile, most) = match which {
        Which::Any => (true, None, None, 200_i64),
        Which::Of(turn) => (false, Some(turn.0), None, i64::MAX),
        Which::Meanwhile(to) => (false, None, Some(to), to.most()),
    };
    // What children say is a turn of its own, unless the model can be told between two steps.
    let wakes = meanwhile == Some(Meanwhile::Boundary);
    tx.all(sql, values![session.0, any, turn, meanwhile.is_some(), wakes, most])
        .await?
        .iter()
        .map(pending)
        .collect()
}

pub(super) fn pending(row: &Row) -> Result<Pending, StoreError> {
    let job = JobId(row.get("id")?);
    Ok(Pending {
        claimed: Claimed {
            job,
            kind: JobKind::from_name(&row.get::<String>("kind")?)
                .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?,
            message: row.get::<Option<i64>>("message_id")?.map(MessageId),
            text: row.get::<Option<String>>("content")?.unwrap_or_default(),
            attachments: json(row, "messages", "attachments")?,
        },
        model: row.get("model")?,
        turn: row.get::<Option<uuid::Uuid>>("turn_id")?.map(TurnId),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(kind: JobKind, turn: Option<TurnId>) -> Pending {
        let claimed =
            Claimed { job: JobId::generate(), kind, message: None, text: String::new(), attachments: None };
        Pending { claimed, model: None, turn }
    }

    fn taken(pending: Vec<Pending>) -> Vec<usize> {
        let ids: Vec<_> = pending.iter().map(|job| job.claimed.job).collect();
        next_turn(pending)
            .iter()
            .filter_map(|taken| ids.iter().position(|id| *id == taken.claimed.job))
            .collect()
    }

    #[test]
    fn the_next_turn_never_overtakes() {
        use JobKind::{Chat, Inject};
        let cut_off = Some(TurnId::generate());
        assert!(taken(vec![]).is_empty());
        assert_eq!(taken(vec![job(Chat, None), job(Inject, None)]), [0]);
        assert_eq!(
            taken(vec![job(Inject, None), job(Inject, None), job(Chat, None), job(Inject, None)]),
            [0, 1]
        );
        assert_eq!(taken(vec![job(Chat, None), job(Chat, None)]), [0]);
        assert_eq!(taken(vec![job(Chat, cut_off), job(Inject, cut_off), job(Inject, None)]), [0, 1]);
    }
}
