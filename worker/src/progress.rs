//! What a turn has brought so far: events are told, messages stored, both in order.

use std::sync::Arc;

use roundhouse_engines::contract::{
    AssistantMessage, EngineError, EngineEvent, EngineSession, Injected, Intake, TurnDone,
    Usage as EngineUsage,
};
use roundhouse_shared::domain::{ContextSource, EventKind, JobId, JobKind, MessageId, Role, Scope, Usage};
use roundhouse_shared::store::{
    MOST_MERGED, Mail, Meanwhile, StoreError, Together, TurnEnd, TurnOutcome, WrittenMessage,
};

use crate::claims::Claims;
use crate::opening::Opened;
use crate::outbox::{Outbox, Standing};
use crate::registry::Run;
use crate::session::{persist, persist_once};
use crate::turn::Turn;
use crate::{Worker, translate};

/// A turn that runs.
pub(crate) struct Progress<'a> {
    worker: &'a Arc<Worker>,
    run: &'a Run,
    outbox: &'a Outbox,
    mail: &'a Mail,
    scope: Scope,
    /// Messages that are complete and not stored: the answer is stored with the turn's end.
    messages: Vec<WrittenMessage>,
    /// Text of a message that is not complete.
    partial: String,
    model: Option<String>,
    context_source: ContextSource,
    /// The engine's own conversation.
    native: Option<String>,
    claims: Claims,
    /// What of this attempt is counted in the store.
    counted: Counted,
    /// What the engine says that this attempt has used.
    used: Option<EngineUsage>,
    /// How the engine says that the turn has ended.
    done: Option<TurnDone>,
    /// Where each message that the engine has stands in the order of consumption.
    places: Vec<i64>,
    /// The stored message that asked for the tools that run.
    calling: Option<MessageId>,
}

/// Model calls and what they used.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    iterations: i64,
    usage: Usage,
}

/// What became of an event.
pub(crate) enum Taken {
    /// The turn goes on.
    More,
    /// The engine asked for something.
    Asked(String, roundhouse_engines::contract::Asked),
    /// The engine does not want to know any more what it asked for.
    Withdrawn,
    /// The turn has ended.
    End(TurnOutcome),
}

