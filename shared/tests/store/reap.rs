//! What the reaper and the sweeper find, and what becomes of it.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{JobKind, JobState, SessionId, SessionJob, SessionStatus};
use roundhouse_shared::store::{Outcome, Store, StoreError};
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    a_dead_workers_turn_goes_on_with_the_next,
    a_turn_that_kills_its_workers_fails_at_last,
    a_live_lease_is_not_reaped,
    a_free_session_is_not_reaped,
    of_two_reapers_one_wins,
    a_worker_that_died_between_turns_has_spent_no_attempt,
    a_run_that_broke_off_is_taken_back_though_its_worker_lives,
    a_lease_that_is_lost_cannot_be_abandoned,
    mail_without_a_lease_is_swept,
    mail_that_was_enqueued_lately_is_left_alone,
    what_was_swept_counts_as_enqueued,
    what_a_worker_has_is_not_swept,
    as_many_sessions_are_swept_as_asked_for,
];

async fn a_dead_workers_turn_goes_on_with_the_next(store: &Store) {
    let session = session(store).await;
    let first = admit(store, session, "first").await;
    let (dead, mail) = begin_and_die(store, session).await;
    admit(store, session, "injected").await;

    let reaped = store.reap(session, 3).await.unwrap().unwrap();

    assert_eq!((reaped.session, reaped.worker, reaped.turn), (session, dead.worker, Some(mail.turn)));
    assert_eq!(reaped.next, Some(SessionJob { job: first, session, kind: JobKind::Chat }));
    assert_eq!(reaped.ended, []);
    let row = job(store, first).await;
    assert_eq!((row.state, row.turn, row.attempt), (JobState::Pending, Some(mail.turn), 1));
    let worker = registered(store).await;
    let (live, again) = begin_as(store, session, worker, LONG_MS).await;
    assert_eq!((again.turn, again.attempt, jobs_of(&again)), (mail.turn, 2, vec![first]));
    let row = job(store, first).await;
    assert_eq!((row.attempt, row.worker), (2, Some(worker)));
    let finished = store.finish(&live, answered(again.turn, "at last")).await.unwrap();
    assert_eq!((ids(&finished.ended), answer(&finished.ended[0].outcome)), (vec![first], ("at last", false)));
}

async fn a_turn_that_kills_its_workers_fails_at_last(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let merged = [admit(store, session, "a").await, admit(store, session, "b").await];
    let waiting = enqueue(store, session, "c").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    store.hand_back(&lease).await.unwrap();
    for attempt in 1..=2 {
        let (_, mail) = begin_and_die(store, session).await;
        assert_eq!((mail.attempt, jobs_of(&mail)), (attempt, merged.to_vec()));
        let reaped = store.reap(session, 3).await.unwrap().unwrap();
        assert_eq!((reaped.ended, reaped.next.unwrap().job), (vec![], merged[0]));
    }
    begin_and_die(store, session).await;

    let reaped = store.reap(session, 3).await.unwrap().unwrap();

    assert_eq!(ids(&reaped.ended), merged);
    for ended in &reaped.ended {
        let Outcome::Failed(problem) = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!(problem.code, Code::WorkerLost);
        let row = job(store, ended.job).await;
        assert_eq!((row.state, row.problem.as_ref()), (JobState::Failed, Some(problem)));
    }
    assert_eq!(reaped.next.unwrap().job, waiting);
    let (lease, mail) = begin(store, session).await;
    assert_eq!((mail.attempt, jobs_of(&mail)), (1, vec![waiting]));
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();

    // Without more mail the session says that its last turn failed, and can be used.
    admit(store, session, "d").await;
    begin_and_die(store, session).await;
    let reaped = store.reap(session, 1).await.unwrap().unwrap();
    assert_eq!((reaped.next, reaped.ended.len()), (None, 1));
    assert_eq!(store.session(session).await.unwrap().unwrap().status, SessionStatus::Error);
    assert_eq!(store.admit(&message(session, "e")).await.unwrap().kind, JobKind::Chat);
    begin(store, session).await;
}

async fn a_live_lease_is_not_reaped(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    assert_eq!(store.reap(session, 1).await.unwrap(), None);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
}

async fn a_free_session_is_not_reaped(store: &Store) {
    let session = session(store).await;
    assert_eq!(store.reap(session, 3).await.unwrap(), None);
    let job = admit(store, session, "hello").await;
    assert_eq!(store.reap(session, 3).await.unwrap(), None);
    assert_eq!(jobs_of(&begin(store, session).await.1), [job]);
    assert_eq!(store.reap(SessionId::generate(), 3).await.unwrap(), None);
}

async fn of_two_reapers_one_wins(store: &Store) {
    for _ in 0..20 {
        let session = session(store).await;
        admit(store, session, "hello").await;
        begin_and_die(store, session).await;
        let mut reapers = JoinSet::new();
        for _ in 0..2 {
            let store = store.clone();
            reapers.spawn(async move { store.reap(session, 3).await.unwrap() });
        }
        let reaped = reapers.join_all().await;
        assert_eq!(reaped.iter().flatten().count(), 1, "{reaped:?}");
        assert_eq!(begin(store, session).await.1.attempt, 2);
    }
}

