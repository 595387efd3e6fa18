//! Writes that may be repeated: after an unclear commit a run does the same again, and it is done once.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::db::{Tx, values};
use super::finish::{Ended, to_json};
use super::jobs::outcome;
use super::rows::{MESSAGE_COLUMNS, message};
use super::tx::{Locked, SessionTx};
use super::{Store, StoreError};
use crate::domain::{JobId, JobKind, Lease, Message, MessageId, SessionId, SessionJob};

/// One write of a run. Repeated with the same step, a write that was committed is not done again: it returns what it
/// returned then. The session remembers its last step only, so a run begins the next one when this one has an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    id: Uuid,
    entry: Option<i64>,
}

impl Step {
    /// A step that nobody has done.
    pub fn generate() -> Self {
        Self { id: Uuid::now_v7(), entry: None }
    }

    /// The same, for a write whose events have this number among the events of its run.
    #[must_use]
    pub const fn with_entry(self, entry: i64) -> Self {
        Self { entry: Some(entry), ..self }
    }

    pub(super) const fn entry(self) -> Option<i64> {
        self.entry
    }
}

/// How far a step is.
pub(super) enum Stepped {
    /// It is to be done, in this transaction.
    New(SessionTx),
    /// It was done, and this is what it came to.
    Done(SessionTx, Receipt),
}

/// What a step came to, as far as the rows do not tell.
pub(super) struct Receipt {
    session: SessionId,
    text: String,
}

impl Receipt {
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.text)
            .map_err(|_| StoreError::inconsistent("sessions", "step_receipt", self.session))
    }
}

/// A step that is noted with its receipt; of a store without a step, nothing.
pub(super) struct Noted(Option<(Uuid, String)>);

impl Noted {
    /// Nothing.
    pub(super) const NOTHING: Self = Self(None);

    /// The values of the columns `last_step` and `step_receipt`.
    pub(super) fn values(&self) -> (Option<Uuid>, Option<&str>) {
        match &self.0 {
            Some((step, receipt)) => (Some(*step), Some(receipt)),
            None => (None, None),
        }
    }
}

impl Store {
    /// The store for one write of a run that may be repeated. A write of another kind does not mind.
    #[must_use]
    pub fn once(&self, step: Step) -> Self {
        Self { step: Some(step), ..self.clone() }
    }

    /// Locks a session for a step of the run that has the lease.
    pub(super) async fn lock_step(&self, lease: &Lease) -> Result<Stepped, StoreError> {
        let held = SessionTx::lock_for_run(&self.db, lease.session).await?;
        // A step that was done counts, whatever has become of the lease since.
        match self.done(held).await? {
            Stepped::New(held) => {
                held.is_held_by(lease)?;
                Ok(Stepped::New(held))
            }
            done @ Stepped::Done(..) => Ok(done),
        }
    }

    /// Whether the step was the last one of a held session.
    pub(super) async fn done(&self, mut held: SessionTx) -> Result<Stepped, StoreError> {
        if self.step.is_none_or(|step| held.row.last_step != Some(step.id)) {
            return Ok(Stepped::New(held));
        }
        let session = held.row.id;
        let sql = "SELECT step_receipt FROM sessions WHERE id = $1";
        let text: Option<String> = held.tx.one(sql, values![session.0]).await?.get("step_receipt")?;
        Ok(Stepped::Done(held, Receipt { session, text: text.unwrap_or_default() }))
    }

    /// What is to be noted of the step, for a statement that writes the session's row anyway.
    pub(super) fn noted<T: Serialize>(&self, receipt: &T) -> Noted {
        Noted(self.step.map(|step| (step.id, to_json(receipt))))
    }

    /// Notes the step in its transaction.
    pub(super) async fn note<T: Serialize>(
        &self,
        tx: &mut Tx,
        row: &Locked,
        receipt: &T,
    ) -> Result<(), StoreError> {
        let noted = self.noted(receipt);
        let (Some(step), Some(receipt)) = noted.values() else { return Ok(()) };
        let sql = "UPDATE sessions SET last_step = $2, step_receipt = $3 WHERE id = $1";
        tx.run(sql, values![row.id.0, step, receipt]).await.map(drop)
    }
}

/// An ended job, as a receipt has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedReceipt {
    job: JobId,
    wakes: Option<SessionJob>,
}

impl EndedReceipt {
    pub(super) fn of(ended: &[Ended]) -> Vec<Self> {
        ended.iter().map(|ended| Self { job: ended.job, wakes: ended.wakes }).collect()
    }
}

/// The jobs of a receipt, with the answers that their rows have.
pub(super) async fn ended_again(tx: &mut Tx, receipts: Vec<EndedReceipt>) -> Result<Vec<Ended>, StoreError> {
    let mut ended = Vec::with_capacity(receipts.len());
    for EndedReceipt { job, wakes } in receipts {
        let sql = "SELECT id, kind, state, result, problem FROM jobs WHERE id = $1";
        let Some(row) = tx.first(sql, values![job.0]).await? else { continue };
        let kind = JobKind::from_name(&row.get::<String>("kind")?)
            .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
        if let Some(outcome) = outcome(&row, job)? {
            ended.push(Ended { job, kind, outcome, wakes });
        }
    }
    Ok(ended)
}

/// The messages of a receipt that are still there.
pub(super) async fn messages_again(
    tx: &mut Tx,
    session: SessionId,
    ids: &[MessageId],
) -> Result<Vec<Message>, StoreError> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let sql = concat!("SELECT ", MESSAGE_COLUMNS!(), " FROM messages WHERE session_id = $1 AND id = $2");
        if let Some(row) = tx.first(sql, values![session.0, id.0]).await? {
            found.push(message(&row)?);
        }
    }
    Ok(found)
}

pub(super) fn ids_of(messages: &[Message]) -> Vec<MessageId> {
    messages.iter().map(|message| message.id).collect()
}
