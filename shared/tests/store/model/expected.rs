//! The design in memory: what a session and its mailbox must be after each step.

use std::collections::HashMap;

use roundhouse_shared::domain::{
    JobId, JobKind, JobState, Lane, OnBusy, SessionStatus, TurnId, Usage, WorkerId,
};
use roundhouse_shared::store::Next;

/// A session.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) jobs: Vec<Work>,
    pub(super) lease: Option<Held>,
    pub(super) last_token: i64,
    pub(super) messages: i64,
    pub(super) usage: Usage,
    /// What each turn used.
    pub(super) used: HashMap<TurnId, Usage>,
    /// Tool calls without a result.
    open_calls: HashMap<TurnId, i64>,
    cancelled: Option<TurnId>,
    attempts: HashMap<TurnId, i64>,
    failed: bool,
    /// How many messages there were when the last cut was admitted.
    cut_from: i64,
}

/// A job, in the order of arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) id: JobId,
    pub(super) kind: JobKind,
    pub(super) state: JobState,
    pub(super) turn: Option<TurnId>,
    pub(super) attempt: i64,
}

/// A lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) token: i64,
    pub(super) worker: WorkerId,
    /// Whether its worker was not declared dead.
    pub(super) alive: bool,
    pub(super) turn: Option<TurnId>,
}

/// What a cancel does: the turn that it flags, and the jobs that it ends.
pub(super) type Cancel = (Option<TurnId>, Vec<JobId>);

impl Expected {
    fn has(&self, states: &[JobState]) -> bool {
        self.jobs.iter().any(|job| states.contains(&job.state))
    }

    pub(super) fn status(&self) -> SessionStatus {
        match self.lease {
            Some(Held { turn: Some(_), .. }) => SessionStatus::Running,
            _ if self.has(&[JobState::Pending, JobState::Claimed]) => SessionStatus::Queued,
            _ if self.failed => SessionStatus::Error,
            _ => SessionStatus::Idle,
        }
    }

    /// The job that a bell rings for.
    pub(super) fn head(&self) -> Option<JobId> {
        self.pending().first().map(|job| job.id)
    }

    pub(super) fn is_busy(&self) -> bool {
        let alive = self.lease.is_some_and(|lease| lease.alive);
        alive || self.has(&[JobState::Pending, JobState::Claimed])
    }

    pub(super) fn admit_cut(&mut self, id: JobId, kind: JobKind) {
        assert!(!self.is_busy());
        self.cut_from = self.messages;
        self.jobs.push(Work { id, kind, state: JobState::Pending, turn: None, attempt: 0 });
    }

    /// The cut at the head, which goes to whoever has the lease.
    pub(super) fn claim_cut(&mut self) {
        let head = self.jobs.iter_mut().find(|job| job.state == JobState::Pending).unwrap();
        (head.state, head.attempt) = (JobState::Claimed, head.attempt + 1);
    }

    /// The cut's end, with which the lease goes; returns what it was, and how many messages it found.
    pub(super) fn finish_cut(&mut self, fails: bool) -> (JobKind, i64) {
        let cut = self.jobs.iter_mut().find(|job| job.state == JobState::Claimed).unwrap();
        cut.state = if fails { JobState::Failed } else { JobState::Succeeded };
        let kind = cut.kind;
        if kind == JobKind::Reset && !fails {
            self.messages -= self.cut_from;
            self.usage = Usage::default();
            self.failed = false;
        }
        self.lease = None;
        (kind, self.cut_from)
    }

    /// `None`: refused.
    pub(super) fn admit(&mut self, id: JobId, on_busy: OnBusy) -> Option<(JobKind, Option<Cancel>)> {
        let busy = self.is_busy();
        let (kind, interrupted) = match on_busy {
            OnBusy::Reject if busy => return None,
            OnBusy::Inject if busy => (JobKind::Inject, None),
            OnBusy::Interrupt if busy => (JobKind::Chat, Some(self.cancel(false))),
            _ => (JobKind::Chat, None),
        };
        self.messages += 1;
        self.jobs.push(Work { id, kind, state: JobState::Pending, turn: None, attempt: 0 });
        Some((kind, interrupted))
    }

