//! What is told when something has become true in the store.

use roundhouse_shared::bus::{Notice, Numbering};
use roundhouse_shared::clock::now_ms;
use roundhouse_shared::domain::{
    ChatResult, Cut, EventKind, InteractionId, InteractionState, JobKind, Lane, NewEvent, Scope, SessionId,
    SessionJob, TurnId,
};
use roundhouse_shared::problem::{Problem, chain};
use roundhouse_shared::store::{
    Cancelled, Ended, Finished, Mail, Outcome, Reaped, TurnEnd, TurnOutcome, Worked,
};

use crate::Worker;
use crate::opening::end_owned;
use crate::outbox::{Outbox, Standing};

/// A turn begins.
pub(crate) fn started(outbox: &Outbox, mail: &Mail) {
    let turn = Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() };
    for job in &mail.jobs {
        let scope = Scope { job: Some(job.job), ..turn };
        outbox.push(Standing::Running, scope, EventKind::JobStarted { kind: job.kind });
    }
    let started = EventKind::TurnStarted { engine: mail.engine, model: mail.model.clone() };
    outbox.push(Standing::Running, turn, started);
}

/// A turn has ended, and the store has its answers.
pub(crate) async fn finished(
    worker: &Worker,
    session: SessionId,
    outbox: &Outbox,
    mail: &Mail,
    done: Finished,
) {
    let turn = Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() };
    for message in done.messages {
        let scope = Scope { message: Some(message.id), ..turn };
        outbox.push(Standing::Fact, scope, EventKind::MessageCompleted { message: Box::new(message.into()) });
    }
    for kind in closed(&done.withdrawn, InteractionState::Cancelled) {
        outbox.push(Standing::Fact, turn, kind);
    }
    let kind = match done.outcome {
        TurnOutcome::Failed(problem) => EventKind::TurnFailed { problem },
        TurnOutcome::Answered | TurnOutcome::Cancelled => {
            EventKind::TurnCompleted { usage: done.usage.into(), iterations: done.iterations }
        }
    };
    outbox.push(Standing::Fact, turn, kind);
    for (scope, kind) in done.ended.iter().flat_map(|ended| answered(ended, Some(mail.turn))) {
        outbox.push(Standing::Fact, scope, kind);
    }
    notify_ended(worker, session, &done.ended).await;
}

/// A fork, trim or reset has ended, and the store says so.
pub(crate) async fn worked(
    worker: &Worker,
    session: SessionId,
    outbox: &Outbox,
    cut: &Cut,
    Worked { ended, next }: Worked,
) {
    for ended in &ended {
        let scope = Scope { job: Some(ended.job), ..Scope::default() };
        if let Outcome::Cut(result) = &ended.outcome {
            let (message, kind) = match cut {
                Cut::Trim { at } => (Some(*at), EventKind::SessionTrimmed { deleted: result.deleted }),
                Cut::Reset => (None, EventKind::SessionReset { deleted: result.deleted }),
                Cut::Fork(asked) => (asked.at, EventKind::SessionForked { forked_session_id: asked.into }),
            };
            outbox.push(Standing::Fact, Scope { message, ..scope }, kind);
        }
        for (scope, kind) in answered(ended, None) {
            outbox.push(Standing::Fact, scope, kind);
        }
    }
    notify_ended(worker, session, &ended).await;
    if let Some(next) = next {
        ring(worker, next).await;
    }
}

/// A session was taken from a run that is no more.
pub(crate) async fn reaped(worker: &Worker, reaped: Reaped) {
    let Reaped { session, worker: lost, token, ended, .. } = &reaped;
    // If it ran on this host, what it left running is ended before anybody goes on.
    let killed = end_owned(*session, *token).await;
    if 0 < killed {
        tracing::warn!(session.id = %session, killed, "ended processes that a lost run had left");
    }
    tracing::warn!(session.id = %session, worker.id = %lost, ended = ended.len(), "took a session from a lost run");
    taken_back(worker, reaped).await;
}

