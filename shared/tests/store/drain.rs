//! *begin* and *drain*: who gets a session, and which mail makes a turn.

use roundhouse_shared::domain::{
    EngineKind, JobKind, JobState, Lease, LeaseToken, SessionId, SessionStatus, WorkerId,
};
use roundhouse_shared::store::{Admission, Begin, Needs, NewSession, Next, Store, StoreError};
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    a_session_with_mail_is_begun_with_its_first_message,
    a_session_without_mail_is_not_begun,
    a_session_that_another_worker_has_is_not_begun,
    a_session_that_does_not_exist_is_not_begun,
    a_worker_that_cannot_run_the_agent_leaves_the_session_to_others,
    of_four_workers_one_begins,
    messages_injected_one_after_another_make_one_turn,
    no_more_than_a_hundred_messages_make_one_turn,
    the_newest_wish_for_a_model_counts,
    tokens_only_grow,
    a_run_without_mail_keeps_its_lease_until_it_gives_it_back,
    a_stale_token_writes_nothing,
    a_lease_is_good_for_one_worker_only,
    the_lease_of_a_deleted_session_is_lost,
];

async fn a_session_with_mail_is_begun_with_its_first_message(store: &Store) {
    let new = NewSession { cwd: "/srv/repo".to_owned(), model: Some("m".to_owned()), ..new_session() };
    let session = store.create_session(&new).await.unwrap().id;
    let first = admit(store, session, "first").await;
    enqueue(store, session, "second").await;
    let worker = WorkerId::generate();

    let (lease, mail) = begin_as(store, session, worker, LONG_MS).await;

    assert_eq!(lease, Lease { session, worker, token: LeaseToken(1) });
    assert_eq!((mail.attempt, mail.agent.as_str(), mail.engine), (1, "helper", EngineKind::OpenAi));
    assert_eq!((mail.model.as_deref(), mail.cwd.as_str()), (Some("m"), "/srv/repo"));
    assert_eq!(mail.native_session, None);
    assert_eq!((jobs_of(&mail), texts_of(&mail)), (vec![first], vec!["first"]));
    assert_eq!(mail.jobs[0].kind, JobKind::Chat);

    let job = job(store, first).await;
    assert_eq!((job.state, job.attempt), (JobState::Claimed, 1));
    assert_eq!((job.turn, job.worker, job.message), (Some(mail.turn), Some(worker), mail.jobs[0].message));
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.status, row.active_turn), (SessionStatus::Running, Some(mail.turn)));
    assert_eq!((row.connected_ms, Some(row.updated_ms)), (job.started_ms, job.started_ms));
}

async fn a_session_without_mail_is_not_begun(store: &Store) {
    let session = session(store).await;
    let begin = try_begin(store, session, WorkerId::generate(), LONG_MS).await.unwrap();
    assert!(matches!(begin, Begin::NoMail), "{begin:?}");
    assert_eq!(store.delete_session(session).await.unwrap().native_session, None);
}

async fn a_session_that_another_worker_has_is_not_begun(store: &Store) {
    for lease_ms in [LONG_MS, DEAD_MS] {
        let session = session(store).await;
        admit(store, session, "first").await;
        let holder = WorkerId::generate();
        begin_as(store, session, holder, lease_ms).await;
        admit(store, session, "second").await;
        for worker in [holder, WorkerId::generate()] {
            let begin = try_begin(store, session, worker, LONG_MS).await.unwrap();
            assert!(matches!(begin, Begin::Held(by) if by == holder), "{begin:?}");
        }
    }
}

async fn a_session_that_does_not_exist_is_not_begun(store: &Store) {
    let error = try_begin(store, SessionId::generate(), WorkerId::generate(), LONG_MS).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
}

async fn a_worker_that_cannot_run_the_agent_leaves_the_session_to_others(store: &Store) {
    let session = session(store).await;
    let job = admit(store, session, "hello").await;
    let worker = registered(store).await;
    let begin = store.begin(session, worker, |needs| needs != Needs::Agent("helper")).await.unwrap();
    assert!(matches!(begin, Begin::NotHere), "{begin:?}");
    let begin = store.begin(session, worker, |needs| needs == Needs::Agent("helper")).await.unwrap();
    assert!(
        matches!(&begin, Begin::Started(lease, mail) if lease.token.0 == 1 && jobs_of(mail) == [job]),
        "{begin:?}"
    );
}

async fn of_four_workers_one_begins(store: &Store) {
    for _ in 0..10 {
        let session = session(store).await;
        admit(store, session, "hello").await;
        let mut workers = JoinSet::new();
        for _ in 0..4 {
            let store = store.clone();
            let worker = WorkerId::generate();
            workers
                .spawn(async move { (worker, try_begin(&store, session, worker, LONG_MS).await.unwrap()) });
        }
        let begun = workers.join_all().await;
        let started: Vec<_> =
            begun.iter().filter(|(_, begin)| matches!(begin, Begin::Started(..))).map(|(w, _)| *w).collect();
        assert_eq!(started.len(), 1, "{begun:?}");
        for (worker, begin) in &begun {
            let right = *worker == started[0] || matches!(begin, Begin::Held(by) if *by == started[0]);
            assert!(right, "{begun:?}");
        }
    }
}