    /// What a session does now, whereby a message that interrupts leaves its cuts alone.
    pub(super) fn cancel(&mut self, and_cuts: bool) -> Cancel {
        let turn = self.lease.and_then(|lease| lease.turn);
        let mut head = !self.has(&[JobState::Claimed]);
        let mut ended = Vec::new();
        let pending: Vec<_> = self.pending().iter().map(|job| job.id).collect();
        for id in pending {
            let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) else { continue };
            let stays = !and_cuts && job.kind.lane() == Lane::Maintenance;
            if (head && !stays) || job.kind == JobKind::Inject {
                job.state = JobState::Cancelled;
                ended.push(job.id);
            }
            head = false;
        }
        self.cancelled = turn.or(self.cancelled);
        (turn, ended)
    }

    pub(super) fn cancel_job(&mut self, n: usize) -> Cancel {
        let claimed = self.jobs.iter().filter(|job| job.state == JobState::Claimed).count();
        let job = &mut self.jobs[n];
        match job.state {
            JobState::Claimed if job.kind == JobKind::Inject && 1 < claimed => (None, Vec::new()),
            JobState::Pending => {
                job.state = JobState::Cancelled;
                (None, vec![job.id])
            }
            JobState::Claimed => {
                self.cancelled = job.turn;
                (job.turn, Vec::new())
            }
            _ => (None, Vec::new()),
        }
    }

    pub(super) fn take_lease(&mut self, worker: WorkerId) {
        self.last_token += 1;
        self.lease = Some(Held { token: self.last_token, worker, alive: true, turn: None });
    }

    pub(super) fn declare_dead(&mut self, worker: WorkerId) {
        if let Some(held) = self.lease.as_mut().filter(|held| held.worker == worker) {
            held.alive = false;
        }
    }

    /// What waits, in order: a turn that was cut off goes on before the rest, also where its first job was cancelled.
    fn pending(&self) -> Vec<&Work> {
        let mut pending: Vec<_> = self.jobs.iter().filter(|job| job.state == JobState::Pending).collect();
        pending.sort_by_key(|job| job.turn.is_none());
        pending
    }

    /// The jobs of the next turn, and the turn where it goes on.
    pub(super) fn next_turn(&self) -> Option<(Option<TurnId>, Vec<JobId>)> {
        let mut pending = self.pending().into_iter().peekable();
        let head = **pending.peek()?;
        let jobs: Vec<_> = match (head.turn, head.kind) {
            (Some(_), _) => pending.filter(|job| job.turn == head.turn).collect(),
            (None, JobKind::Inject) => {
                pending.take_while(|job| job.kind == JobKind::Inject && job.turn.is_none()).collect()
            }
            (None, _) => pending.take(1).collect(),
        };
        Some((head.turn, jobs.iter().map(|job| job.id).collect()))
    }

    /// Claims the next turn; returns which attempt it is.
    pub(super) fn claim(&mut self, turn: TurnId) -> i64 {
        let (_, jobs) = self.next_turn().unwrap();
        for job in self.jobs.iter_mut().filter(|job| jobs.contains(&job.id)) {
            job.state = JobState::Claimed;
            job.turn = Some(turn);
            job.attempt += 1;
        }
        self.lease.as_mut().unwrap().turn = Some(turn);
        self.cancelled = None;
        let attempt = self.attempts.entry(turn).or_default();
        *attempt += 1;
        *attempt
    }

    fn turn(&self) -> Option<TurnId> {
        self.lease.and_then(|lease| lease.turn)
    }

    fn spend(&mut self, used: Usage) {
        let turn = self.turn().unwrap();
        for sum in [&mut self.usage, self.used.entry(turn).or_default()] {
            sum.input_tokens += used.input_tokens;
            sum.output_tokens += used.output_tokens;
            sum.cache_tokens += used.cache_tokens;
            sum.cost_nanos = match (sum.cost_nanos, used.cost_nanos) {
                (None, None) => None,
                (sum, cost) => Some(sum.unwrap_or(0) + cost.unwrap_or(0)),
            };
        }
    }

    /// A call of the running turn, with or without its result.
    pub(super) fn append(&mut self, used: Usage, open: bool) {
        self.messages += if open { 1 } else { 2 };
        *self.open_calls.entry(self.turn().unwrap()).or_default() += i64::from(open);
        self.spend(used);
    }

    /// Every open call gets a result that says why it has none.
    fn close_calls(&mut self) {
        let turn = self.turn();
        self.messages += turn.and_then(|turn| self.open_calls.remove(&turn)).unwrap_or(0);
    }

    /// The jobs that the running turn takes while it works.
    pub(super) fn drain_more(&mut self) -> Vec<JobId> {
        let mut taken = Vec::new();
        if self.cancelled.is_some() {
            return taken;
        }
        let turn = self.turn();
        let injected = |job: &&mut Work| job.state == JobState::Pending && job.kind == JobKind::Inject;
        for job in self.jobs.iter_mut().filter(injected).filter(|job| job.turn.is_none()) {
            (job.state, job.turn, job.attempt) = (JobState::Claimed, turn, job.attempt + 1);
            taken.push(job.id);
        }
        taken
    }

    fn end_claimed(&mut self, state: JobState) -> Vec<JobId> {
        let mut ended = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| job.state == JobState::Claimed) {
            job.state = state;
            ended.push(job.id);
        }
        self.failed = state == JobState::Failed;
        ended
    }

    /// The turn's end; returns what it ended as, the jobs, and what the run does next.
    pub(super) fn finish(&mut self, state: JobState, used: Usage) -> (JobState, Vec<JobId>, Next) {
        let state = if self.cancelled.is_some() { JobState::Cancelled } else { state };
        let ended = self.end_claimed(state);
        self.messages += 1;
        self.spend(used);
        if state != JobState::Succeeded {
            self.close_calls();
        }
        self.cancelled = None;
        if self.has(&[JobState::Pending]) {
            self.lease.as_mut().unwrap().turn = None;
            return (state, ended, Next::Turn);
        }
        self.lease = None;
        (state, ended, Next::Idle)
    }

    /// Takes the session from whoever has it; returns the jobs that end with it.
    pub(super) fn take_back(&mut self, max_attempts: i64) -> Vec<JobId> {
        let mut hopeless = Vec::new();
        let spent = |job: &&mut Work| job.state == JobState::Claimed && job.turn.is_none();
        for cut in self.jobs.iter_mut().filter(spent).filter(|cut| max_attempts <= cut.attempt) {
            cut.state = JobState::Failed;
            hopeless.push(cut.id);
        }
        let turn = self.lease.and_then(|lease| lease.turn);
        let tried = turn.is_some_and(|turn| max_attempts <= self.attempts[&turn]);
        let ended = match (self.cancelled, tried) {
            (Some(_), _) => self.end_claimed(JobState::Cancelled),
            (None, true) => self.end_claimed(JobState::Failed),
            (None, false) => hopeless,
        };
        self.release(0);
        ended
    }

    /// Returns the jobs that end with it.
    pub(super) fn hand_back(&mut self) -> Vec<JobId> {
        let cancelled = self.cancelled.is_some();
        let ended = if cancelled { self.end_claimed(JobState::Cancelled) } else { Vec::new() };
        if let Some(turn) = self.lease.and_then(|lease| lease.turn) {
            *self.attempts.entry(turn).or_default() -= 1;
        }
        self.release(1);
        ended
    }

    fn release(&mut self, refund: i64) {
        self.close_calls();
        for job in self.jobs.iter_mut().filter(|job| job.state == JobState::Claimed) {
            job.state = JobState::Pending;
            job.attempt -= refund;
        }
        self.lease = None;
        self.cancelled = None;
    }
}
