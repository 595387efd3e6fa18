//! Many at once: what the design promises holds without any step in between being chosen by us.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use roundhouse_shared::domain::{JobId, JobKind, Lease, OnBusy, SessionId, Usage, WorkerId};
use roundhouse_shared::store::{
    Admission, Begin, Ended, JobFilter, Mail, Meanwhile, Next, Outcome, Store, StoreError, TurnEnd,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, broadcast};
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    a_message_that_races_with_the_end_of_a_turn_is_never_forgotten,
    a_cancel_that_races_with_the_end_of_a_turn_hits_it_or_nothing,
    every_job_is_answered_once_though_all_work_at_once_and_workers_die,
];

async fn a_message_that_races_with_the_end_of_a_turn_is_never_forgotten(store: &Store) {
    for _ in 0..60 {
        let (session, _, lease, mail) = running(store).await;
        let admission = message(session, "racing");
        let (finished, admitted) =
            tokio::join!(store.finish(&lease, answered(mail.turn, "ok")), store.admit(&admission));
        let lease = match (finished.unwrap().next, admitted.unwrap().kind) {
            // The end came first: the session was free, and the message rings for itself.
            (Next::Idle, JobKind::Chat) => {
                let (lease, mail) = begin(store, session).await;
                assert_eq!(jobs_of(&mail), [admission.job]);
                store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
                continue;
            }
            // The message came first: the run has seen it and goes on.
            (Next::Turn, JobKind::Inject) => lease,
            other => panic!("{other:?}"),
        };
        let mail = store.drain(&lease).await.unwrap().unwrap();
        assert_eq!(jobs_of(&mail), [admission.job]);
        assert_eq!(store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next, Next::Idle);
    }
}

async fn a_cancel_that_races_with_the_end_of_a_turn_hits_it_or_nothing(store: &Store) {
    for _ in 0..40 {
        let (session, first, lease, mail) = running(store).await;
        let (finished, cancelled) =
            tokio::join!(store.finish(&lease, answered(mail.turn, "ok")), store.cancel_session(session));
        let (finished, cancelled) = (finished.unwrap(), cancelled.unwrap());
        assert_eq!(cancelled.any(), answer(&finished.ended[0].outcome).1);
        assert_eq!((cancelled.ended, ids(&finished.ended)), (vec![], vec![first]));
    }
}

const SESSIONS: usize = 5;
const CLIENTS: usize = 6;
const MESSAGES: usize = 60;
const WORKERS: usize = 4;

/// A small Roundhouse: bells that ring for sessions, deaths that reapers hear of, answers that somebody waits for.
#[derive(Clone)]
struct House {
    store: Store,
    bells: UnboundedSender<SessionId>,
    rung: Arc<Mutex<UnboundedReceiver<SessionId>>>,
    deaths: broadcast::Sender<SessionId>,
    answers: UnboundedSender<Ended>,
}

/// There is no sweeper here: every accepted job is answered although nobody looks for forgotten mail.
async fn every_job_is_answered_once_though_all_work_at_once_and_workers_die(store: &Store) {
    let (bells, rung) = unbounded_channel();
    let (answers, mut answered) = unbounded_channel();
    let (deaths, _) = broadcast::channel(CLIENTS * MESSAGES);
    let house = House { store: store.clone(), bells, rung: Arc::new(Mutex::new(rung)), deaths, answers };
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(session(store).await);
    }

    let mut staff = JoinSet::new();
    for n in 0..WORKERS {
        staff.spawn(work(house.clone(), n));
    }
    for _ in 0..2 {
        staff.spawn(reap(house.clone(), house.deaths.subscribe()));
    }
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        clients.spawn(send(house.clone(), sessions.clone(), n));
    }
    let accepted: Vec<JobId> = clients.join_all().await.into_iter().flatten().collect();

    let mut told = HashMap::new();
    while told.len() < accepted.len() {
        let next = tokio::time::timeout(Duration::from_mins(1), answered.recv());
        let Ended { job, outcome, .. } = next.await.expect("a job is forgotten").unwrap();
        assert_eq!(told.insert(job, outcome), None, "{job} was answered twice");
    }
    staff.shutdown().await;

    // Nobody was told anything else than what is stored.
    assert!(answered.try_recv().is_err());
    let stored: HashMap<JobId, Outcome> = store.outcomes(&accepted).await.unwrap().into_iter().collect();
    assert_eq!(stored, told);
    let all = store.jobs(JobFilter { limit: 10_000, ..JobFilter::default() }).await.unwrap();
    assert_eq!(all.len(), accepted.len());
    assert!(all.iter().all(|job| job.state.ended()));
    assert_eq!(rung_again(store, 0, 10).await, []);
}