/// A session's claims went back to its mailbox, or ended there.
pub(crate) async fn taken_back(worker: &Worker, taken: Reaped) {
    let Reaped { session, turn, superseded, next, ended, .. } = taken;
    let of_turn = Scope { turn, ..Scope::default() };
    let superseded = closed(&superseded, InteractionState::Superseded);
    let mut kinds: Vec<_> = superseded.map(|kind| (of_turn, kind)).collect();
    let problem = ended.iter().find_map(|ended| match &ended.outcome {
        Outcome::Failed(problem) => Some(problem.clone()),
        Outcome::Answered(_) | Outcome::Cut(_) | Outcome::Cancelled => None,
    });
    // Only turns tell of their failure; a cut's is told to whoever asked for it.
    if let (Some(problem), Some(_)) = (problem, turn) {
        kinds.push((of_turn, EventKind::TurnFailed { problem }));
    }
    kinds.extend(ended.iter().flat_map(|ended| answered(ended, turn)));
    let events: Vec<_> =
        kinds.iter().map(|(scope, kind)| NewEvent::new(session, now_ms(), *scope, kind)).collect();
    if !events.is_empty()
        && let Err(error) = worker.bus.publish(session, None, Numbering::Continue, &events).await
    {
        tracing::debug!(error = chain(&error), "the end of a lost run was not published");
    }
    notify_ended(worker, session, &ended).await;
    if let Some(next) = next {
        ring(worker, next).await;
    }
}

/// Rings for a session that nobody runs. What is not heard is found by the sweeper; that rings fail, the queue logs.
pub(crate) async fn ring(worker: &Worker, job: SessionJob) {
    let _ = worker.queue.push(free_lane(job.kind), job.session).await;
}

/// The queue for a session that nobody runs: a message that came while somebody did is a run of its own now.
pub(crate) const fn free_lane(kind: JobKind) -> Lane {
    match kind.lane() {
        Lane::Chat | Lane::Inject => Lane::Chat,
        Lane::Maintenance => Lane::Maintenance,
    }
}

/// What is told of questions that were closed without an answer.
pub(crate) fn closed(
    interactions: &[InteractionId],
    state: InteractionState,
) -> impl Iterator<Item = EventKind> {
    interactions.iter().map(move |&interaction_id| EventKind::InteractionResolved {
        interaction_id,
        state,
        decision: None,
    })
}

/// What is told of an answered job. A failed one is told with its turn.
fn answered(ended: &Ended, turn: Option<TurnId>) -> Vec<(Scope, EventKind)> {
    let scope = Scope { job: Some(ended.job), turn, ..Scope::default() };
    let cancelled = || (scope, EventKind::JobCancelled { kind: ended.kind });
    let response = |result: &ChatResult| (scope, EventKind::ChatResponse(Box::new(result.clone())));
    match &ended.outcome {
        Outcome::Answered(result) if result.cancelled => vec![cancelled(), response(result)],
        Outcome::Answered(result) => vec![response(result)],
        Outcome::Cancelled => vec![cancelled()],
        Outcome::Cut(_) | Outcome::Failed(_) => Vec::new(),
    }
}

/// Rings for all who wait for these jobs: clients, and parents that they wake.
async fn notify_ended(worker: &Worker, session: SessionId, ended: &[Ended]) {
    let mut notices: Vec<_> = ended.iter().map(|ended| Notice::Ended(session, ended.job)).collect();
    notices.extend(ended.iter().filter_map(|ended| ended.wakes).map(|wake| Notice::Mail(wake.session)));
    worker.bus.notify(&notices).await;
    for wake in ended.iter().filter_map(|ended| ended.wakes) {
        ring(worker, wake).await;
    }
}

/// Something was cancelled from within this worker.
pub(crate) async fn cancelled(worker: &Worker, session: SessionId, cancelled: Cancelled) {
    let events: Vec<_> = cancelled
        .ended
        .iter()
        .flat_map(|ended| answered(ended, None))
        .map(|(scope, kind)| NewEvent::new(session, now_ms(), scope, &kind))
        .collect();
    if !events.is_empty()
        && let Err(error) = worker.bus.publish(session, None, Numbering::Continue, &events).await
    {
        tracing::debug!(error = chain(&error), "a cancel was not published");
    }
    if let Some(turn) = cancelled.turn {
        worker.bus.notify(&[Notice::Cancel(session, turn)]).await;
    }
    notify_ended(worker, session, &cancelled.ended).await;
}

/// The end of a turn that never reached its engine.
pub(crate) fn unstarted(mail: &Mail, problem: Problem) -> TurnEnd {
    TurnEnd {
        turn: mail.turn,
        outcome: TurnOutcome::Failed(problem),
        messages: Vec::new(),
        model: mail.model.clone(),
        iterations: 0,
        usage: roundhouse_shared::domain::Usage::default(),
        context_source: roundhouse_shared::domain::ContextSource::Empty,
        undelivered: Vec::new(),
    }
}
