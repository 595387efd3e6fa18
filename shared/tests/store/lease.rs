//! Leases: renewed together, expired alone, given back on purpose.

use roundhouse_shared::domain::{JobKind, JobState, LeaseToken, SessionJob, SessionStatus, WorkerId};
use roundhouse_shared::store::{Beat, Next, Store, StoreError};

use crate::support::*;

on_both_databases![
    a_beat_renews_all_leases_of_its_worker_and_no_other,
    a_beat_of_a_worker_that_is_not_known_is_lost,
    a_beat_keeps_the_worker_alive_too,
    a_beat_does_not_revive_what_has_expired,
    a_beat_does_not_name_what_was_lost,
    only_leases_that_ran_out_are_expired,
    as_many_expired_leases_as_asked_for,
    a_session_handed_back_has_spent_no_attempt,
    a_session_handed_back_between_turns_rings_for_what_waits,
    a_session_handed_back_without_mail_is_free,
];

async fn a_beat_renews_all_leases_of_its_worker_and_no_other(store: &Store) {
    let (mine, other) = (registered(store).await, registered(store).await);
    let mut held_by_me = Vec::new();
    for worker in [mine, other, mine] {
        let session = session(store).await;
        admit(store, session, "hello").await;
        let (lease, mail) = begin_as(store, session, worker, LONG_MS).await;
        if worker == mine {
            held_by_me.push((session, lease.token, Some(mail.turn), None));
        } else {
            // A cancel of another worker's turn is none of mine.
            store.cancel_session(session).await.unwrap();
        }
    }
    let leases_of = async |worker| {
        let workers = store.workers().await.unwrap();
        workers.into_iter().find(|known| known.id == worker).unwrap().leases
    };
    let untouched = leases_of(other).await;
    let before = store.now_ms().await.unwrap();

    let mut held = store.renew_all(Beat { worker: mine, lease_ms: 2 * LONG_MS }).await.unwrap();

    held.sort_by_key(|lease| lease.session);
    assert!(held.iter().all(|lease| before + 2 * LONG_MS <= lease.expires_ms));
    let mut stored = leases_of(mine).await;
    stored.sort_by_key(|lease| lease.session);
    assert_eq!(stored, held);
    let held: Vec<_> = held.iter().map(|l| (l.session, l.token, l.turn, l.cancel_turn)).collect();
    assert_eq!(held, held_by_me);
    assert_eq!(leases_of(other).await, untouched);
}

async fn a_beat_of_a_worker_that_is_not_known_is_lost(store: &Store) {
    let session = session(store).await;
    admit(store, session, "hello").await;
    let worker = WorkerId::generate();
    begin_as(store, session, worker, DEAD_MS).await;
    let error = store.renew_all(Beat { worker, lease_ms: LONG_MS }).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
    assert_eq!(store.expired(10).await.unwrap(), [session]);
}

async fn a_beat_keeps_the_worker_alive_too(store: &Store) {
    let worker = worker("host");
    store.register_worker(&worker, DEAD_MS).await.unwrap();
    assert!(store.workers().await.unwrap().is_empty());
    assert_eq!(store.renew_all(Beat { worker: worker.id, lease_ms: LONG_MS }).await.unwrap(), []);
    let known = store.workers().await.unwrap();
    assert_eq!((known.len(), known[0].id), (1, worker.id));
    assert_eq!(known[0].expires_ms - known[0].seen_ms, LONG_MS);
}

/// Its run may have stopped itself already.
async fn a_beat_does_not_revive_what_has_expired(store: &Store) {
    let worker = registered(store).await;
    let session = session(store).await;
    admit(store, session, "hello").await;
    let (lease, mail) = begin_as(store, session, worker, DEAD_MS).await;
    assert_eq!(store.renew_all(Beat { worker, lease_ms: LONG_MS }).await.unwrap(), []);
    assert_eq!(store.expired(10).await.unwrap(), [session]);
    assert_eq!(store.reap(session, 3).await.unwrap().unwrap().worker, worker);
    let error = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
}

