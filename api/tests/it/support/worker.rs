//! A worker that does as it is told: it begins, publishes and finishes like the real one.

use roundhouse_shared::bus::{Bus, Notice, Numbering};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    AgentStatus, ContextSource, EngineKind, EventKind, InteractionId, InteractionKind, Lease, NewEvent,
    Scope, TurnId, Usage, Worker, WorkerId,
};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{
    Mail, NewInteraction, Next, Outcome, Store, TurnEnd, TurnOutcome, WrittenMessage,
};

use super::{Api, agent};

/// A worker as it registers.
pub(crate) fn announced(worker: WorkerId) -> Worker {
    let status =
        AgentStatus { agent: agent("helper"), available: true, reason: None, left_out_tools: Vec::new() };
    Worker {
        id: worker,
        host: "host".to_owned(),
        pid: 4711,
        version: "1.2.3".to_owned(),
        slots: 3,
        agents: vec![status],
        stopping: false,
        started_ms: 0,
        seen_ms: 0,
        expires_ms: 0,
        leases: Vec::new(),
    }
}

/// A turn that a worker runs.
pub(crate) struct Turn {
    store: Store,
    bus: Bus,
    lease: Lease,
    pub(crate) mail: Mail,
}

impl Turn {
    pub(crate) async fn new(api: &Api, lease: Lease, mail: Mail) -> Self {
        let turn = Self { store: api.store.clone(), bus: api.bus.clone(), lease, mail };
        turn.tell_start().await;
        turn
    }

    async fn tell_start(&self) {
        let turn = Some(self.mail.turn);
        let mut events = Vec::new();
        for job in &self.mail.jobs {
            let scope = Scope { job: Some(job.job), turn, ..Scope::default() };
            events.push((scope, EventKind::JobStarted { kind: job.kind }));
        }
        let scope = Scope { turn, ..Scope::default() };
        events.push((scope, EventKind::TurnStarted { engine: EngineKind::OpenAi, model: None }));
        self.publish(events).await;
    }

    async fn publish(&self, events: Vec<(Scope, EventKind)>) {
        let session = self.lease.session;
        let events: Vec<_> =
            events.iter().map(|(scope, kind)| NewEvent::new(session, 0, *scope, kind)).collect();
        let _ = self.bus.publish(session, Some(self.lease.token), Numbering::Continue, &events).await;
    }

    pub(crate) async fn delta(&self, text: &str) {
        let scope = Scope { turn: Some(self.mail.turn), ..Scope::default() };
        self.publish(vec![(scope, EventKind::MessageDelta { text: text.to_owned() })]).await;
    }

    /// Asks whether a tool may be called.
    pub(crate) async fn ask(&self, payload: serde_json::Value) -> InteractionId {
        let new = NewInteraction {
            turn: self.mail.turn,
            kind: InteractionKind::Permission,
            payload,
            open_ms: 60_000,
        };
        self.store.ask(&self.lease, new).await.unwrap().id
    }

    pub(crate) async fn answer(self, text: &str) -> Option<Self> {
        self.end(TurnOutcome::Answered, Some(text)).await
    }

    /// Answers and tells nobody, as a worker that dies at this moment.
    pub(crate) async fn answer_silently(self, text: &str) {
        let end = end_of(self.mail.turn, TurnOutcome::Answered, Some(text));
        self.store.finish(&self.lease, end).await.unwrap();
    }

    pub(crate) async fn fail(self, code: Code, detail: &str) {
        self.end(TurnOutcome::Failed(Problem::with_detail(code, detail)), None).await;
    }

    pub(crate) async fn cancel(self) {
        self.end(TurnOutcome::Cancelled, None).await;
    }

    /// Ends the turn and tells of it as a worker does; returns the next turn where there is more mail.
    async fn end(mut self, outcome: TurnOutcome, text: Option<&str>) -> Option<Self> {
        let turn = self.mail.turn;
        let end = end_of(turn, outcome, text);
        let finished = self.store.finish(&self.lease, end).await.unwrap();
        let of_turn = Scope { turn: Some(turn), ..Scope::default() };
        let mut events = vec![match finished.outcome {
            TurnOutcome::Failed(problem) => (of_turn, EventKind::TurnFailed { problem }),
            _ => (of_turn, EventKind::TurnCompleted { usage: Usage::default().into(), iterations: 1 }),
        }];
        for ended in &finished.ended {
            if let Outcome::Answered(result) = &ended.outcome {
                let scope = Scope { job: Some(ended.job), ..of_turn };
                if result.cancelled {
                    events.push((scope, EventKind::JobCancelled { kind: ended.kind }));
                }
                events.push((scope, EventKind::ChatResponse(result.clone())));
            }
        }
        self.publish(events).await;
        let session = self.lease.session;
        let notices: Vec<_> = finished.ended.iter().map(|ended| Notice::Ended(session, ended.job)).collect();
        self.bus.notify(&notices).await;
        let mail = match finished.next {
            Next::Turn => self.store.drain(&self.lease).await.unwrap()?,
            Next::Idle => return None,
        };
        self.mail = mail;
        self.tell_start().await;
        Some(self)
    }
}

fn end_of(turn: TurnId, outcome: TurnOutcome, text: Option<&str>) -> TurnEnd {
    TurnEnd {
        turn,
        outcome,
        messages: text
            .map(|text| WrittenMessage { content: text.to_owned(), ..WrittenMessage::default() })
            .into_iter()
            .collect(),
        model: Some("oracle".to_owned()),
        iterations: 1,
        usage: Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() },
        context_source: ContextSource::Replay,
        undelivered: Vec::new(),
    }
}
