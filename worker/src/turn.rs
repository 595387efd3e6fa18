//! One turn: an engine session is driven from its mail to its end.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use roundhouse_engines::contract::{Answer, EngineSession, OpenSession, TurnInput};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{LeaseToken, SessionId};
use roundhouse_shared::problem::{Problem, chain};
use roundhouse_shared::queue::Slot;
use roundhouse_shared::store::{Mail, StoreError, TurnEnd, TurnOutcome};
use roundhouse_shared::units::Span;
use tokio::time::{Instant, sleep_until, timeout};

use crate::asked::find_out;
use crate::events::{self, unstarted};
use crate::outbox::Outbox;
use crate::progress::{Progress, Taken};
use crate::registry::Run;
use crate::session::persist;
use crate::{Runnable, Worker, translate};

/// How a turn was left.
pub(crate) enum Driven {
    /// It has ended, and can be finished.
    Ended(TurnEnd),
    /// The lease is lost: nothing of it may be written.
    Lost,
    /// The process stops: the session is handed back.
    Stopped,
}

/// What a turn runs with.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) run: &'a Run,
    pub(crate) outbox: &'a Outbox,
    pub(crate) slot: &'a Slot,
    pub(crate) mail: &'a Mail,
}

/// Runs a turn to its end, or until it must not go on.
pub(crate) async fn drive(turn: Turn<'_>) -> Driven {
    let Turn { worker, run, outbox, mail, .. } = turn;
    let session = run.lease.session;
    events::started(outbox, mail);
    let context = match persist(run, || worker.store.context(session)).await {
        Ok(context) => context,
        Err(_) if !run.is_ours() => return Driven::Lost,
        Err(error) => return Driven::Ended(unstarted(mail, error.into())),
    };
    let mut progress = Progress::new(worker, run, outbox, mail, &context);
    let mut engine = match open(worker, session, run.lease.token, mail).await {
        Ok(engine) => engine,
        Err(problem) => return Driven::Ended(unstarted(mail, problem)),
    };
    let messages = mail.jobs.iter().map(translate::input).collect();
    let input =
        TurnInput { context: context.into_iter().map(translate::context).collect(), messages, earlier: None };
    let driven = match engine.send(input).await {
        Ok(()) => match follow(turn, &mut *engine, &mut progress).await {
            Ok(driven) => driven,
            Err(StoreError::LeaseLost) => Driven::Lost,
            Err(error) => {
                tracing::error!(session.id = %session, error = chain(&error), "a turn could not be stored");
                Driven::Ended(progress.end(TurnOutcome::Failed(error.into())))
            }
        },
        Err(error) => Driven::Ended(progress.end(TurnOutcome::Failed(translate::problem(&error)))),
    };
    let grace = worker.limits.cancel_grace.0;
    // The engine ends before anybody is told that the turn has.
    if timeout(grace + Duration::from_secs(1), engine.close(grace)).await.is_err() {
        tracing::warn!(session.id = %session, "an engine session did not close in time");
    }
    driven
}

/// Where a session works, unless it has a directory of its own.
pub(crate) fn workspace(worker: &Worker, session: SessionId, cwd: &str) -> PathBuf {
    match cwd {
        "" => worker.data_dir.join("workspaces").join(session.to_string()),
        cwd => PathBuf::from(cwd),
    }
}

/// The mark of all processes that a run starts, by which they are found after a crash.
pub(crate) fn owner(session: SessionId, token: LeaseToken) -> String {
    format!("{session}/{}", token.0)
}

async fn open(
    worker: &Worker,
    session: SessionId,
    token: LeaseToken,
    mail: &Mail,
) -> Result<Box<dyn EngineSession>, Problem> {
    let Some(Runnable { engine, .. }) = worker.engines.get(&mail.agent) else {
        let detail = format!("this worker does not have the agent {:?}", mail.agent);
        return Err(Problem::with_detail(Code::EngineUnavailable, detail));
    };
    let cwd = workspace(worker, session, &mail.cwd);
    // A child works where its parent does, which may have had no need of the directory so far.
    let ours = cwd.starts_with(worker.data_dir.join("workspaces"));
    if ours && engine.capabilities().works_on_files {
        tokio::fs::create_dir_all(&cwd).await.map_err(|error| {
            tracing::error!(session.id = %session, cwd = %cwd.display(), %error, "no workspace");
            Problem::with_detail(Code::EngineUnavailable, "the worker cannot create the session's workspace")
        })?;
    }
    let spec = OpenSession {
        session: session.to_string(),
        native_session: mail.native_session.clone(),
        model: mail.model.clone(),
        cwd,
        owner: Some(owner(session, token)),
    };
    engine.open(spec).await.map_err(|error| translate::problem(&error))
}

/// Reads the engine's events until the turn ends, or until it must.
async fn follow(
    turn: Turn<'_>,
    engine: &mut dyn EngineSession,
    progress: &mut Progress<'_>,
) -> Result<Driven, StoreError> {
    let Turn { worker, run, mail, .. } = turn;
    let mut cancel = run.cancel.subscribe();
    let mut cancelled = pin!(async { cancel.wait_for(|turn| *turn == Some(mail.turn)).await.map(drop) });
    // Set once the engine was asked to stop: why, and until when it may take.
    let mut ending: Option<TurnOutcome> = None;
    let limit = worker.engines.get(&mail.agent).map_or(worker.limits.turn_timeout, |here| here.turn_timeout);
    let mut deadline = Instant::now() + limit.0;
    // What the engine asked for, while it is being found out.
    let mut asking: Asking<'_> = None;
    loop {
        let why = tokio::select! {
            biased;
            () = run.lost.cancelled() => return Ok(Driven::Lost),
            () = worker.lifecycle.hard().cancelled() => return Ok(Driven::Stopped),
            _ = &mut cancelled, if ending.is_none() => TurnOutcome::Cancelled,
            () = sleep_until(deadline) => match ending {
                Some(outcome) => return Ok(Driven::Ended(progress.end(outcome))),
                None => too_long(limit),
            },
            answered = found_out(&mut asking) => {
                asking = None;
                let (id, answer) = answered?;
                engine.answer(&id, answer).await;
                continue;
            }
            event = engine.next() => match progress.take(engine, event).await? {
                Taken::More => continue,
                Taken::Asked(id, asked) => {
                    let calling = progress.calling();
                    asking = Some(find_out(turn, calling, id, asked).boxed());
                    continue;
                }
                // What was asked of the engine decides, also where it was just done by itself.
                Taken::End(outcome) => {
                    return Ok(Driven::Ended(progress.end(ending.unwrap_or(outcome))));
                }
            },
        };
        asking = None;
        ending = Some(why);
        deadline = Instant::now() + worker.limits.cancel_grace.0;
        engine.interrupt().await;
    }
}

type Asking<'a> = Option<BoxFuture<'a, Result<(String, Answer), StoreError>>>;

/// The answer to what the engine asked; never, where it asked for nothing.
async fn found_out(asking: &mut Asking<'_>) -> Result<(String, Answer), StoreError> {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn too_long(limit: Span) -> TurnOutcome {
    let detail = format!("the turn took longer than {limit}");
    TurnOutcome::Failed(Problem::with_detail(Code::EngineFailed, detail))
}
