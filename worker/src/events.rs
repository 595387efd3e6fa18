//! What is told when something has become true in the store.

use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::{
    EventKind, InteractionId, InteractionState, JobKind, Lane, Scope, SessionId, SessionJob,
};
use roundhouse_shared::leftovers;
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{Cancelled, Ended, Finished, Mail, Reaped, TurnEnd, TurnOutcome, Worked};

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
pub(crate) async fn finished(worker: &Worker, session: SessionId, outbox: &Outbox, done: Finished) {
    outbox.push_stored(done.stored);
    notify_ended(worker, session, &done.ended).await;
}

/// A fork, trim or reset has ended, and the store says so.
pub(crate) async fn worked(worker: &Worker, session: SessionId, outbox: &Outbox, worked: Worked) {
    outbox.push_stored(worked.stored);
    notify_ended(worker, session, &worked.ended).await;
    if let Some(next) = worked.next {
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
    taken_back(worker, None, reaped).await;
}

/// A session's claims went back to its mailbox, or ended there. Told by the run that gave them back, or else at once.
pub(crate) async fn taken_back(worker: &Worker, outbox: Option<&Outbox>, taken: Reaped) {
    let Reaped { session, next, ended, stored, .. } = taken;
    match outbox {
        Some(outbox) => outbox.push_stored(stored),
        None => leftovers::publish(&worker.store, &worker.bus, stored.as_ref()).await,
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
    leftovers::publish(&worker.store, &worker.bus, cancelled.stored.as_ref()).await;
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
