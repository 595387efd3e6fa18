//! Fork, trim and reset: first the engine's own conversation, where there is one to be copied; then the rows.
//!
//! The copy is announced before it is made, and counts once the rows say so: a run that dies in between has changed
//! nothing, whoever goes on begins anew, and the collector deletes what nobody uses.

use std::sync::Arc;
use std::time::Duration;

use roundhouse_engines::contract::{self, Engine, EngineError, Native};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Anchor, Cut, EngineKind, EventKind, Fork, Lease, Scope, SessionId};
use roundhouse_shared::problem::{Problem, chain};
use roundhouse_shared::store::{DoomedNative, NativeFork, StoreError, Work, WorkEnd};
use tokio::time::timeout;

use crate::collector::let_go;
use crate::incarnation::Incarnation;
use crate::opening::end_owned;
use crate::outbox::{Outbox, Standing};
use crate::registry::Run;
use crate::session::{hand_back, persist, persist_once};
use crate::workspace::workspace;
use crate::{Worker, events};

/// How long an engine may take to copy a conversation.
const FORK_WAIT: Duration = Duration::from_mins(2);
/// How long a copy may wait for the rows before it counts as not used. Longer than any copy takes.
const GRACE_MS: i64 = 10 * 60_000;

/// Carries out a fork, trim or reset under a lease that `me` has. The lease is gone in the end.
pub(crate) async fn run(worker: &Arc<Worker>, me: &Arc<Incarnation>, lease: Lease, work: Work) {
    let entry = worker.registry.enter(lease, me);
    let outbox = Outbox::open(worker, entry.run.clone(), work.left_over);
    match carry_out(worker, &entry.run, &outbox, &work).await {
        Ok(()) => {}
        Err(StoreError::LeaseLost) => {
            entry.run.lost.cancel();
            tracing::warn!(session.id = %lease.session, "lost the lease of a session that was to be cut");
        }
        // The entry goes with this run, and the heartbeat gives the session on.
        Err(error) => tracing::error!(session.id = %lease.session, error = chain(&error), "a cut broke off"),
    }
    outbox.close().await;
}

async fn carry_out(worker: &Arc<Worker>, run: &Run, outbox: &Outbox, work: &Work) -> Result<(), StoreError> {
    let scope = Scope { job: Some(work.job), ..Scope::default() };
    outbox.push(Standing::Running, scope, EventKind::JobStarted { kind: work.cut.kind() });
    let end = tokio::select! {
        biased;
        () = run.lost.cancelled() => return Err(StoreError::LeaseLost),
        () = worker.lifecycle.hard().cancelled() => return hand_back(worker, run, outbox).await,
        end = prepare(worker, run, work) => end?,
    };
    let worked = persist_once(worker, run, Some(outbox), |store| {
        let end = &end;
        async move { store.finish_work(&run.lease, work.job, end).await }
    })
    .await?;
    events::worked(worker, run.lease.session, outbox, worked).await;
    Ok(())
}

