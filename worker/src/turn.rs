//! One turn: an engine session is driven from its mail to its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use roundhouse_engines::contract::{Answer, EngineEvent, EngineSession, Intake};
use roundhouse_shared::code::Code;
use roundhouse_shared::problem::{Problem, chain};
use roundhouse_shared::queue::Slot;
use roundhouse_shared::store::{Mail, StoreError, TurnEnd, TurnOutcome};
use roundhouse_shared::units::Span;
use tokio::time::{Instant, sleep_until};

use crate::announced;
use crate::asked::{find_out, withdraw};
use crate::events::{self, unstarted};
use crate::opening::{NotOpened, Opened, open};
use crate::outbox::Outbox;
use crate::progress::{Progress, Taken};
use crate::registry::Run;
use crate::turn_clock::TurnClock;
use crate::{Worker, translate, warm};

/// How often mail is looked for that nobody has rung for.
const LOOK: Duration = Duration::from_secs(2);

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
    pub(crate) clock: &'a TurnClock,
}

impl Turn<'_> {
    /// The turn only waits from here on: its slot is for others, and its clock stands still.
    pub(crate) fn rest(&self) {
        self.slot.rest();
        self.clock.stop();
    }

    /// The turn works again, once it has a slot.
    pub(crate) async fn resume(&self) {
        self.slot.resume().await;
        self.clock.go_on();
    }
}

/// Runs a turn to its end, or until it must not go on.
pub(crate) async fn drive(turn: Turn<'_>) -> Driven {
    let Turn { worker, run, outbox, mail, clock, .. } = turn;
    let session = run.lease.session;
    events::started(outbox, mail);
    let _kept = clock.keep(worker, run, mail, limit(worker, mail).0);
    let opened = match open(turn).await {
        Ok(opened) => opened,
        Err(NotOpened::Store(_)) if !run.is_ours() => return Driven::Lost,
        Err(NotOpened::Store(error)) => return Driven::Ended(unstarted(mail, error.into())),
        Err(NotOpened::Problem(problem)) => return Driven::Ended(unstarted(mail, problem)),
    };
    let mut progress = Progress::new(turn, &opened);
    let Opened { mut engine, spec, input, intake, untold, .. } = opened;
    let driven = match engine.send(input).await {
        Ok(()) => match follow(turn, &mut *engine, intake, untold, &mut progress).await {
            Ok(driven) => driven,
            Err(StoreError::LeaseLost) => Driven::Lost,
            Err(error) => {
                tracing::error!(session.id = %session, error = chain(&error), "a turn could not be stored");
                Driven::Ended(progress.end(TurnOutcome::Failed(error.into())))
            }
        },
        Err(error) => Driven::Ended(progress.end(TurnOutcome::Failed(translate::problem(&error)))),
    };
    announced::left_out(worker, &mail.agent).await;
    // The engine ends before anybody is told that the turn has, unless it is kept for the next one.
    let keeps = engine.is_warm() && !worker.settings.engine_idle.0.is_zero();
    match driven {
        Driven::Ended(_) if keeps => worker.warm.keep(worker, &run.lease, spec, engine),
        // Somebody else may go on with it at any moment.
        Driven::Lost => warm::close_within(Duration::ZERO, session, engine).await,
        Driven::Ended(_) | Driven::Stopped => warm::close(worker, session, engine).await,
    }
    // Whoever goes on with it has what is left of its time.
    if matches!(driven, Driven::Stopped)
        && let Err(error) = clock.keep_now(worker, run, mail).await
    {
        tracing::warn!(session.id = %session, error = chain(&error), "the time of a turn was not stored");
    }
    driven
}

