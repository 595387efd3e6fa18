//! The stream of one request: the events of its job, ended by exactly one `done` or `error`.
//!
//! Events come from the bus and may be missing; the end comes from the store and is not.

use std::collections::VecDeque;
use std::time::Duration;

use axum::response::sse::Event as Frame;
use roundhouse_shared::bus::{Follow, Followed};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Event, EventKind, EventName, JobKind, NewEvent, Scope, TurnId};
use roundhouse_shared::store::Outcome;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::accept::{Accepted, is_consumed};
use crate::app::Shared;
use crate::problem::ApiProblem;
use crate::request::Context;
use crate::sse;

/// How long the last events of an answered job are waited for.
const DRAIN: Duration = Duration::from_secs(1);
/// How long `job.accepted` is waited for before the stream says it by itself.
const ACCEPT: Duration = Duration::from_secs(2);
/// As good as never.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// One request's stream.
pub(crate) struct RequestStream {
    app: Shared,
    context: Context,
    accepted: Accepted,
    follow: Follow,
    /// The turn that took the job, once it is known.
    turn: Option<TurnId>,
    /// Whether `job.accepted` was sent: it comes first, and once.
    told_accepted: bool,
    /// Whether the bus has had the end of the job.
    seen_end: bool,
    ready: VecDeque<Frame>,
    phase: Phase,
    accept_by: Instant,
    answer_by: Instant,
}

enum Phase {
    /// The job has no answer that we know of.
    Open,
    /// It has: what the bus still has of it goes first, until then.
    Draining(Outcome, Instant),
    Over,
}

impl RequestStream {
    /// The stream of a job that was just accepted. `follow` was begun before, on the session that was meant; `None`
    /// where that is another than the job's.
    pub(crate) async fn open(
        app: Shared,
        context: Context,
        accepted: Accepted,
        follow: Option<Follow>,
    ) -> Self {
        let follow = match follow {
            Some(follow) => follow,
            None => app.bus.follow(accepted.session, None).await,
        };
        let now = Instant::now();
        let patience = match accepted.kind {
            JobKind::Inject => app.limits.injection_timeout.0,
            _ => NEVER,
        };
        let mut stream = Self {
            app,
            context,
            accepted,
            follow,
            turn: None,
            told_accepted: false,
            seen_end: false,
            ready: VecDeque::new(),
            phase: Phase::Open,
            accept_by: now + ACCEPT,
            answer_by: now + patience,
        };
        if stream.accepted.replayed {
            stream.tell_accepted();
            if let Some(outcome) = stream.accepted.waiting.look(&stream.app.store).await {
                // Long told: the bus has nothing more to say.
                stream.end(outcome);
            } else {
                stream.learn_turn().await;
            }
        }
        stream
    }

    async fn open_step(&mut self) {
        tokio::select! {
            biased;
            () = self.app.lifecycle.hard().cancelled() => self.leave(),
            followed = self.follow.next() => self.take(followed).await,
            outcome = self.accepted.waiting.outcome() => {
                self.tell_accepted();
                self.phase = Phase::Draining(outcome, Instant::now() + DRAIN);
            }
            heard = heard(&mut self.accepted.announced) => {
                self.accepted.announced = None;
                if !heard {
                    self.tell_accepted();
                }
            }
            () = tokio::time::sleep_until(self.accept_by), if !self.told_accepted => self.tell_accepted(),
            () = tokio::time::sleep_until(self.answer_by) => self.give_up().await,
        }
    }

    async fn drain_step(&mut self, until: Instant) {
        if !self.seen_end
            && let Ok(followed) = tokio::time::timeout_at(until, self.follow.next()).await
        {
            self.take(followed).await;
            return;
        }
        if let Phase::Draining(outcome, _) = std::mem::replace(&mut self.phase, Phase::Over) {
            self.end(outcome);
        }
    }

    async fn take(&mut self, followed: Followed) {
        match followed {
            Followed::Event(event) => self.take_event(&event),
            Followed::Gap => {
                self.tell_accepted();
                let resync = sse::resync(&self.app.store, self.accepted.session).await;
                self.ready.push_back(resync);
                // What was missed may be the start of our turn.
                self.learn_turn().await;
            }
        }
    }

    fn take_event(&mut self, event: &Event) {
        let ours = event.job == Some(self.accepted.job);
        if ours && event.name == EventName::JobStarted {
            self.turn = event.turn;
        }
        // What the turn says to other jobs that it took is for their own streams.
        let of_turn = event.job.is_none() && self.turn.is_some() && event.turn == self.turn;
        if !ours && !of_turn {
            return;
        }
        match event.name {
            EventName::JobAccepted if self.told_accepted => return,
            EventName::JobAccepted => self.told_accepted = true,
            EventName::ChatResponse => {
                self.seen_end = true;
                return;
            }
            EventName::TurnFailed | EventName::JobCancelled => self.seen_end = true,
            _ => {}
        }
        self.tell_accepted();
        self.ready.push_back(sse::frame(event));
    }

    /// Says `job.accepted` where nobody has yet.
    fn tell_accepted(&mut self) {
        if std::mem::replace(&mut self.told_accepted, true) {
            return;
        }
        let Accepted { job, session, kind, .. } = self.accepted;
        let scope = Scope { job: Some(job), ..Scope::default() };
        let kind = EventKind::JobAccepted { kind };
        let event = NewEvent::new(session, roundhouse_shared::clock::now_ms(), scope, &kind);
        self.ready.push_back(Frame::default().event(event.name.as_str()).data(event.data));
    }

    /// Asks the row for the turn. Where the store is away, a later event may still tell.
    async fn learn_turn(&mut self) {
        if let Ok(Some(job)) = self.app.store.job(self.accepted.job).await {
            self.turn = job.turn.or(self.turn);
        }
    }

    async fn give_up(&mut self) {
        let last = self.accepted.waiting.look(&self.app.store).await;
        if last.is_none() && is_consumed(&self.app, self.accepted.job).await {
            self.answer_by = Instant::now() + NEVER;
            return;
        }
        let timeout = || Outcome::Failed(ApiProblem::new(Code::InjectionTimeout).problem);
        self.end(last.unwrap_or_else(timeout));
    }

    fn end(&mut self, outcome: Outcome) {
        self.accepted.guard.disarm();
        self.phase = Phase::Over;
        self.ready.push_back(match outcome {
            Outcome::Answered(result) => sse::own_frame(EventName::Done, &result),
            Outcome::Cut(result) => sse::own_frame(EventName::Done, &result),
            Outcome::Cancelled => {
                let problem = ApiProblem::new(Code::Internal).about(self.accepted.session, self.accepted.job);
                sse::own_frame(EventName::Error, &problem.body(&self.context))
            }
            Outcome::Failed(problem) => {
                let problem = ApiProblem::from(problem).about(self.accepted.session, self.accepted.job);
                sse::own_frame(EventName::Error, &problem.body(&self.context))
            }
        });
    }

    /// The process stops: the client has to come back for the answer.
    fn leave(&mut self) {
        self.accepted.guard.disarm();
        self.phase = Phase::Over;
    }
}

/// Whether listeners heard of the job, once that is known.
async fn heard(announced: &mut Option<oneshot::Receiver<bool>>) -> bool {
    match announced {
        Some(told) => told.await.unwrap_or(false),
        None => std::future::pending().await,
    }
}

impl sse::Source for RequestStream {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            match self.phase {
                Phase::Open => self.open_step().await,
                Phase::Draining(_, until) => self.drain_step(until).await,
                Phase::Over => return None,
            }
        }
    }
}
