//! One turn: an engine session is driven from its mail to its end.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use roundhouse_engines::contract::{
    AssistantMessage, EngineError, EngineEvent, EngineSession, OpenSession, TurnDone, TurnInput,
};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{ContextSource, EventKind, Scope, SessionId, Usage};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{Mail, TurnEnd, TurnOutcome, WrittenMessage};
use tokio::time::{Instant, sleep_until, timeout};

use crate::events::{self, unstarted};
use crate::outbox::{Outbox, Standing};
use crate::registry::Run;
use crate::session::persist;
use crate::{Worker, translate};

/// How a turn was left.
pub(crate) enum Driven {
    /// It has ended, and can be finished.
    Ended(TurnEnd),
    /// The lease is lost: nothing of it may be written.
    Lost,
    /// The process stops: the session is handed back.
    Stopped,
}

/// What a turn has brought so far.
struct Progress {
    scope: Scope,
    messages: Vec<WrittenMessage>,
    /// Text of a message that is not complete.
    partial: String,
    model: Option<String>,
    context_source: ContextSource,
}

/// Runs a turn to its end, or until it must not go on.
pub(crate) async fn drive(worker: &Worker, run: &Run, outbox: &Outbox, mail: &Mail) -> Driven {
    let session = run.lease.session;
    events::started(outbox, mail);
    let before = persist(run, || worker.store.context_before(session, mail.turn)).await;
    let history = match before {
        Ok(entries) => translate::history(entries),
        Err(_) if !run.is_ours() => return Driven::Lost,
        Err(error) => return Driven::Ended(unstarted(mail, error.into())),
    };
    let mut progress = Progress {
        scope: Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() },
        messages: Vec::new(),
        partial: String::new(),
        model: mail.model.clone(),
        context_source: if history.is_empty() { ContextSource::Empty } else { ContextSource::Replay },
    };
    let mut engine = match open(worker, session, mail).await {
        Ok(engine) => engine,
        Err(problem) => return Driven::Ended(unstarted(mail, problem)),
    };
    let input = TurnInput { history, messages: mail.jobs.iter().map(translate::input).collect() };
    let driven = match engine.send(input).await {
        Ok(()) => follow(worker, run, outbox, mail, &mut *engine, &mut progress).await,
        Err(error) => {
            Driven::Ended(progress.end(mail, TurnOutcome::Failed(translate::problem(&error)), None))
        }
    };
    let grace = worker.limits.cancel_grace.0;
    // The engine ends before anybody is told that the turn has.
    if timeout(grace + Duration::from_secs(1), engine.close(grace)).await.is_err() {
        tracing::warn!(session.id = %session, "an engine session did not close in time");
    }
    driven
}

async fn open(worker: &Worker, session: SessionId, mail: &Mail) -> Result<Box<dyn EngineSession>, Problem> {
    let Some((_, engine)) = worker.engines.get(&mail.agent) else {
        let detail = format!("this worker does not have the agent {:?}", mail.agent);
        return Err(Problem::with_detail(Code::EngineUnavailable, detail));
    };
    let cwd = if mail.cwd.is_empty() {
        worker.data_dir.join("workspaces").join(session.to_string())
    } else {
        PathBuf::from(&mail.cwd)
    };
    let spec = OpenSession {
        session: session.to_string(),
        native_session: mail.native_session.clone(),
        model: mail.model.clone(),
        cwd,
    };
    engine.open(spec).await.map_err(|error| translate::problem(&error))
}