impl<'a> Progress<'a> {
    pub(crate) fn new(turn: Turn<'a>, opened: &Opened) -> Self {
        let Turn { worker, run, outbox, mail, .. } = turn;
        let mut progress = Self {
            worker,
            run,
            outbox,
            mail,
            scope: Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() },
            messages: Vec::new(),
            partial: String::new(),
            model: mail.model.clone(),
            context_source: opened.source,
            native: opened.spec.native_session.clone(),
            claims: Claims::of(&mail.jobs),
            counted: Counted::default(),
            used: None,
            done: None,
            places: opened.places.clone(),
            calling: None,
        };
        if opened.intake == Intake::Boundaries {
            // They are in its context.
            progress.has_reached(&mail.jobs.iter().map(|job| job.job.to_string()).collect::<Vec<_>>());
        }
        progress
    }

    fn tell(&self, kind: EventKind) {
        self.outbox.push(Standing::Running, self.scope, kind);
    }

    /// The stored message in which the tools were called that run now.
    pub(crate) const fn calling(&self) -> Option<MessageId> {
        self.calling
    }

    /// Takes in an event. What has to be kept is stored before this returns, and so before the engine goes on.
    pub(crate) async fn take(
        &mut self,
        engine: &mut dyn EngineSession,
        event: EngineEvent,
    ) -> Result<Taken, StoreError> {
        match event {
            EngineEvent::Delta(text) => {
                self.partial.push_str(&text);
                self.tell(EventKind::MessageDelta { text });
            }
            EngineEvent::ThinkingDelta(text) => self.tell(EventKind::ThinkingDelta { text }),
            EngineEvent::Retry { attempt, delay, status } => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                // Its attempt is the provider's, not the turn's.
                let scope = Scope { attempt: None, ..self.scope };
                self.outbox.push(
                    Standing::Running,
                    scope,
                    EventKind::EngineRetry { attempt, delay_ms, status },
                );
            }
            EngineEvent::MessageDone(message) => self.message(message).await?,
            EngineEvent::ToolStarted(call) => {
                let input = translate::arguments(&call.arguments);
                self.tell(EventKind::ToolStarted { tool_call_id: call.id, name: call.name, input });
            }
            EngineEvent::ToolOutput { id, text } => {
                self.tell(EventKind::ToolOutput { tool_call_id: id, text });
            }
            EngineEvent::ToolDone { id, name, success, result, anchor } => {
                let written = translate::tool_result(&id, &result, anchor, self.native.as_deref());
                self.store(vec![written]).await?;
                self.tell(EventKind::ToolCompleted { tool_call_id: id, name, success, result });
            }
            EngineEvent::Delivered(ids) => self.delivered(&ids).await?,
            EngineEvent::Autonomous(message) => {
                let written = translate::written(message, self.native.as_deref());
                let run = self.run;
                // A turn that was cut off has been under way before.
                let ahead = !self.mail.continued && !self.claims.any_delivered();
                let message = persist_once(self.worker, run, None, |store| {
                    let written = &written;
                    async move { store.autonomous(&run.lease, written, ahead).await }
                })
                .await?;
                let scope = Scope { turn: message.turn, message: Some(message.id), ..Scope::default() };
                let message = Box::new(message.into());
                self.outbox.push(Standing::Fact, scope, EventKind::MessageCompleted { message });
            }
            EngineEvent::Withdrawn { .. } => return Ok(Taken::Withdrawn),
            EngineEvent::Boundary => self.boundary(engine).await?,
            EngineEvent::Compacted { summary, replaced, usage } => {
                self.compacted(&summary, replaced, usage).await?;
            }
            EngineEvent::Refused { at, opaque } => self.refused(at, &opaque).await?,
            EngineEvent::Spent(usage) => self.spent(usage).await?,
            EngineEvent::Asked { id, asked } => return Ok(Taken::Asked(id, asked)),
            EngineEvent::Used(usage) => self.used = Some(usage),
            EngineEvent::TurnDone(done) => {
                self.used = Some(done.usage);
                self.done = Some(done);
                return Ok(Taken::End(TurnOutcome::Answered));
            }
            EngineEvent::Interrupted => return Ok(Taken::End(TurnOutcome::Cancelled)),
            EngineEvent::Failed(error) => return Ok(Taken::End(failed(&error))),
        }
        Ok(Taken::More)
    }

    async fn message(&mut self, message: AssistantMessage) -> Result<(), StoreError> {
        self.partial.clear();
        self.model = message.model.clone().or(self.model.take());
        let calls_tools = !message.tool_calls.is_empty();
        let written = translate::written(message, self.native.as_deref());
        // What came before another message is not the answer.
        let earlier = std::mem::take(&mut self.messages);
        if !earlier.is_empty() {
            self.store(earlier).await?;
        }
        if calls_tools {
            self.store(vec![written]).await
        } else {
            self.messages.push(written);
            Ok(())
        }
    }

    async fn store(&mut self, written: Vec<WrittenMessage>) -> Result<(), StoreError> {
        let (run, turn) = (self.run, self.mail.turn);
        let stored = persist_once(self.worker, run, None, |store| {
            let written = &written;
            async move { store.append(&run.lease, turn, written).await }
        })
        .await?;
        for message in stored {
            if message.role == Role::Assistant {
                self.counted.add(message.usage.unwrap_or_default());
            }
            self.places.push(message.seq);
            if message.tool_calls.is_some() {
                self.calling = Some(message.id);
            }
            let scope = Scope { message: Some(message.id), ..self.scope };
            let message = Box::new(message.into());
            self.outbox.push(Standing::Fact, scope, EventKind::MessageCompleted { message });
        }
        Ok(())
    }

    /// Between two steps: what was sent meanwhile goes to the model with the next one.
    async fn boundary(&mut self, engine: &mut dyn EngineSession) -> Result<(), StoreError> {
        let (run, turn) = (self.run, self.mail.turn);
        let drained = persist_once(self.worker, run, None, |store| async move {
            store.drain_more(&run.lease, turn, Meanwhile::Boundary).await
        })
        .await?;
        for Together { jobs, consumed_seq } in &drained {
            self.places.push(*consumed_seq);
            self.claims.add(jobs);
            self.has_reached(&jobs.iter().map(|job| job.job.to_string()).collect::<Vec<_>>());
        }
        engine.proceed(drained.iter().map(|group| translate::together(&group.jobs)).collect()).await;
        Ok(())
    }

    /// Hands on what was sent meanwhile to an engine that decides itself when the model has it. What waits there at the
    /// turn's end is the next turn, and no more than can be.
    pub(crate) async fn inject(&mut self, engine: &mut dyn EngineSession) -> Result<(), StoreError> {
        let (run, turn) = (self.run, self.mail.turn);
        let to = Meanwhile::AnyTime { room: MOST_MERGED.saturating_sub(self.claims.waiting()) };
        let drained = persist_once(self.worker, run, None, |store| async move {
            store.drain_more(&run.lease, turn, to).await
        })
        .await?;
        for Together { jobs, .. } in &drained {
            self.claims.add(jobs);
            for job in jobs {
                if engine.inject(translate::input(job)).await == Injected::NotNow {
                    tracing::debug!(job.id = %job.job, "the engine does not take this now");
                }
            }
        }
        Ok(())
    }

    /// The engine shows that the model has these.
    async fn delivered(&mut self, ids: &[String]) -> Result<(), StoreError> {
        let jobs = self.has_reached(ids);
        // What a turn begins with has its place in the conversation already.
        if !self.mail.unsent.is_empty() || jobs.iter().any(|job| !self.claims.is_first(*job)) {
            let (store, run, turn) = (&self.worker.store, self.run, self.mail.turn);
            persist(run, || store.delivered(&run.lease, turn, &jobs)).await?;
        }
        Ok(())
    }

    fn has_reached(&mut self, ids: &[String]) -> Vec<JobId> {
        let fresh = self.claims.deliver(ids);
        for &(job, kind) in fresh.iter().filter(|(job, _)| !self.claims.is_first(*job)) {
            let scope = Scope { job: Some(job), ..self.scope };
            self.outbox.push(Standing::Running, scope, EventKind::JobStarted { kind });
        }
        let injected = fresh.iter().filter(|(_, kind)| *kind == JobKind::Inject).map(|(job, _)| *job);
        let merged: Vec<_> = injected.collect();
        for job in &merged {
            let scope = Scope { job: Some(*job), ..self.scope };
            let delivered = EventKind::InjectionDelivered { merged: merged.clone() };
            self.outbox.push(Standing::Running, scope, delivered);
        }
        fresh.into_iter().map(|(job, _)| job).collect()
    }

    async fn compacted(
        &mut self,
        summary: &str,
        replaced: usize,
        usage: EngineUsage,
    ) -> Result<(), StoreError> {
        let (store, run, turn) = (&self.worker.store, self.run, self.mail.turn);
        // Otherwise the engine keeps the summary itself.
        if let Some(&up_to) = replaced.checked_sub(1).and_then(|last| self.places.get(last)) {
            let usage = translate::usage(usage);
            persist_once(self.worker, run, None, |store| async move {
                store.compact(&run.lease, turn, summary, up_to, usage).await
            })
            .await?;
            // A call that summarises is no iteration.
            self.counted.usage.add(usage);
            self.places.splice(..replaced, [up_to]);
        }
        let session = persist(run, || store.session(run.lease.session)).await?;
        let compact_size = session.map_or(0, |session| session.compact_size);
        self.tell(EventKind::ContextCompacted { reason: "context_window", compact_size });
        Ok(())
    }

    /// The provider refuses to read a message of the context: the next turn goes without it.
    async fn refused(&self, at: usize, opaque: &serde_json::Value) -> Result<(), StoreError> {
        let (store, run, turn) = (&self.worker.store, self.run, self.mail.turn);
        if let Some(&place) = self.places.get(at) {
            persist(run, || store.record_opaque(&run.lease, turn, place, opaque)).await?;
        }
        Ok(())
    }

    /// A model call was for nothing. It is counted at once: the turn may fail, or go on elsewhere.
    async fn spent(&mut self, usage: EngineUsage) -> Result<(), StoreError> {
        let (run, turn) = (self.run, self.mail.turn);
        let usage = translate::usage(usage);
        persist_once(
            self.worker,
            run,
            None,
            |store| async move { store.spend(&run.lease, turn, usage).await },
        )
        .await?;
        self.counted.usage.add(usage);
        Ok(())
    }

    /// The turn's end, with what is not stored yet. Text that was cut off by a cancel or a failure is kept.
    pub(crate) fn end(&mut self, outcome: TurnOutcome) -> TurnEnd {
        if !matches!(outcome, TurnOutcome::Answered) && !self.partial.trim().is_empty() {
            let content = std::mem::take(&mut self.partial);
            let (model, failed) = (self.model.clone(), matches!(outcome, TurnOutcome::Failed(_)));
            self.messages.push(WrittenMessage { content, model, failed, ..WrittenMessage::default() });
        }
        let messages = std::mem::take(&mut self.messages);
        let answered = self.done.as_ref().map_or(&[][..], |done| &done.answered);
        let undelivered = self.claims.undelivered(&outcome, answered);
        let Counted { iterations, usage } = self.uncounted(&messages);
        TurnEnd {
            turn: self.mail.turn,
            outcome,
            iterations,
            usage,
            messages,
            model: self.model.clone(),
            context_source: self.context_source,
            undelivered,
        }
    }

    /// What this attempt has used beyond what is counted. The engine knows best, where it has said it.
    fn uncounted(&self, messages: &[WrittenMessage]) -> Counted {
        let mut rest = Counted::default();
        for message in messages {
            rest.add(message.usage);
        }
        if let Some(done) = &self.done {
            rest.iterations = i64::from(done.iterations) - self.counted.iterations;
        }
        if let Some(used) = self.used {
            let (all, counted) = (translate::usage(used), self.counted.usage);
            rest.usage = Usage {
                input_tokens: all.input_tokens - counted.input_tokens,
                output_tokens: all.output_tokens - counted.output_tokens,
                cache_tokens: all.cache_tokens - counted.cache_tokens,
                cost_nanos: all.cost_nanos.map(|cost| cost - counted.cost_nanos.unwrap_or_default()),
            };
        }
        rest
    }
}

impl Counted {
    fn add(&mut self, usage: Usage) {
        self.iterations += 1;
        self.usage.add(usage);
    }
}

fn failed(error: &EngineError) -> TurnOutcome {
    TurnOutcome::Failed(translate::problem(error))
}