/// A client: sends messages of all kinds to all sessions; returns the jobs that were accepted.
async fn send(house: House, sessions: Vec<SessionId>, client: usize) -> Vec<JobId> {
    let mut accepted = Vec::new();
    for n in 0..MESSAGES {
        let session = sessions[(client + n) % SESSIONS];
        let on_busy = match n % 10 {
            0..=4 => OnBusy::Inject,
            5..=7 => OnBusy::Enqueue,
            8 => OnBusy::Interrupt,
            _ => OnBusy::Reject,
        };
        match house.store.admit(&Admission { on_busy, ..message(session, "hello") }).await {
            Ok(admitted) => {
                accepted.push(admitted.job);
                house.tell(admitted.interrupted.into_iter().flat_map(|cancelled| cancelled.ended));
                house.ring(session);
            }
            Err(error) => assert!(matches!(error, StoreError::SessionBusy), "{error:?}"),
        }
        if n % 20 == 7 {
            house.tell(house.store.cancel_session(session).await.unwrap().ended);
        }
    }
    accepted
}

/// A worker: runs what it hears of. Every seventh run ends with the worker's death, another worker in its place.
async fn work(house: House, mut runs: usize) {
    loop {
        let Some(session) = house.rung.lock().await.recv().await else { return };
        runs += 1;
        let dies = runs.is_multiple_of(7);
        let lease_ms = if dies { DEAD_MS } else { LONG_MS };
        match try_begin(&house.store, session, WorkerId::generate(), lease_ms).await.unwrap() {
            Begin::Started(lease, _) if dies && runs.is_multiple_of(2) => house.dies(lease.session),
            Begin::Started(lease, mail) => house.run(lease, mail, dies).await,
            Begin::Held(_) | Begin::Maintenance(..) | Begin::NoMail | Begin::NotHere => {}
        }
    }
}

/// A reaper, of two that hear of every death.
async fn reap(house: House, mut deaths: broadcast::Receiver<SessionId>) {
    while let Ok(session) = deaths.recv().await {
        let Some(reaped) = house.store.reap(session, 2).await.unwrap() else { continue };
        house.tell(reaped.ended);
        if reaped.next.is_some() {
            house.ring(session);
        }
    }
}

impl House {
    fn ring(&self, session: SessionId) {
        self.bells.send(session).unwrap();
    }

    fn dies(&self, session: SessionId) {
        self.deaths.send(session).unwrap();
    }

    fn tell(&self, ended: impl IntoIterator<Item = Ended>) {
        for ended in ended {
            self.answers.send(ended).unwrap();
        }
    }

    /// A run: turn after turn until there is no mail, or until its worker dies while there is more. Where that worker
    /// was only believed dead, a reaper may be faster.
    async fn run(&self, lease: Lease, mut mail: Mail, dies: bool) {
        if dies {
            self.dies(lease.session);
        }
        let usage = Usage { input_tokens: 1, output_tokens: 2, cache_tokens: 3, cost_nanos: Some(4) };
        loop {
            let written = [calls("look", &["c1"]), result("c1", "nothing")];
            let more = async {
                self.store.append(&lease, mail.turn, &written).await?;
                self.store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await
            };
            match more.await {
                Err(StoreError::LeaseLost) if dies => return,
                more => drop(more.unwrap()),
            }
            let finished =
                match self.store.finish(&lease, TurnEnd { usage, ..answered(mail.turn, "ok") }).await {
                    Err(StoreError::LeaseLost) if dies => return,
                    finished => finished.unwrap(),
                };
            self.tell(finished.ended);
            if finished.next == Next::Idle {
                return;
            }
            mail = match self.store.drain(&lease).await {
                Err(StoreError::LeaseLost) if dies => return,
                Ok(Some(mail)) => mail,
                // Cancelled in between.
                Ok(None) => match self.store.hand_back(&lease).await {
                    Err(StoreError::LeaseLost) if dies => return,
                    back => return back.unwrap().next.into_iter().for_each(|next| self.ring(next.session)),
                },
                Err(error) => panic!("{error:?}"),
            };
        }
    }
}