/// Reads the engine's events until the turn ends, or until it must.
async fn follow(
    worker: &Worker,
    run: &Run,
    outbox: &Outbox,
    mail: &Mail,
    engine: &mut dyn EngineSession,
    progress: &mut Progress,
) -> Driven {
    let limit = worker.limits.turn_timeout.0;
    let mut cancel = run.cancel.subscribe();
    let mut cancelled = pin!(async { cancel.wait_for(|turn| *turn == Some(mail.turn)).await.map(drop) });
    // Set once the engine was asked to stop: why, and until when it may take.
    let mut ending: Option<TurnOutcome> = None;
    let mut deadline = Instant::now() + limit;
    loop {
        tokio::select! {
            biased;
            () = run.lost.cancelled() => return Driven::Lost,
            () = worker.lifecycle.hard().cancelled() => return Driven::Stopped,
            _ = &mut cancelled, if ending.is_none() => {
                ending = Some(TurnOutcome::Cancelled);
                deadline = Instant::now() + worker.limits.cancel_grace.0;
                engine.interrupt().await;
            }
            () = sleep_until(deadline) => {
                if let Some(outcome) = ending {
                    return Driven::Ended(progress.end(mail, outcome, None));
                }
                let detail = format!("the turn took longer than {}", worker.limits.turn_timeout);
                ending = Some(TurnOutcome::Failed(Problem::with_detail(Code::EngineFailed, detail)));
                deadline = Instant::now() + worker.limits.cancel_grace.0;
                engine.interrupt().await;
            }
            event = engine.next() => {
                if let Some((outcome, done)) = progress.take(outbox, event) {
                    // What was asked of the engine decides, also where it was just done by itself.
                    return Driven::Ended(progress.end(mail, ending.unwrap_or(outcome), done));
                }
            }
        }
    }
}

impl Progress {
    /// Takes in an event; says how the turn ended if this was the last.
    fn take(&mut self, outbox: &Outbox, event: EngineEvent) -> Option<(TurnOutcome, Option<TurnDone>)> {
        let tell = |kind| outbox.push(Standing::Running, self.scope, kind);
        match event {
            EngineEvent::Delta(text) => {
                self.partial.push_str(&text);
                tell(EventKind::MessageDelta { text });
            }
            EngineEvent::ThinkingDelta(text) => tell(EventKind::ThinkingDelta { text }),
            EngineEvent::Retry { attempt, delay, status } => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let scope = Scope { attempt: None, ..self.scope };
                outbox.push(Standing::Running, scope, EventKind::EngineRetry { attempt, delay_ms, status });
            }
            EngineEvent::MessageDone(message) => self.complete(message),
            EngineEvent::TurnDone(done) => return Some((TurnOutcome::Answered, Some(done))),
            EngineEvent::Interrupted => return Some((TurnOutcome::Cancelled, None)),
            EngineEvent::Failed(error) => return Some((failed(&error), None)),
        }
        None
    }

    fn complete(&mut self, message: AssistantMessage) {
        self.partial.clear();
        self.model = message.model.clone().or(self.model.take());
        self.messages.push(translate::written(message));
    }

    /// The turn's end, with what was written so far. Text that was cut off by a cancel is kept.
    fn end(&mut self, mail: &Mail, outcome: TurnOutcome, done: Option<TurnDone>) -> TurnEnd {
        if matches!(outcome, TurnOutcome::Cancelled) && !self.partial.is_empty() {
            let content = std::mem::take(&mut self.partial);
            let model = self.model.clone();
            self.messages.push(WrittenMessage { content, model, ..WrittenMessage::default() });
        }
        let calls = i64::try_from(self.messages.len()).unwrap_or(i64::MAX);
        TurnEnd {
            turn: mail.turn,
            outcome,
            iterations: done.map_or(calls, |done| i64::from(done.iterations)).max(1),
            usage: done.map_or_else(|| self.used(), |done| translate::usage(done.usage)),
            messages: std::mem::take(&mut self.messages),
            model: self.model.clone(),
            context_source: self.context_source,
            native_session: mail.native_session.clone(),
        }
    }

    /// What the complete messages used, where the engine gave no sum.
    fn used(&self) -> Usage {
        self.messages.iter().fold(Usage::default(), |sum, message| Usage {
            input_tokens: sum.input_tokens + message.usage.input_tokens,
            output_tokens: sum.output_tokens + message.usage.output_tokens,
            cache_tokens: sum.cache_tokens + message.usage.cache_tokens,
            cost_nanos: match (sum.cost_nanos, message.usage.cost_nanos) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            },
        })
    }
}

fn failed(error: &EngineError) -> TurnOutcome {
    TurnOutcome::Failed(translate::problem(error))
}
