//! The steps, taken by the store and by the model, and compared.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    Cut, JobId, JobKind, JobState, Lease, OnBusy, SessionId, Stored, TurnId, Usage, WorkerId,
};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{
    self, Admission, Beat, Begin, Cancelled, Ended, Mail, Meanwhile, Outcome, Reaped, Store, StoreError,
    TurnEnd, TurnOutcome, WorkEnd, WrittenMessage,
};

use super::expected::{Cancel, Expected};
use super::{End, Step};
use crate::support::*;

/// A session, those who work on it, and all answers that anybody was ever told.
pub(super) struct Simulation<'s> {
    pub(super) store: &'s Store,
    pub(super) session: SessionId,
    /// The worker processes, by what they are known as now.
    pub(super) workers: Vec<WorkerId>,
    /// Those that were declared dead.
    dead: HashSet<WorkerId>,
    pub(super) runs: Vec<Run>,
    pub(super) answers: HashMap<JobId, Outcome>,
    pub(super) expected: Expected,
    spent: i64,
    /// What was published of what the store kept.
    pub(super) told: Vec<Stored>,
}

/// What a worker knows of a run of its own, which may be over without its knowing.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) lease: Lease,
    pub(super) turn: Option<TurnId>,
    ended: Option<TurnId>,
    pub(super) cut: Option<JobId>,
}

impl<'s> Simulation<'s> {
    pub(super) async fn new(store: &'s Store, workers: usize) -> Self {
        let session = session(store).await;
        let mut known = Vec::new();
        for _ in 0..workers {
            known.push(registered(store).await);
        }
        Self {
            store,
            session,
            workers: known,
            dead: HashSet::new(),
            runs: Vec::new(),
            answers: HashMap::new(),
            expected: Expected::default(),
            spent: 0,
            told: Vec::new(),
        }
    }

    pub(super) async fn step(&mut self, step: Step) {
        match step {
            Step::Admit(on_busy) => self.admit(on_busy).await,
            Step::Begin { worker, alive } => self.begin(worker, alive).await,
            Step::Cut(copies) => self.cut(copies).await,
            Step::GoOn { run, end } => match self.run(run) {
                Some((n, Run { cut: Some(cut), .. })) => self.finish_cut(n, cut, end).await,
                Some((n, Run { turn: Some(turn), .. })) => self.finish(n, turn, end).await,
                Some((n, _)) => self.drain(n).await,
                None => {}
            },
            Step::Repeat { run } => self.repeat(run).await,
            Step::Append { run, open } => self.append(run, open).await,
            Step::DrainMore { run } => self.drain_more(run).await,
            Step::Abandon { run, max_attempts } => {
                if let Some((n, _)) = self.run(run) {
                    self.abandon(n, max_attempts).await;
                }
            }
            Step::HandBack { run } => {
                if let Some((n, _)) = self.run(run) {
                    self.hand_back(n).await;
                }
            }
            Step::Beat { worker } => self.beat(worker).await,
            Step::DeclareDead { worker } => self.declare_dead(worker).await,
            Step::Reap { max_attempts } => self.reap(max_attempts).await,
            Step::Publish => self.publish_left_over().await,
            Step::Sweep => self.sweep().await,
            Step::Cancel => {
                let cancelled = self.store.cancel_session(self.session).await.unwrap();
                let expected = self.expected.cancel(true);
                self.assert_cancelled(cancelled, &expected);
            }
            Step::CancelJob { job } => {
                if let Some(work) = self.expected.jobs.get(job) {
                    let (session, cancelled) = self.store.cancel_job(work.id).await.unwrap();
                    assert_eq!(session, self.session);
                    let expected = self.expected.cancel_job(job);
                    self.assert_cancelled(cancelled, &expected);
                }
            }
        }
    }

    /// Neither can a turn end twice, nor can one begin while another runs.
    async fn repeat(&mut self, run: usize) {
        let Some((_, Run { lease, turn, ended, .. })) = self.run(run) else { return };
        if turn.is_some() {
            assert_lost(&self.store.drain(&lease).await);
        }
        if let Some(turn) = ended {
            assert_lost(&self.store.finish(&lease, answered(turn, "again")).await);
        }
    }

