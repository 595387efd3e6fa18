//! The same request again: one job, whoever wins.

use roundhouse_shared::domain::{JobKind, OnBusy};
use roundhouse_shared::store::{Admission, SessionFilter, Store, StoreError, Target};
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    the_same_request_again_gets_the_same_job,
    the_same_request_ten_times_at_once_is_one_job,
    the_same_request_ten_times_at_once_is_one_new_session,
    a_key_that_came_with_another_request_is_refused_and_nothing_is_stored,
    a_key_is_good_for_all_sessions,
    requests_without_a_key_are_all_different,
];

async fn the_same_request_again_gets_the_same_job(store: &Store) {
    let session = session(store).await;
    let first = with_key(message(session, "hello"), "key", "hash");
    store.admit(&first).await.unwrap();
    let (lease, mail) = begin(store, session).await;
    // It was admitted before the session was busy, and that it may not wait does not matter any more.
    let again = with_key(message(session, "hello"), "key", "hash");
    let again = Admission { on_busy: OnBusy::Reject, ..again };

    let while_busy = store.admit(&again).await.unwrap();
    store.finish(&lease, answered(mail.turn, "done")).await.unwrap();
    let when_ended = store.admit(&again).await.unwrap();

    for admitted in [while_busy, when_ended] {
        assert_eq!((admitted.job, admitted.session, admitted.kind), (first.job, session, JobKind::Chat));
        assert_eq!((admitted.message, admitted.interrupted), (None, None));
    }
    assert_eq!(contents(store, session).await, ["hello", "done"]);
}

async fn the_same_request_ten_times_at_once_is_one_job(store: &Store) {
    let session = session(store).await;
    let target = || Target::Existing(session);
    assert_eq!(admitted_at_once(store, target).await, 1);
    assert_eq!(contents(store, session).await, ["hello"]);
}

async fn the_same_request_ten_times_at_once_is_one_new_session(store: &Store) {
    let target = || Target::New(new_session());
    assert_eq!(admitted_at_once(store, target).await, 1);
    let sessions = store.sessions(&SessionFilter { limit: 20, ..SessionFilter::default() }).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(contents(store, sessions[0].id).await, ["hello"]);
}

/// Admits one request ten times at once; returns how many stored a message. All get the same job.
async fn admitted_at_once(store: &Store, target: impl Fn() -> Target) -> usize {
    let mut requests = JoinSet::new();
    for _ in 0..10 {
        let store = store.clone();
        let admission = with_key(message_to(target(), "hello"), "key", "hash");
        requests.spawn(async move { store.admit(&admission).await.unwrap() });
    }
    let admitted = requests.join_all().await;
    let first = &admitted[0];
    for other in &admitted {
        assert_eq!((other.job, other.session, other.kind), (first.job, first.session, first.kind));
    }
    admitted.iter().filter(|admitted| admitted.message.is_some()).count()
}

async fn a_key_that_came_with_another_request_is_refused_and_nothing_is_stored(store: &Store) {
    let session = session(store).await;
    let first = with_key(message(session, "hello"), "key", "hash");
    store.admit(&first).await.unwrap();
    let before = store.session(session).await.unwrap();
    let fresh = new_session();

    for target in [Target::Existing(session), Target::New(fresh.clone())] {
        let other = with_key(message_to(target, "bye"), "key", "other");
        let error = store.admit(&other).await.unwrap_err();
        assert!(matches!(error, StoreError::IdempotencyConflict), "{error:?}");
        assert_eq!(store.job(other.job).await.unwrap(), None);
    }

    assert_eq!(store.session(session).await.unwrap(), before);
    assert_eq!(store.session(fresh.id).await.unwrap(), None);
    assert_eq!(contents(store, session).await, ["hello"]);
}

async fn a_key_is_good_for_all_sessions(store: &Store) {
    let (one, other) = (session(store).await, session(store).await);
    let first = with_key(message(one, "hello"), "key", "hash");
    store.admit(&first).await.unwrap();
    let elsewhere = with_key(message(other, "hello"), "key", "hash");
    let admitted = store.admit(&elsewhere).await.unwrap();
    assert_eq!((admitted.job, admitted.session), (first.job, one));
    assert!(contents(store, other).await.is_empty());
}

async fn requests_without_a_key_are_all_different(store: &Store) {
    let session = session(store).await;
    let (one, other) = (admit(store, session, "hello").await, admit(store, session, "hello").await);
    assert_ne!(one, other);
    assert_eq!(contents(store, session).await, ["hello", "hello"]);
}
