//! *finish*: a turn's end is written, everything it claimed is answered, and the lease goes or stays.

use super::again::{FinishReceipt, finished_again};
use super::children::wake_parent;
use super::db::{Row, Tx, values};
use super::delivery::{give_back, never_shown};
use super::interactions::close_interactions;
use super::outbox::Closing;
use super::progress::{CallEnd, close_open_calls, store_messages};
use super::step::{Noted, Stepped};
use super::tx::{Locked, SessionTx};
use super::{Outcome, Store, StoreError};
use crate::domain::{
    Anchor, CANCELLED_TEXT, ChatResult, ContextSource, InteractionId, InteractionState, JobId, JobKind,
    Lease, Message, MessageId, Role, Scope, SessionJob, Stored, TokenUsage, Truncated, TurnId, Usage,
};
use crate::problem::Problem;

/// How a turn ended, as its run saw it.
#[derive(Debug, Clone)]
pub struct TurnEnd {
    /// The turn.
    pub turn: TurnId,
    /// What became of it.
    pub outcome: TurnOutcome,
    /// What the model wrote that is not stored yet. The last one is the answer.
    pub messages: Vec<WrittenMessage>,
    /// The model that answered, where it is known.
    pub model: Option<String>,
    /// Model calls that are not counted yet.
    pub iterations: i64,
    /// What the turn used that is not counted yet.
    pub usage: Usage,
    /// Where the model's memory came from.
    pub context_source: ContextSource,
    /// Jobs that the turn had claimed and the engine has not taken: unless the turn was cancelled they go back to the
    /// mailbox, in their places.
    pub undelivered: Vec<JobId>,
}

/// What became of a turn.
#[derive(Debug, Clone)]
pub enum TurnOutcome {
    /// The engine answered.
    Answered,
    /// The engine was interrupted because somebody cancelled the turn.
    Cancelled,
    /// The turn failed.
    Failed(Problem),
}

/// A message that a turn brought: of the model, or of a tool that it called.
#[derive(Debug, Clone)]
pub struct WrittenMessage {
    /// Who wrote it.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The tools that the model calls with it, as a JSON array.
    pub tool_calls: Option<serde_json::Value>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// Reasoning text.
    pub thinking: Option<String>,
    /// The model that wrote it.
    pub model: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// Output tokens that were reasoning.
    pub thinking_tokens: i64,
    /// Where it stands in the engine's own conversation.
    pub anchor: Option<Anchor>,
    /// Whether the turn failed while the model wrote it.
    pub failed: bool,
    /// Why the provider cut it short, if it did.
    pub truncated: Option<Truncated>,
    /// What the engine gets back with it when it is replayed.
    pub opaque: Option<serde_json::Value>,
}

impl Default for WrittenMessage {
    fn default() -> Self {
        Self {
            role: Role::Assistant,
            content: String::new(),
            tool_calls: None,
            tool_call_id: None,
            thinking: None,
            model: None,
            usage: Usage::default(),
            thinking_tokens: 0,
            anchor: None,
            failed: false,
            truncated: None,
            opaque: None,
        }
    }
}

/// What finish did.
#[derive(Debug)]
pub struct Finished {
    /// What the run does now.
    pub next: Next,
    /// The jobs that were answered, in order.
    pub ended: Vec<Ended>,
    /// The messages that were stored.
    pub messages: Vec<Message>,
    /// The questions to people that were still open, and are cancelled now.
    pub withdrawn: Vec<InteractionId>,
    /// The turn's model calls, of all its attempts.
    pub iterations: i64,
    /// What the turn used, with all its attempts.
    pub usage: Usage,
    /// What became of the turn in the end: a cancel that was granted wins over an answer that came later.
    pub outcome: TurnOutcome,
    /// What is to be published of all that; gone where somebody has.
    pub stored: Option<Stored>,
}

/// What a run does after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There is more mail, and the lease is kept for it.
    Turn,
    /// The mailbox is empty, and the lease is gone.
    Idle,
}

/// A job that has its answer now.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The job.
    pub job: JobId,
    /// What it asked for.
    pub kind: JobKind,
    /// Its answer.
    pub outcome: Outcome,
    /// The job of a parent that is woken by it, to ring for.
    pub wakes: Option<SessionJob>,
}

impl Store {
    /// Ends a turn: stores what it wrote, answers every job it claimed, and releases the lease unless there is more
    /// mail. A free session with unanswered mail cannot come of it.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]: nothing was written. So too where this turn does not run, unless this step has ended it.
    pub async fn finish(&self, lease: &Lease, end: TurnEnd) -> Result<Finished, StoreError> {
        self.transact(|| self.finish_once(lease, end.clone())).await
    }

