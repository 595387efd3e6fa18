//! What a turn has brought so far: events are told, messages stored, both in order.

use std::sync::Arc;

use roundhouse_engines::contract::{
    AssistantMessage, EngineError, EngineEvent, EngineSession, Usage as EngineUsage,
};
use roundhouse_shared::domain::{ContextSource, EventKind, JobKind, MessageId, Scope, Usage};
use roundhouse_shared::store::{
    ContextEntry, Mail, StoreError, Together, TurnEnd, TurnOutcome, WrittenMessage,
};

use crate::outbox::{Outbox, Standing};
use crate::registry::Run;
use crate::session::persist;
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
    /// Where each message that the engine has stands in the order of consumption.
    places: Vec<i64>,
    /// The stored message that asked for the tools that run.
    calling: Option<MessageId>,
}

/// What became of an event.
pub(crate) enum Taken {
    /// The turn goes on.
    More,
    /// The engine asked for something.
    Asked(String, roundhouse_engines::contract::Asked),
    /// The turn has ended.
    End(TurnOutcome),
}

impl<'a> Progress<'a> {
    pub(crate) fn new(
        worker: &'a Arc<Worker>,
        run: &'a Run,
        outbox: &'a Outbox,
        mail: &'a Mail,
        context: &[ContextEntry],
    ) -> Self {
        // A turn that is alone in its context remembers nothing.
        let alone = context.len() <= 1;
        Self {
            worker,
            run,
            outbox,
            mail,
            scope: Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() },
            messages: Vec::new(),
            partial: String::new(),
            model: mail.model.clone(),
            context_source: if alone { ContextSource::Empty } else { ContextSource::Replay },
            places: context.iter().map(|entry| entry.consumed_seq).collect(),
            calling: None,
        }
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
            EngineEvent::ToolDone { id, name, success, result } => {
                self.store(vec![translate::tool_result(&id, &result)]).await?;
                self.tell(EventKind::ToolCompleted { tool_call_id: id, name, success, result });
            }
            // Said by engines that this worker does not run yet.
            EngineEvent::Delivered(_) | EngineEvent::Autonomous(_) | EngineEvent::Withdrawn { .. } => {}
            EngineEvent::Boundary => self.boundary(engine).await?,
            EngineEvent::Compacted { summary, replaced, usage } => {
                self.compacted(&summary, replaced, usage).await?;
            }
            EngineEvent::Asked { id, asked } => return Ok(Taken::Asked(id, asked)),
            EngineEvent::TurnDone(_) => return Ok(Taken::End(TurnOutcome::Answered)),
            EngineEvent::Interrupted => return Ok(Taken::End(TurnOutcome::Cancelled)),
            EngineEvent::Failed(error) => return Ok(Taken::End(failed(&error))),
        }
        Ok(Taken::More)
    }

    async fn message(&mut self, message: AssistantMessage) -> Result<(), StoreError> {
        self.partial.clear();
        self.model = message.model.clone().or(self.model.take());
        let calls_tools = !message.tool_calls.is_empty();
        let written = translate::written(message);
        if calls_tools {
            self.store(vec![written]).await
        } else {
            self.messages.push(written);
            Ok(())
        }
    }

    async fn store(&mut self, written: Vec<WrittenMessage>) -> Result<(), StoreError> {
        let (store, run, turn) = (&self.worker.store, self.run, self.mail.turn);
        for message in persist(run, || store.append(&run.lease, turn, &written)).await? {
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
        let (store, run, turn) = (&self.worker.store, self.run, self.mail.turn);
        let groups = persist(run, || store.drain_more(&run.lease, turn)).await?;
        for Together { jobs, consumed_seq } in &groups {
            self.places.push(*consumed_seq);
            let merged: Vec<_> = jobs.iter().map(|job| job.job).collect();
            for job in jobs {
                let scope = Scope { job: Some(job.job), ..self.scope };
                self.outbox.push(Standing::Running, scope, EventKind::JobStarted { kind: job.kind });
                if job.kind == JobKind::Inject {
                    let delivered = EventKind::InjectionDelivered { merged: merged.clone() };
                    self.outbox.push(Standing::Running, scope, delivered);
                }
            }
        }
        engine.proceed(groups.iter().map(|group| translate::together(&group.jobs)).collect()).await;
        Ok(())
    }

    async fn compacted(
        &mut self,
        summary: &str,
        replaced: usize,
        usage: EngineUsage,
    ) -> Result<(), StoreError> {
        let Some(&up_to) = replaced.checked_sub(1).and_then(|last| self.places.get(last)) else {
            return Ok(());
        };
        let (store, run, turn) = (&self.worker.store, self.run, self.mail.turn);
        let usage = translate::usage(usage);
        persist(run, || store.compact(&run.lease, turn, summary, up_to, usage)).await?;
        self.places.splice(..replaced, [up_to]);
        let session = persist(run, || store.session(run.lease.session)).await?;
        let compact_size = session.map_or(0, |session| session.compact_size);
        self.tell(EventKind::ContextCompacted { reason: "context_window", compact_size });
        Ok(())
    }

    /// The turn's end, with what is not stored yet. Text that was cut off by a cancel is kept.
    pub(crate) fn end(&mut self, outcome: TurnOutcome) -> TurnEnd {
        if matches!(outcome, TurnOutcome::Cancelled) && !self.partial.is_empty() {
            let content = std::mem::take(&mut self.partial);
            let model = self.model.clone();
            self.messages.push(WrittenMessage { content, model, ..WrittenMessage::default() });
        }
        let messages = std::mem::take(&mut self.messages);
        TurnEnd {
            turn: self.mail.turn,
            outcome,
            iterations: i64::try_from(messages.len()).unwrap_or(i64::MAX),
            usage: messages.iter().map(|message| message.usage).reduce(sum).unwrap_or_default(),
            messages,
            model: self.model.clone(),
            context_source: self.context_source,
            native_session: self.mail.native_session.clone(),
        }
    }
}

fn sum(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens + b.input_tokens,
        output_tokens: a.output_tokens + b.output_tokens,
        cache_tokens: a.cache_tokens + b.cache_tokens,
        cost_nanos: match (a.cost_nanos, b.cost_nanos) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        },
    }
}

fn failed(error: &EngineError) -> TurnOutcome {
    TurnOutcome::Failed(translate::problem(error))
}