async fn messages_injected_one_after_another_make_one_turn(store: &Store) {
    let (session, _, lease, mut mail) = running(store).await;
    for text in ["a", "b"] {
        admit(store, session, text).await;
    }
    enqueue(store, session, "c").await;
    for text in ["d", "e"] {
        admit(store, session, text).await;
    }

    let mut turns = Vec::new();
    while store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next == Next::Turn {
        mail = store.drain(&lease).await.unwrap().unwrap();
        assert_eq!(mail.attempt, 1);
        turns.push(texts_of(&mail).join("+"));
    }

    assert_eq!(turns, ["a+b", "c", "d+e"]);
}

async fn no_more_than_a_hundred_messages_make_one_turn(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    for n in 1..=101 {
        admit(store, session, &n.to_string()).await;
    }
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();
    assert_eq!((mail.jobs.len(), mail.jobs[99].text.as_str()), (100, "100"));
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(texts_of(&store.drain(&lease).await.unwrap().unwrap()), ["101"]);
}

async fn the_newest_wish_for_a_model_counts(store: &Store) {
    let new = NewSession { model: Some("session's".to_owned()), ..new_session() };
    let session = store.create_session(&new).await.unwrap().id;
    admit(store, session, "first").await;
    let (lease, mail) = begin(store, session).await;
    assert_eq!(mail.model.as_deref(), Some("session's"));
    for model in [Some("a"), Some("b"), None] {
        let wish = Admission { model: model.map(str::to_owned), ..message(session, "next") };
        store.admit(&wish).await.unwrap();
    }
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();
    assert_eq!((mail.jobs.len(), mail.model.as_deref()), (3, Some("b")));
}

async fn tokens_only_grow(store: &Store) {
    let session = session(store).await;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        admit(store, session, "hello").await;
        let (lease, _) = begin_and_die(store, session).await;
        tokens.push(lease.token);
        store.reap(session, 3).await.unwrap().unwrap();
        let (lease, _) = begin(store, session).await;
        tokens.push(lease.token);
        store.hand_back(&lease).await.unwrap();
        let (lease, mail) = begin(store, session).await;
        tokens.push(lease.token);
        store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    }
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6].map(LeaseToken));
}

async fn a_run_without_mail_keeps_its_lease_until_it_gives_it_back(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let second = enqueue(store, session, "second").await;
    assert_eq!(store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next, Next::Turn);
    // What the run kept its lease for is gone before it looks.
    assert_eq!(ids(&store.cancel_session(session).await.unwrap().ended), [second]);

    assert!(store.drain(&lease).await.unwrap().is_none());
    let late = admit(store, session, "late").await;
    let begin = try_begin(store, session, WorkerId::generate(), LONG_MS).await.unwrap();
    assert!(matches!(begin, Begin::Held(by) if by == lease.worker), "{begin:?}");

    assert_eq!(store.hand_back(&lease).await.unwrap().next.unwrap().job, late);
    assert_eq!(jobs_of(&crate::support::begin(store, session).await.1), [late]);
}

async fn a_stale_token_writes_nothing(store: &Store) {
    let session = session(store).await;
    let job_id = admit(store, session, "first").await;
    let (stale, mail) = begin_and_die(store, session).await;
    store.reap(session, 3).await.unwrap().unwrap();
    let (live, again) = begin(store, session).await;
    admit(store, session, "second").await;
    let before = (store.session(session).await.unwrap(), job(store, job_id).await);

    for lease in [stale, Lease { worker: live.worker, ..stale }] {
        let error = store.drain(&lease).await.unwrap_err();
        assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
        let error = store.finish(&lease, answered(mail.turn, "too late")).await.unwrap_err();
        assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
        let error = store.hand_back(&lease).await.unwrap_err();
        assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
    }

    assert_eq!((store.session(session).await.unwrap(), job(store, job_id).await), before);
    assert_eq!(contents(store, session).await, ["first", "second"]);
    assert_eq!((again.turn, again.attempt), (mail.turn, 2));
    store.finish(&live, answered(again.turn, "in time")).await.unwrap();
}

async fn a_lease_is_good_for_one_worker_only(store: &Store) {
    let (_, _, lease, mail) = running(store).await;
    let forged = Lease { worker: WorkerId::generate(), ..lease };
    let error = store.finish(&forged, answered(mail.turn, "mine")).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
    store.finish(&lease, answered(mail.turn, "mine")).await.unwrap();
}

async fn the_lease_of_a_deleted_session_is_lost(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    store.delete_session(session).await.unwrap();
    let error = store.drain(&lease).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
    let error = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
}
