//! What a repeated step returns: what it returned when it was done, from its receipt and the rows.

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::db::{Tx, values};
use super::drain::{Claimed, Mail, pending, unsent};
use super::finish::{Finished, Next, Totals, TurnEnd, TurnOutcome, totals};
use super::outbox;
use super::step::{EndedReceipt, ended_again, ids_of, messages_again};
use super::tx::SessionTx;
use crate::domain::{InteractionId, JobId, MessageId, TurnId};

/// A turn's end, as a receipt has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FinishReceipt {
    more: bool,
    cancelled: bool,
    ended: Vec<EndedReceipt>,
    messages: Vec<MessageId>,
    withdrawn: Vec<InteractionId>,
    stored: Option<i64>,
}

impl FinishReceipt {
    pub(super) fn of(done: &Finished) -> Self {
        Self {
            more: done.next == Next::Turn,
            cancelled: matches!(done.outcome, TurnOutcome::Cancelled),
            ended: EndedReceipt::of(&done.ended),
            messages: ids_of(&done.messages),
            withdrawn: done.withdrawn.clone(),
            stored: done.stored.as_ref().map(|stored| stored.id),
        }
    }
}

/// What finish did, from the rows.
pub(super) async fn finished_again(
    held: SessionTx,
    end: TurnEnd,
    receipt: FinishReceipt,
) -> Result<Finished, StoreError> {
    let SessionTx { mut tx, row } = held;
    let sql = "SELECT started_ms, attempt, iterations, input_tokens, output_tokens, cache_tokens, cost_nanos \
               FROM turns WHERE id = $1";
    let Totals { iterations, usage, .. } = totals(&tx.one(sql, values![end.turn.0]).await?)?;
    Ok(Finished {
        next: if receipt.more { Next::Turn } else { Next::Idle },
        ended: ended_again(&mut tx, receipt.ended).await?,
        messages: messages_again(&mut tx, row.id, &receipt.messages).await?,
        withdrawn: receipt.withdrawn,
        iterations,
        usage,
        outcome: if receipt.cancelled { TurnOutcome::Cancelled } else { end.outcome },
        stored: outbox::find(&mut tx, receipt.stored).await?,
    })
}

/// The mail of a turn, as a receipt has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MailReceipt {
    turn: TurnId,
    attempt: i64,
    continued: bool,
    handed_back: bool,
    worked_ms: i64,
    model: Option<String>,
    jobs: Vec<JobId>,
}

impl MailReceipt {
    pub(super) fn of(mail: &Mail) -> Self {
        Self {
            turn: mail.turn,
            attempt: mail.attempt,
            continued: mail.continued,
            handed_back: mail.handed_back,
            worked_ms: mail.worked_ms,
            model: mail.model.clone(),
            jobs: mail.jobs.iter().map(|job| job.job).collect(),
        }
    }
}

/// The mail that a step has claimed, from the rows.
pub(super) async fn mail_again(held: &mut SessionTx, receipt: MailReceipt) -> Result<Mail, StoreError> {
    let MailReceipt { turn, attempt, continued, handed_back, worked_ms, model, jobs } = receipt;
    let jobs = claimed_again(&mut held.tx, &jobs).await?;
    let unsent = unsent(held).await?;
    let sql = "SELECT cwd, (SELECT max(o.id) FROM outbox o WHERE o.session_id = sessions.id) AS left_over \
               FROM sessions WHERE id = $1";
    let row = held.tx.one(sql, values![held.row.id.0]).await?;
    Ok(Mail {
        turn,
        attempt,
        jobs,
        agent: held.row.agent.clone(),
        engine: held.row.engine,
        continued,
        handed_back,
        worked_ms,
        unsent,
        model,
        native_session: held.row.native_session.clone(),
        cwd: row.get("cwd")?,
        left_over: row.get("left_over")?,
    })
}

/// Jobs that were claimed, in this order, with their messages.
pub(super) async fn claimed_again(tx: &mut Tx, ids: &[JobId]) -> Result<Vec<Claimed>, StoreError> {
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        let sql = "SELECT j.id, j.kind, j.message_id, j.model, j.turn_id, m.content, m.attachments FROM jobs j \
                   LEFT JOIN messages m ON m.id = j.message_id WHERE j.id = $1";
        if let Some(row) = tx.first(sql, values![id.0]).await? {
            jobs.push(pending(&row)?.claimed);
        }
    }
    Ok(jobs)
}