async fn a_beat_does_not_name_what_was_lost(store: &Store) {
    let worker = registered(store).await;
    let session = session(store).await;
    admit(store, session, "hello").await;
    let (lease, _) = begin_as(store, session, worker, LONG_MS).await;
    assert_eq!(store.renew_all(Beat { worker, lease_ms: LONG_MS }).await.unwrap().len(), 1);
    store.abandon(&lease, 3).await.unwrap();
    assert_eq!(store.renew_all(Beat { worker, lease_ms: LONG_MS }).await.unwrap(), []);
    begin(store, session).await;
    assert_eq!(store.renew_all(Beat { worker, lease_ms: LONG_MS }).await.unwrap(), []);
}

async fn only_leases_that_ran_out_are_expired(store: &Store) {
    let (_, _, lease, mail) = running(store).await;
    let free = session(store).await;
    admit(store, free, "waits").await;
    assert_eq!(store.expired(10).await.unwrap(), []);
    let dead = session(store).await;
    admit(store, dead, "hello").await;
    begin_and_die(store, dead).await;
    assert_eq!(store.expired(10).await.unwrap(), [dead]);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(store.expired(10).await.unwrap(), [dead]);
}

async fn as_many_expired_leases_as_asked_for(store: &Store) {
    for _ in 0..3 {
        let session = session(store).await;
        admit(store, session, "hello").await;
        begin_and_die(store, session).await;
    }
    for _ in 0..2 {
        let expired = store.expired(2).await.unwrap();
        assert!(!expired.is_empty() && expired.len() <= 2, "{expired:?}");
        for session in expired {
            assert!(store.reap(session, 3).await.unwrap().is_some());
        }
    }
    assert_eq!(store.expired(2).await.unwrap(), []);
}

async fn a_session_handed_back_has_spent_no_attempt(store: &Store) {
    let (session, first, lease, mail) = running(store).await;

    let next = store.hand_back(&lease).await.unwrap().next;

    assert_eq!(next, Some(SessionJob { job: first, session, kind: JobKind::Chat }));
    let row = job(store, first).await;
    assert_eq!((row.state, row.attempt, row.turn), (JobState::Pending, 0, Some(mail.turn)));
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.status, row.active_turn), (SessionStatus::Queued, None));
    let (live, again) = begin(store, session).await;
    assert_eq!((again.turn, again.attempt, jobs_of(&again)), (mail.turn, 1, vec![first]));
    assert_eq!(live.token, LeaseToken(lease.token.0 + 1));
    assert_eq!(job(store, first).await.attempt, 1);
    let error = store.hand_back(&lease).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");

    // Deaths count, however often it was handed back in between.
    store.hand_back(&live).await.unwrap();
    for attempt in 1..=2 {
        let (_, mail) = begin_and_die(store, session).await;
        assert_eq!(mail.attempt, attempt);
        assert_eq!(store.reap(session, 3).await.unwrap().unwrap().ended, []);
        let (lease, _) = begin(store, session).await;
        store.hand_back(&lease).await.unwrap();
    }
    begin_and_die(store, session).await;
    assert_eq!(ids(&store.reap(session, 3).await.unwrap().unwrap().ended), [first]);
}

async fn a_session_handed_back_between_turns_rings_for_what_waits(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let job = admit(store, session, "second").await;
    assert_eq!(store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next, Next::Turn);
    let next = store.hand_back(&lease).await.unwrap().next;
    assert_eq!(next, Some(SessionJob { job, session, kind: JobKind::Inject }));
    assert_eq!(begin(store, session).await.1.attempt, 1);
}

async fn a_session_handed_back_without_mail_is_free(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    admit(store, session, "second").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    store.cancel_session(session).await.unwrap();
    assert!(store.drain(&lease).await.unwrap().is_none());
    assert_eq!(store.hand_back(&lease).await.unwrap().next, None);
    assert_eq!(store.admit(&message(session, "third")).await.unwrap().kind, JobKind::Chat);
}