/// Reads the engine's events until the turn ends, or until it must.
async fn follow(
    turn: Turn<'_>,
    engine: &mut dyn EngineSession,
    intake: Intake,
    untold: Option<EngineEvent>,
    progress: &mut Progress<'_>,
) -> Result<Driven, StoreError> {
    let Turn { worker, run, mail, clock, .. } = turn;
    if let Some(event) = untold {
        progress.take(engine, event).await?;
    }
    let mut cancel = run.cancel.subscribe();
    let mut cancelled = pin!(async { cancel.wait_for(|turn| *turn == Some(mail.turn)).await.map(drop) });
    // Set once the engine was asked to stop: why, and with `deadline` until when it may take.
    let mut ending: Option<TurnOutcome> = None;
    let limit = limit(worker, mail);
    let mut deadline: Option<Instant> = None;
    // What the engine asked for, while it is being found out.
    let mut asking = Asking::default();
    // When mail is looked for that nobody has rung for. Some may have come since this turn's was taken.
    let mut look = Instant::now();
    loop {
        let takes_mail = intake == Intake::AnyTime && ending.is_none();
        let why = tokio::select! {
            biased;
            () = run.lost.cancelled() => return Ok(Driven::Lost),
            () = worker.lifecycle.hard().cancelled() => return Ok(Driven::Stopped),
            _ = &mut cancelled, if ending.is_none() => TurnOutcome::Cancelled,
            () = time_is_up(clock, limit, deadline) => match ending {
                Some(outcome) => return Ok(Driven::Ended(progress.end(outcome))),
                None => too_long(limit),
            },
            () = mail_has_come(run, look), if takes_mail => {
                look = Instant::now() + LOOK;
                asking.beside(progress.inject(engine)).await?;
                continue;
            }
            answered = asking.found_out() => {
                if let Some((id, answer)) = answered? {
                    engine.answer(&id, answer).await;
                }
                continue;
            }
            event = engine.next() => match asking.beside(progress.take(engine, event)).await? {
                Taken::More => continue,
                Taken::Asked(id, asked) => {
                    let calling = progress.calling();
                    asking.begin(find_out(turn, calling, id, asked));
                    continue;
                }
                Taken::Withdrawn => {
                    asking.begin(withdraw(turn, ending.is_none()));
                    continue;
                }
                // What was asked of the engine decides, also where it was just done by itself.
                Taken::End(outcome) => {
                    return Ok(Driven::Ended(progress.end(ending.unwrap_or(outcome))));
                }
            },
        };
        asking = Asking::default();
        ending = Some(why);
        deadline = Some(Instant::now() + worker.limits.cancel_grace.0);
        engine.interrupt().await;
    }
}

/// For how long a turn may work.
fn limit(worker: &Worker, mail: &Mail) -> Span {
    worker.engines.get(&mail.agent).map_or(worker.limits.turn_timeout, |here| here.turn_timeout)
}

/// Waits until the turn has worked for too long, or, where there is one, for the deadline by which its engine has to stop.
async fn time_is_up(clock: &TurnClock, limit: Span, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => clock.reaches(limit.0).await,
    }
}

/// Waits until somebody has rung for mail, or it is time to look for it anyway.
async fn mail_has_come(run: &Run, look: Instant) {
    tokio::select! {
        () = run.mail.notified() => {}
        () = sleep_until(look) => {}
    }
}

/// What the engine is to be answered; nothing where it does not want to know any more.
type Found = Result<Option<(String, Answer)>, StoreError>;

/// What the engine asked for, while it is being found out.
#[derive(Default)]
struct Asking<'a> {
    under_way: Option<BoxFuture<'a, Found>>,
    found: Option<Found>,
}

impl<'a> Asking<'a> {
    /// Finds out this, and nothing else any more.
    fn begin(&mut self, find_out: impl Future<Output = Found> + Send + 'a) {
        *self = Self { under_way: Some(find_out.boxed()), found: None };
    }

    /// What was found out; never, where there is nothing to find out. Safe to drop and call again.
    async fn found_out(&mut self) -> Found {
        if let Some(found) = self.found.take() {
            return found;
        }
        let found = match &mut self.under_way {
            Some(under_way) => under_way.await,
            None => std::future::pending().await,
        };
        self.under_way = None;
        found
    }

    /// Does something else meanwhile. Left standing it may hold the very lock in the store that the other waits for.
    async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        loop {
            tokio::select! {
                biased;
                done = &mut other => return done,
                found = self.found_out(), if self.found.is_none() => self.found = Some(found),
            }
        }
    }
}

fn too_long(limit: Span) -> TurnOutcome {
    let detail = format!("the turn took longer than {limit}");
    TurnOutcome::Failed(Problem::with_detail(Code::EngineFailed, detail))
}