    async fn finish_once(&self, lease: &Lease, end: TurnEnd) -> Result<Finished, StoreError> {
        let SessionTx { mut tx, mut row } = match self.lock_step(lease).await? {
            Stepped::New(held) => held,
            Stepped::Done(held, receipt) => return finished_again(held, end, receipt.read()?).await,
        };
        if row.active_turn != Some(end.turn) {
            return Err(StoreError::LeaseLost);
        }
        // The cancel was granted while the turn ran, and whoever asked was told so.
        let outcome =
            if row.cancel_turn == Some(end.turn) { TurnOutcome::Cancelled } else { end.outcome.clone() };
        let cancelled = matches!(outcome, TurnOutcome::Cancelled);
        let mut messages = store_messages(&mut tx, &mut row, end.turn, &end.messages, cancelled).await?;
        let answer = messages.last().map(|message| message.id);
        if !matches!(outcome, TurnOutcome::Answered) {
            messages.extend(close_open_calls(&mut tx, &mut row, end.turn, CallEnd::Interrupted).await?);
        }
        let withdrawn = close_interactions(&mut tx, &row, InteractionState::Cancelled).await?;
        if cancelled {
            never_shown(&mut tx, &row, end.turn).await?;
        } else {
            give_back(&mut tx, &row, end.turn, &end.undelivered).await?;
        }
        let totals = close_turn(&mut tx, &end, &outcome, answer, row.now_ms).await?;
        let ended = answer_claimed(&mut tx, &row, &end, &outcome, answer, totals).await?;

        let sql = "SELECT seq FROM jobs WHERE session_id = $1 AND state = 'pending' LIMIT 1";
        let more = tx.first(sql, values![row.id.0]).await?.is_some();
        let next = if more { Next::Turn } else { Next::Idle };
        let Totals { iterations, usage, attempt, .. } = totals;
        let mut done =
            Finished { next, ended, messages, withdrawn, iterations, usage, outcome, stored: None };
        let turn = Scope { turn: Some(end.turn), attempt: Some(attempt), ..Scope::default() };
        let mut closing = Closing::of(&row);
        closing.finished(turn, &done);
        done.stored = closing.leave(&mut tx, self.step).await?;
        let noted = self.noted(&FinishReceipt::of(&done));
        update_session(&mut tx, &row, &end, &done, &noted).await?;
        tx.commit().await?;
        Ok(done)
    }
}

/// What a turn came to with all its attempts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    started_ms: i64,
    attempt: i64,
    pub(super) iterations: i64,
    pub(super) usage: Usage,
}

pub(super) fn totals(row: &Row) -> Result<Totals, StoreError> {
    Ok(Totals {
        started_ms: row.get("started_ms")?,
        attempt: row.get("attempt")?,
        iterations: row.get("iterations")?,
        usage: Usage {
            input_tokens: row.get("input_tokens")?,
            output_tokens: row.get("output_tokens")?,
            cache_tokens: row.get("cache_tokens")?,
            cost_nanos: row.get("cost_nanos")?,
        },
    })
}

/// Writes the ledger's row.
async fn close_turn(
    tx: &mut Tx,
    end: &TurnEnd,
    outcome: &TurnOutcome,
    answer: Option<MessageId>,
    now_ms: i64,
) -> Result<Totals, StoreError> {
    let (state, problem) = match outcome {
        TurnOutcome::Answered => ("completed", None),
        TurnOutcome::Cancelled => ("cancelled", None),
        TurnOutcome::Failed(problem) => ("failed", Some(problem)),
    };
    let sql = "UPDATE turns SET state = $2, iterations = iterations + $3, input_tokens = input_tokens + $4, \
               output_tokens = output_tokens + $5, cache_tokens = cache_tokens + $6, \
               cost_nanos = coalesce(cost_nanos + $7, cost_nanos, $7), message_id = $8, problem = $9, ended_ms = $10 \
               WHERE id = $1 RETURNING started_ms, attempt, iterations, input_tokens, output_tokens, cache_tokens, cost_nanos";
    let values = values![
        end.turn.0,
        state,
        end.iterations,
        end.usage.input_tokens,
        end.usage.output_tokens,
        end.usage.cache_tokens,
        end.usage.cost_nanos,
        answer.map(|id| id.0),
        problem.map(to_json),
        now_ms,
    ];
    totals(&tx.one(sql, values).await?)
}