    /// A run, counted from the newest.
    pub(super) fn run(&self, back: usize) -> Option<(usize, Run)> {
        let n = self.runs.len().checked_sub(back + 1)?;
        Some((n, self.runs[n]))
    }

    /// Whether a run still has its lease.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        self.expected.lease.is_some_and(|held| held.token == lease.token.0)
    }

    /// Notes answers: nobody is ever told twice.
    fn answered(&mut self, ended: Vec<Ended>, expected: &[JobId]) {
        assert_eq!(ids(&ended), expected);
        for Ended { job, outcome, .. } in ended {
            assert_eq!(self.answers.insert(job, outcome), None, "{job} was answered twice");
        }
    }

    fn assert_cancelled(&mut self, cancelled: Cancelled, expected: &Cancel) {
        assert_eq!(cancelled.turn, expected.0);
        assert!(cancelled.ended.iter().all(|ended| answer(&ended.outcome).1));
        self.answered(cancelled.ended, &expected.1);
    }

    async fn admit(&mut self, on_busy: OnBusy) {
        let admission = Admission { on_busy, ..message(self.session, "hello") };
        let admitted = self.store.admit(&admission).await;
        let Some((kind, interrupted)) = self.expected.admit(admission.job, on_busy) else {
            assert!(matches!(admitted, Err(StoreError::SessionBusy)), "{admitted:?}");
            return;
        };
        let admitted = admitted.unwrap();
        assert_eq!((admitted.job, admitted.kind), (admission.job, kind));
        assert_eq!(admitted.interrupted.is_some(), interrupted.is_some());
        if let (Some(cancelled), Some(expected)) = (admitted.interrupted, interrupted) {
            self.assert_cancelled(cancelled, &expected);
        }
    }

    async fn cut(&mut self, copies: bool) {
        let cut = if copies { Cut::Fork(whole()) } else { Cut::Reset };
        let admitted = try_cut(self.store, self.session, cut.clone()).await;
        match admitted {
            Ok(job) => self.expected.admit_cut(job, cut.kind()),
            Err(StoreError::SessionBusy) => assert!(self.expected.is_busy()),
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(super) async fn finish_cut(&mut self, n: usize, cut: JobId, end: End) {
        let fails = matches!(end, End::Failed);
        let end = if fails { WorkEnd::Failed(Problem::new(Code::EngineForkFailed)) } else { ready() };
        let lease = self.runs[n].lease;
        let once = self.store.once(store::Step::generate().with_entry(1));
        let worked = once.finish_work(&lease, cut, &end).await;
        let again = once.finish_work(&lease, cut, &end).await;
        if !self.holds(&lease) {
            return assert_lost(&worked);
        }
        let worked = worked.unwrap();
        assert_eq!(format!("{:?}", again.unwrap()), format!("{worked:?}"));
        self.leave(worked.stored.as_ref()).await;
        let (kind, before) = self.expected.finish_cut(fails);
        if !fails {
            let result = result_of(&worked);
            assert_eq!(result.deleted, if kind == JobKind::Reset { before } else { 0 });
            let cut = self.store.session(result.session_id).await.unwrap().unwrap();
            let left = if kind == JobKind::Reset { self.expected.messages } else { before };
            assert_eq!(cut.message_count, left);
        }
        assert_eq!(worked.next.map(|next| next.job), self.expected.head());
        self.answered(worked.ended, &[cut]);
        // It may try again, not knowing that its commit went through.
        assert_lost(&self.store.finish_work(&lease, cut, &ready()).await);
    }

    pub(super) async fn begin(&mut self, worker: usize, alive: bool) {
        let id = self.workers[worker];
        let begun = self.store.begin(self.session, id, |_| true).await;
        if self.expected.lease.is_none() && self.dead.contains(&id) {
            return assert_lost(&begun);
        }
        match (begun.unwrap(), self.expected.lease, self.expected.head()) {
            (Begin::Held(holder), Some(held), _) => return assert_eq!(holder, held.worker),
            (Begin::NoMail, None, None) => {}
            (Begin::Started(lease, mail), None, Some(_)) => {
                self.expected.take_lease(id);
                let expected = (self.session, id, self.expected.last_token);
                assert_eq!((lease.session, lease.worker, lease.token.0), expected);
                self.runs.push(Run { lease, turn: Some(mail.turn), ended: None, cut: None });
                self.claimed(&mail);
            }
            (Begin::Maintenance(lease, work), None, Some(head)) => {
                self.expected.take_lease(id);
                assert_eq!(work.job, head);
                self.expected.claim_cut();
                self.runs.push(Run { lease, turn: None, ended: None, cut: Some(head) });
            }
            (begun, lease, head) => panic!("{begun:?} though {lease:?} and {head:?}"),
        }
        if !alive {
            self.declare_dead(worker).await;
        }
    }

    fn claimed(&mut self, mail: &Mail) {
        let (turn, jobs) = self.expected.next_turn().unwrap();
        assert_eq!(jobs_of(mail), jobs);
        assert!(turn.is_none_or(|turn| turn == mail.turn));
        assert_eq!(self.expected.claim(mail.turn), mail.attempt);
    }

    pub(super) async fn drain(&mut self, n: usize) {
        let lease = self.runs[n].lease;
        let once = self.store.once(store::Step::generate());
        let drained = once.drain(&lease).await;
        let again = once.drain(&lease).await;
        if !self.holds(&lease) {
            return assert_lost(&drained);
        }
        let Some(mail) = drained.unwrap() else { return assert_eq!(self.expected.head(), None) };
        assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, StoreError>(Some(mail.clone()))));
        self.runs[n].turn = Some(mail.turn);
        self.claimed(&mail);
    }

    /// What a model call uses: never the same twice.
    fn usage(&mut self) -> Usage {
        self.spent += 1;
        Usage {
            input_tokens: self.spent,
            output_tokens: 100 * self.spent,
            cache_tokens: 10_000 * self.spent,
            cost_nanos: (self.spent % 2 == 0).then_some(7 * self.spent),
        }
    }

    async fn append(&mut self, run: usize, open: bool) {
        let Some((_, Run { lease, turn: Some(turn), .. })) = self.run(run) else { return };
        let usage = self.usage();
        let id = format!("c{}", self.spent);
        let call = WrittenMessage { usage, ..calls("look", &[&id]) };
        let written = if open { vec![call] } else { vec![call, result(&id, "seen")] };
        let once = self.store.once(store::Step::generate());
        let appended = once.append(&lease, turn, &written).await;
        let again = once.append(&lease, turn, &written).await;
        if !self.holds(&lease) {
            return assert_lost(&appended);
        }
        let appended = appended.unwrap();
        assert_eq!(appended.len(), written.len());
        assert_eq!(again.unwrap(), appended);
        self.expected.append(usage, open);
    }

    async fn drain_more(&mut self, run: usize) {
        let Some((_, Run { lease, turn: Some(turn), .. })) = self.run(run) else { return };
        let once = self.store.once(store::Step::generate());
        let taken = once.drain_more(&lease, turn, Meanwhile::Boundary).await;
        let again = once.drain_more(&lease, turn, Meanwhile::Boundary).await;
        if !self.holds(&lease) {
            return assert_lost(&taken);
        }
        let taken: Vec<_> = taken.unwrap().iter().flat_map(|group| &group.jobs).map(|job| job.job).collect();
        assert_eq!(taken, self.expected.drain_more());
        let again: Vec<_> = again.unwrap().iter().flat_map(|group| &group.jobs).map(|job| job.job).collect();
        assert_eq!(again, taken);
    }

    pub(super) async fn finish(&mut self, n: usize, turn: TurnId, end: End) {
        let usage = self.usage();
        let (outcome, state) = match end {
            End::Answered => (TurnOutcome::Answered, JobState::Succeeded),
            End::Failed => (TurnOutcome::Failed(Problem::new(Code::Internal)), JobState::Failed),
            End::Cancelled => (TurnOutcome::Cancelled, JobState::Cancelled),
        };
        let lease = self.runs[n].lease;
        let end = TurnEnd { outcome, usage, ..answered(turn, "ok") };
        let once = self.store.once(store::Step::generate().with_entry(1));
        let finished = once.finish(&lease, end.clone()).await;
        let again = once.finish(&lease, end).await;
        if !self.holds(&lease) {
            return assert_lost(&finished);
        }
        let finished = finished.unwrap();
        assert_eq!(format!("{:?}", again.unwrap()), format!("{finished:?}"));
        self.leave(finished.stored.as_ref()).await;
        let (state, ended, next) = self.expected.finish(state, usage);
        assert_eq!((finished.next, finished.usage), (next, self.expected.used[&turn]));
        let as_expected = match finished.outcome {
            TurnOutcome::Answered => state == JobState::Succeeded,
            TurnOutcome::Failed(_) => state == JobState::Failed,
            TurnOutcome::Cancelled => state == JobState::Cancelled,
        };
        assert!(as_expected, "{state}");
        self.answered(finished.ended, &ended);
        self.runs[n] = Run { lease, turn: None, ended: Some(turn), cut: None };
    }

    async fn hand_back(&mut self, n: usize) {
        let lease = self.runs[n].lease;
        let once = self.store.once(store::Step::generate().with_entry(1));
        let handed_back = once.hand_back(&lease).await;
        let again = once.hand_back(&lease).await;
        if !self.holds(&lease) {
            return assert_lost(&handed_back);
        }
        let ended = self.expected.hand_back();
        let handed_back = handed_back.unwrap();
        assert_eq!(again.unwrap(), handed_back);
        self.leave(handed_back.stored.as_ref()).await;
        assert_eq!(handed_back.next.map(|next| next.job), self.expected.head());
        self.answered(handed_back.ended, &ended);
    }

    pub(super) async fn beat(&mut self, worker: usize) {
        let id = self.workers[worker];
        let renewed = self.store.renew(Beat { worker: id, lease_ms: LONG_MS }).await;
        if self.dead.contains(&id) {
            assert_lost(&renewed);
            self.workers[worker] = registered(self.store).await;
            return;
        }
        renewed.unwrap();
        let held = self.store.held(id).await.unwrap();
        let tokens: Vec<_> = held.iter().map(|lease| (lease.token.0, lease.turn)).collect();
        let expected = self.expected.lease.filter(|held| held.worker == id);
        assert_eq!(tokens, Vec::from_iter(expected.map(|held| (held.token, held.turn))));
    }

    /// A process that is declared dead knows nothing of it: its runs go on until they find their lease gone.
    pub(super) async fn declare_dead(&mut self, worker: usize) {
        let id = self.workers[worker];
        let declared = self.store.declare_dead(id, None).await.unwrap();
        assert_eq!(declared, self.dead.insert(id));
        self.expected.declare_dead(id);
    }

    pub(super) async fn reap(&mut self, max_attempts: i64) {
        let dead = self.expected.lease.is_some_and(|held| !held.alive);
        assert_eq!(self.store.reapable(None, 10).await.unwrap().contains(&self.session), dead);
        let reaped = self.store.reap(self.session, max_attempts).await.unwrap();
        assert_eq!(reaped.is_some(), dead);
        if let Some(reaped) = reaped {
            self.taken_back(reaped, max_attempts);
        }
    }

    async fn abandon(&mut self, n: usize, max_attempts: i64) {
        let lease = self.runs[n].lease;
        let abandoned = self.store.abandon(&lease, max_attempts).await;
        if !self.holds(&lease) {
            return assert_lost(&abandoned);
        }
        self.taken_back(abandoned.unwrap().unwrap(), max_attempts);
    }

    fn taken_back(&mut self, reaped: Reaped, max_attempts: i64) {
        let held = self.expected.lease.unwrap();
        assert_eq!((reaped.session, reaped.worker, reaped.turn), (self.session, held.worker, held.turn));
        let ended = self.expected.take_back(max_attempts);
        assert_eq!(reaped.next.map(|next| next.job), self.expected.head());
        self.answered(reaped.ended, &ended);
    }

    pub(super) async fn sweep(&mut self) {
        let forgotten = self.expected.head().filter(|_| self.expected.lease.is_none());
        let start = Instant::now();
        let swept = loop {
            let swept = rung_again(self.store, 0, 10).await;
            // A step that was refused may hold the session for a moment, until its transaction is rolled back.
            if swept.len() == usize::from(forgotten.is_some()) || Duration::from_mins(1) < start.elapsed() {
                break swept;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(swept.iter().map(|job| job.job).collect::<Vec<_>>(), Vec::from_iter(forgotten));
    }
}