/// What has to be true before the rows can follow.
async fn prepare(worker: &Worker, run: &Run, work: &Work) -> Result<WorkEnd, StoreError> {
    let session = run.lease.session;
    let asked = match &work.cut {
        Cut::Fork(asked) => Some(asked),
        Cut::Trim { .. } | Cut::Reset => None,
    };
    if work.anchor.is_none() && asked.is_some_and(|fork| fork.require_anchor) {
        return Ok(WorkEnd::Failed(Problem::new(Code::NoForkAnchor)));
    }
    // A fork only reads the source, and a trim or a reset that fails has changed nothing, nor ended what runs.
    worker.warm.carry_over(&run.lease);
    // A fork goes on with the same files.
    let cwd = match asked {
        Some(Fork { cwd: Some(cwd), .. }) => cwd.clone(),
        Some(_) => workspace(worker, session, &work.cwd).display().to_string(),
        None => work.cwd.clone(),
    };
    let Some(anchor) = &work.anchor else {
        end_processes(worker, run, work).await;
        return Ok(WorkEnd::Ready { native: None, cwd });
    };
    let Some(engine) = engine_of(worker, &work.agent, work.engine) else {
        let detail = format!("this worker cannot run {}", work.engine);
        return Ok(WorkEnd::Failed(Problem::with_detail(Code::EngineUnavailable, detail)));
    };
    let copy = DoomedNative {
        native: uuid::Uuid::now_v7().to_string(),
        session: asked.map_or(session, |fork| fork.into),
        cwd,
        host: worker.host.clone(),
    };
    persist(run, || worker.store.doom(&run.lease, &copy, GRACE_MS)).await?;
    Ok(match copy_native(worker, &**engine, session, work, anchor, &copy).await {
        Ok(native) => {
            end_processes(worker, run, work).await;
            WorkEnd::Ready { native: Some(native), cwd: copy.cwd }
        }
        // It has not what is displayed: the next turn is given the stored messages.
        Err(error @ (EngineError::ResumeDropped(_) | EngineError::Behind(_))) => {
            tracing::warn!(session.id = %session, engine = %work.engine, %error, "a cut goes on without the native session");
            if asked.is_some_and(|fork| fork.require_anchor) {
                WorkEnd::Failed(Problem::with_detail(Code::NoForkAnchor, error.to_string()))
            } else {
                end_processes(worker, run, work).await;
                WorkEnd::Ready { native: None, cwd: copy.cwd }
            }
        }
        Err(error) => {
            let why = error.to_string();
            tracing::warn!(session.id = %session, engine = %work.engine, why, "a conversation was not copied");
            WorkEnd::Failed(Problem::with_detail(work.engine.fork_failed(), why))
        }
    })
}

/// Ends what has the native session open that a trim or a reset is about to replace. What that says in the meantime comes
/// after the point at which it was copied.
async fn end_processes(worker: &Worker, run: &Run, work: &Work) {
    let session = run.lease.session;
    if let (Cut::Trim { .. } | Cut::Reset, Some(native)) = (&work.cut, &work.native_session) {
        let_go(worker, session, native).await;
        // Another worker of this host may have kept it warm.
        end_owned(session, run.lease.token).await;
    }
}

async fn copy_native(
    worker: &Worker,
    engine: &dyn Engine,
    session: SessionId,
    work: &Work,
    anchor: &Anchor,
    copy: &DoomedNative,
) -> Result<NativeFork, EngineError> {
    let title = match &work.cut {
        Cut::Fork(Fork { title: Some(title), .. }) => Some(title.clone()),
        _ => work.title.clone(),
    };
    let fork = contract::Fork {
        source: Native { id: anchor.native.clone(), cwd: workspace(worker, session, &work.cwd) },
        at: anchor.at.clone(),
        into: native(worker, copy),
        title,
    };
    let forked = timeout(FORK_WAIT, engine.fork(fork)).await;
    let too_late = |_| EngineError::ForkFailed(format!("the copy was not made within {FORK_WAIT:?}"));
    let anchors = forked.map_err(too_late)??.anchors;
    Ok(NativeFork {
        source: anchor.native.clone(),
        native: copy.native.clone(),
        host: copy.host.clone(),
        anchors,
    })
}

/// A native session as its engine finds it.
pub(crate) fn native(worker: &Worker, known: &DoomedNative) -> Native {
    Native { id: known.native.clone(), cwd: workspace(worker, known.session, &known.cwd) }
}

/// The engine that a session has for life, whatever its agent is configured with now.
pub(crate) fn engine_of<'w>(
    worker: &'w Worker,
    agent: &str,
    engine: EngineKind,
) -> Option<&'w Arc<dyn Engine>> {
    let own = worker.engines.get(agent).filter(|here| here.agent.engine == engine);
    let found = own.or_else(|| worker.engines.values().find(|here| here.agent.engine == engine));
    found.map(|here| &here.engine)
}