/// Answers every job that the turn claimed, each only where it has no answer.
async fn answer_claimed(
    tx: &mut Tx,
    row: &Locked,
    end: &TurnEnd,
    outcome: &TurnOutcome,
    answer: Option<MessageId>,
    totals: Totals,
) -> Result<Vec<Ended>, StoreError> {
    let sql =
        "SELECT id, kind FROM jobs WHERE session_id = $1 AND turn_id = $2 AND state = 'claimed' ORDER BY seq";
    let mut ended = Vec::new();
    for claimed in tx.all(sql, values![row.id.0, end.turn.0]).await? {
        let job = JobId(claimed.get("id")?);
        let kind = JobKind::from_name(&claimed.get::<String>("kind")?)
            .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
        let outcome = match outcome {
            TurnOutcome::Failed(problem) => Outcome::Failed(problem.clone()),
            TurnOutcome::Answered | TurnOutcome::Cancelled => {
                let cancelled = matches!(outcome, TurnOutcome::Cancelled);
                let written = end.messages.last().map(|message| message.content.clone());
                let truncated = end.messages.last().and_then(|message| message.truncated);
                let content = if cancelled { CANCELLED_TEXT.to_owned() } else { written.unwrap_or_default() };
                Outcome::Answered(Box::new(ChatResult {
                    turn_id: Some(end.turn),
                    message_id: answer,
                    model: end.model.clone(),
                    content,
                    iterations: totals.iterations.max(1),
                    duration_ms: (row.now_ms - totals.started_ms).max(0),
                    token_usage: totals.usage.into(),
                    cancelled,
                    truncated: truncated.filter(|_| !cancelled),
                    context_source: end.context_source,
                    ..unanswered(row, job, kind)
                }))
            }
        };
        ended.push(end_job(tx, job, kind, outcome, row.now_ms).await?);
    }
    Ok(ended)
}

/// A result that no turn has filled in.
pub(super) fn unanswered(row: &Locked, job: JobId, kind: JobKind) -> ChatResult {
    ChatResult {
        session_id: row.id,
        job_id: job,
        correlation_id: job,
        turn_id: None,
        message_id: None,
        agent: row.agent.clone(),
        engine: row.engine,
        model: row.model.clone(),
        content: CANCELLED_TEXT.to_owned(),
        iterations: 0,
        duration_ms: 0,
        token_usage: TokenUsage::total(Usage::default()),
        injected: kind == JobKind::Inject,
        cancelled: true,
        truncated: None,
        context_source: ContextSource::Empty,
    }
}

/// Writes a job's answer. Whoever calls holds the session and has seen that the job has none.
pub(super) async fn end_job(
    tx: &mut Tx,
    job: JobId,
    kind: JobKind,
    outcome: Outcome,
    now_ms: i64,
) -> Result<Ended, StoreError> {
    let (state, result, problem) = match &outcome {
        Outcome::Answered(result) if result.cancelled => ("cancelled", Some(to_json(result)), None),
        Outcome::Answered(result) => ("succeeded", Some(to_json(result)), None),
        Outcome::Cut(result) => ("succeeded", Some(to_json(result)), None),
        Outcome::Cancelled => ("cancelled", None, None),
        Outcome::Failed(problem) => ("failed", None, Some(to_json(problem))),
    };
    let sql = "UPDATE jobs SET state = $2, result = $3, problem = $4, ended_ms = $5 \
               WHERE id = $1 AND state IN ('pending', 'claimed') RETURNING wakes_session_id";
    let row = tx.first(sql, values![job.0, state, result, problem, now_ms]).await?;
    let wakes = match row.map(|row| row.get::<Option<uuid::Uuid>>("wakes_session_id")).transpose()? {
        Some(Some(_)) => wake_parent(tx, job, &outcome).await?,
        _ => None,
    };
    Ok(Ended { job, kind, outcome, wakes })
}

async fn update_session(
    tx: &mut Tx,
    row: &Locked,
    end: &TurnEnd,
    done: &Finished,
    noted: &Noted,
) -> Result<(), StoreError> {
    let failed = matches!(done.outcome, TurnOutcome::Failed(_));
    let stored = i64::try_from(done.messages.len()).unwrap_or_default();
    let (step, receipt) = noted.values();
    let sql = "UPDATE sessions SET last_seq = $2, message_count = message_count + $3, last_message_id = $4, \
               input_tokens = input_tokens + $5, output_tokens = output_tokens + $6, cache_tokens = cache_tokens + $7, \
               cost_nanos = coalesce(cost_nanos + $8, cost_nanos, $8), active_turn_id = NULL, \
               cancel_turn_id = NULL, last_turn_failed = $9, updated_ms = $10, \
               lease_worker = CASE WHEN $11 THEN lease_worker END, last_step = coalesce($12, last_step), \
               step_receipt = coalesce($13, step_receipt) WHERE id = $1";
    let values = values![
        row.id.0,
        row.last_seq,
        stored,
        row.last_message.map(|id| id.0),
        end.usage.input_tokens,
        end.usage.output_tokens,
        end.usage.cache_tokens,
        end.usage.cost_nanos,
        failed,
        row.now_ms,
        done.next == Next::Turn,
        step,
        receipt,
    ];
    tx.run(sql, values).await.map(drop)
}

/// Plain data of ours always serialises.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
