//! Sessions that are taken from runs: of dead workers, and given back on purpose.

use roundhouse_shared::domain::{JobKind, JobState, LeaseToken, SessionJob, SessionStatus};
use roundhouse_shared::store::{Next, Store, StoreError};

use crate::support::*;

on_both_databases![
    only_sessions_of_dead_workers_can_be_reaped,
    reapable_sessions_come_in_pages,
    a_session_handed_back_has_spent_no_attempt,
    a_session_handed_back_between_turns_rings_for_what_waits,
    a_session_handed_back_without_mail_is_free,
];

async fn only_sessions_of_dead_workers_can_be_reaped(store: &Store) {
    let (_, _, lease, mail) = running(store).await;
    let free = session(store).await;
    admit(store, free, "waits").await;
    assert_eq!(store.reapable(None, 10).await.unwrap(), []);
    let dead = session(store).await;
    admit(store, dead, "hello").await;
    begin_and_die(store, dead).await;
    assert_eq!(store.reapable(None, 10).await.unwrap(), [dead]);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(store.reapable(None, 10).await.unwrap(), [dead]);
}

async fn reapable_sessions_come_in_pages(store: &Store) {
    let mut dead = Vec::new();
    for _ in 0..5 {
        let session = session(store).await;
        admit(store, session, "hello").await;
        begin_and_die(store, session).await;
        dead.push(session);
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.reapable(after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(*last);
        found.extend(page);
    }
    assert_eq!(found, dead);
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