async fn a_worker_that_died_between_turns_has_spent_no_attempt(store: &Store) {
    let session = session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin_and_die(store, session).await;
    let second = enqueue(store, session, "second").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();

    let reaped = store.reap(session, 1).await.unwrap().unwrap();

    assert_eq!((reaped.turn, reaped.ended, reaped.next.unwrap().job), (None, vec![], second));
    let (_, mail) = begin(store, session).await;
    assert_eq!((mail.attempt, jobs_of(&mail)), (1, vec![second]));
}

async fn a_run_that_broke_off_is_taken_back_though_its_worker_lives(store: &Store) {
    let (session, first, lease, mail) = running(store).await;

    let abandoned = store.abandon(&lease, 2).await.unwrap().unwrap();

    assert_eq!((abandoned.session, abandoned.worker), (session, lease.worker));
    assert_eq!((abandoned.turn, abandoned.ended), (Some(mail.turn), vec![]));
    assert_eq!(abandoned.next, Some(SessionJob { job: first, session, kind: JobKind::Chat }));
    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, again.attempt), (mail.turn, 2));
    let abandoned = store.abandon(&lease, 2).await.unwrap().unwrap();
    assert_eq!((ids(&abandoned.ended), abandoned.next), (vec![first], None));
    assert_eq!(answer(&abandoned.ended[0].outcome), (Code::WorkerLost.as_str(), false));
    assert_eq!(store.admit(&message(session, "next")).await.unwrap().kind, JobKind::Chat);
}

async fn a_lease_that_is_lost_cannot_be_abandoned(store: &Store) {
    let (session, first, stale, _) = running(store).await;
    store.abandon(&stale, 3).await.unwrap().unwrap();
    let (lease, mail) = begin(store, session).await;
    let error = store.abandon(&stale, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!((ids(&finished.ended), answer(&finished.ended[0].outcome)), (vec![first], ("ok", false)));
}

async fn mail_without_a_lease_is_swept(store: &Store) {
    let (one, other) = (session(store).await, session(store).await);
    session(store).await;
    let chat = admit(store, one, "first").await;
    admit(store, one, "second").await;
    let (lease, mail) = {
        admit(store, other, "first").await;
        begin(store, other).await
    };
    let injected = admit(store, other, "second").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    store.hand_back(&lease).await.unwrap();

    let mut swept = rung_again(store, 0, 10).await;

    swept.sort_by_key(|job| job.session);
    let chat = SessionJob { job: chat, session: one, kind: JobKind::Chat };
    assert_eq!(swept, [chat, SessionJob { job: injected, session: other, kind: JobKind::Inject }]);
}

async fn mail_that_was_enqueued_lately_is_left_alone(db: &Database) {
    let store = &db.store;
    let admitted = session(store).await;
    admit(store, admitted, "hello").await;
    let reaped = session(store).await;
    admit(store, reaped, "hello").await;
    begin_and_die(store, reaped).await;
    store.reap(reaped, 3).await.unwrap().unwrap();
    let (handed_back, _, lease, _) = running(store).await;
    store.hand_back(&lease).await.unwrap();

    assert_eq!(rung_again(store, LONG_MS, 10).await, []);
    db.execute("UPDATE sessions SET enqueued_ms = enqueued_ms - 3600000").await;
    let mut swept: Vec<_> = rung_again(store, LONG_MS, 10).await.iter().map(|job| job.session).collect();
    swept.sort();
    assert_eq!(swept, [admitted, reaped, handed_back]);
}

async fn what_was_swept_counts_as_enqueued(db: &Database) {
    let session = session(&db.store).await;
    admit(&db.store, session, "hello").await;
    db.execute("UPDATE sessions SET enqueued_ms = 1").await;
    let mut sweepers = JoinSet::new();
    for _ in 0..4 {
        let store = db.store.clone();
        sweepers.spawn(async move { rung_again(&store, LONG_MS, 10).await.len() });
    }
    assert_eq!(sweepers.join_all().await.iter().sum::<usize>(), 1);
    assert_eq!(rung_again(&db.store, LONG_MS, 10).await, []);
    assert_eq!(rung_again(&db.store, 0, 10).await.len(), 1);
}

async fn what_a_worker_has_is_not_swept(store: &Store) {
    let (session, ..) = running(store).await;
    admit(store, session, "second").await;
    // A dead worker's sessions are the reaper's.
    let dead = crate::support::session(store).await;
    admit(store, dead, "hello").await;
    begin_and_die(store, dead).await;
    assert_eq!(rung_again(store, 0, 10).await, []);
}

async fn as_many_sessions_are_swept_as_asked_for(db: &Database) {
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let session = session(&db.store).await;
        admit(&db.store, session, "hello").await;
        sessions.push(session);
    }
    db.execute("UPDATE sessions SET enqueued_ms = 1").await;
    let mut swept = rung_again(&db.store, LONG_MS, 2).await;
    assert_eq!(swept.len(), 2);
    swept.extend(rung_again(&db.store, LONG_MS, 2).await);
    let mut swept: Vec<_> = swept.iter().map(|job| job.session).collect();
    swept.sort();
    assert_eq!(swept, sessions);
}
