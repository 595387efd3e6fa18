//! Workers that live and that are declared dead: what keeps them alive, and what never brings them back.

use std::time::Duration;

use roundhouse_shared::domain::{JobKind, SessionId, SessionStatus, WorkerId};
use roundhouse_shared::store::{Beat, Outcome, Sighting, Store, StoreError};
use tokio::time::timeout;

use crate::support::*;

on_both_databases![
    a_renewal_is_of_one_worker_and_says_what_it_holds,
    a_worker_that_is_not_known_cannot_be_renewed,
    a_worker_that_was_declared_dead_never_comes_back,
    a_worker_that_was_renewed_since_is_not_declared_dead,
    of_two_that_declare_a_worker_dead_one_does,
    a_worker_dies_by_being_declared_dead_and_not_by_the_clock,
    a_step_of_the_clock_changes_what_is_due_and_not_who_has_a_session,
    a_turn_over_a_step_back_has_taken_no_negative_time,
    a_locked_session_stops_no_renewal,
    a_locked_session_is_reaped_in_the_next_round,
    a_locked_session_is_not_abandoned_yet,
    a_session_whose_parent_is_locked_is_taken_in_the_next_round,
    a_locked_worker_is_not_declared_dead_yet,
    a_bad_row_keeps_no_other_from_being_reaped,
    sessions_of_a_worker_whose_row_is_gone_can_be_reaped,
    a_session_of_a_dead_worker_is_not_busy_once_its_jobs_have_ended,
];

/// What takes longer than this waits for a lock.
const SOON: Duration = Duration::from_secs(20);

async fn at_once<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
    timeout(SOON, future).await.expect("waits for a lock").unwrap()
}

/// A session that this worker has.
async fn session_of(store: &Store, worker: WorkerId) -> SessionId {
    let session = session(store).await;
    admit(store, session, "hello").await;
    begin_as(store, session, worker, LONG_MS).await;
    session
}

async fn sighting(store: &Store, worker: WorkerId) -> Option<Sighting> {
    store.sightings().await.unwrap().into_iter().find(|seen| seen.worker == worker)
}

fn beat(worker: WorkerId) -> Beat {
    Beat { worker, lease_ms: LONG_MS }
}

async fn a_renewal_is_of_one_worker_and_says_what_it_holds(store: &Store) {
    let (mine, other) = (registered(store).await, registered(store).await);
    let held = [session_of(store, mine).await, session_of(store, mine).await];
    session_of(store, other).await;
    let before = (sighting(store, mine).await.unwrap(), sighting(store, other).await.unwrap());
    let now_ms = store.now_ms().await.unwrap();

    store.renew(Beat { worker: mine, lease_ms: 2 * LONG_MS }).await.unwrap();

    let after = sighting(store, mine).await.unwrap();
    assert_eq!((after.beats, after.lease_ms), (before.0.beats + 1, 2 * LONG_MS));
    assert_eq!(sighting(store, other).await.unwrap(), before.1);
    let leases = store.held(mine).await.unwrap();
    assert_eq!(leases.iter().map(|lease| lease.session).collect::<Vec<_>>(), held);
    assert!(leases.iter().all(|lease| now_ms + 2 * LONG_MS <= lease.expires_ms));
    let shown = store.workers().await.unwrap().into_iter().find(|worker| worker.id == mine).unwrap();
    assert_eq!(shown.leases, leases);
}

async fn a_worker_that_is_not_known_cannot_be_renewed(store: &Store) {
    let worker = WorkerId::generate();
    assert_lost(&store.renew(beat(worker)).await);
    let session = session(store).await;
    admit(store, session, "hello").await;
    assert_lost(&store.begin(session, worker, |_| true).await);
    assert_eq!(store.session(session).await.unwrap().unwrap().status, SessionStatus::Queued);
}

async fn a_worker_that_was_declared_dead_never_comes_back(store: &Store) {
    let row = worker("host");
    store.register_worker(&row, LONG_MS).await.unwrap();
    session_of(store, row.id).await;
    assert!(store.declare_dead(row.id, None).await.unwrap());

    assert_lost(&store.renew(beat(row.id)).await);
    assert_lost(&store.register_worker(&row, LONG_MS).await);
    let waiting = session(store).await;
    admit(store, waiting, "hello").await;
    assert_lost(&store.begin(waiting, row.id, |_| true).await);
    assert!(!store.declare_dead(row.id, None).await.unwrap());
    assert_eq!((sighting(store, row.id).await, store.workers().await.unwrap()), (None, vec![]));
}

async fn a_worker_that_was_renewed_since_is_not_declared_dead(store: &Store) {
    let worker = registered(store).await;
    let seen = sighting(store, worker).await.unwrap();
    store.renew(beat(worker)).await.unwrap();
    assert!(!store.declare_dead(worker, Some(seen.beats)).await.unwrap());
    store.renew(beat(worker)).await.unwrap();
    let seen = sighting(store, worker).await.unwrap();
    assert!(store.declare_dead(worker, Some(seen.beats)).await.unwrap());
    assert_lost(&store.renew(beat(worker)).await);
}

async fn of_two_that_declare_a_worker_dead_one_does(store: &Store) {
    for _ in 0..20 {
        let worker = registered(store).await;
        let (one, other, renewed) = tokio::join!(
            store.declare_dead(worker, Some(0)),
            store.declare_dead(worker, Some(0)),
            store.renew(beat(worker))
        );
        let declared = [one.unwrap(), other.unwrap()].iter().filter(|declared| **declared).count();
        // Each of the three may hold the row when another comes; what was declared stays so.
        let alive = sighting(store, worker).await.is_some();
        assert_eq!((declared, alive), if alive { (0, true) } else { (1, false) });
        assert!(renewed.is_ok() || !alive);
        assert_eq!(store.renew(beat(worker)).await.is_ok(), alive);
    }
}

/// The run of an expired worker goes on until somebody takes its session, and so does a worker that is renewed in time.
async fn a_worker_dies_by_being_declared_dead_and_not_by_the_clock(db: &Database) {
    let store = &db.store;
    let worker = registered(store).await;
    let session = session(store).await;
    admit(store, session, "hello").await;
    let (lease, mail) = begin_as(store, session, worker, LONG_MS).await;
    db.clock.step(2 * LONG_MS);
    assert!(sighting(store, worker).await.unwrap().expired);
    assert_eq!(
        (store.reapable(None, 10).await.unwrap(), store.reap(session, 3).await.unwrap()),
        (vec![], None)
    );
    // For others the session is at work as before.
    assert_eq!(store.admit(&message(session, "more")).await.unwrap().kind, JobKind::Inject);
    store.renew(beat(worker)).await.unwrap();
    assert!(!sighting(store, worker).await.unwrap().expired);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
}

async fn a_step_of_the_clock_changes_what_is_due_and_not_who_has_a_session(db: &Database) {
    let store = &db.store;
    for step in [2 * LONG_MS, -4 * LONG_MS] {
        let (living, dead) = (registered(store).await, registered(store).await);
        let (kept, lost) = (session_of(store, living).await, session_of(store, dead).await);
        db.clock.step(step);
        let seen = sighting(store, dead).await.unwrap();
        store.renew(beat(living)).await.unwrap();
        // The clock says nothing of the dead one any more, its counter does.
        assert_eq!(seen.expired, 0 < step);
        assert_eq!(sighting(store, dead).await.unwrap().beats, seen.beats);
        assert!(store.declare_dead(dead, Some(seen.beats)).await.unwrap());
        assert_eq!(store.reapable(None, 10).await.unwrap(), [lost]);
        assert!(store.reap(lost, 3).await.unwrap().is_some());
        assert_eq!(store.reap(kept, 3).await.unwrap(), None);
        let shown: Vec<_> = store.workers().await.unwrap().iter().map(|worker| worker.id).collect();
        assert!(shown.contains(&living) && !shown.contains(&dead));
    }
}

async fn a_turn_over_a_step_back_has_taken_no_negative_time(db: &Database) {
    let (_, _, lease, mail) = running(&db.store).await;
    let (_, cancelled, other, _) = running(&db.store).await;
    db.clock.step(-LONG_MS);
    let finished = db.store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    db.store.cancel_job(cancelled).await.unwrap();
    let taken_back = db.store.abandon(&other, 3).await.unwrap().unwrap();
    for ended in finished.ended.iter().chain(&taken_back.ended) {
        let Outcome::Answered(result) = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!(result.duration_ms, 0);
    }
    assert_eq!((finished.ended.len(), taken_back.ended.len()), (1, 1));
}

async fn a_locked_session_stops_no_renewal(db: &Database) {
    let worker = registered(&db.store).await;
    let session = session_of(&db.store, worker).await;
    let lock = db.lock_rows("SELECT id FROM sessions FOR UPDATE").await;
    at_once(db.store.renew(beat(worker))).await;
    let held = at_once(db.store.held(worker)).await;
    assert_eq!(held.iter().map(|lease| lease.session).collect::<Vec<_>>(), [session]);
    if let Some(lock) = lock {
        lock.release().await;
    }
}

async fn a_locked_session_is_reaped_in_the_next_round(db: &Database) {
    let store = &db.store;
    let worker = registered(store).await;
    let (locked, other) = (session_of(store, worker).await, session_of(store, worker).await);
    store.declare_dead(worker, None).await.unwrap();
    let lock = db.lock_rows("SELECT id FROM sessions ORDER BY id LIMIT 1 FOR UPDATE").await;
    let reaped = at_once(store.reap(locked, 3)).await;
    assert_eq!(reaped.is_some(), lock.is_none());
    assert!(at_once(store.reap(other, 3)).await.is_some());
    if let Some(lock) = lock {
        assert_eq!(store.reapable(None, 10).await.unwrap(), [locked]);
        lock.release().await;
        assert!(store.reap(locked, 3).await.unwrap().is_some());
    }
    assert_eq!(store.reapable(None, 10).await.unwrap(), []);
}

async fn a_locked_session_is_not_abandoned_yet(db: &Database) {
    let (_, _, lease, _) = running(&db.store).await;
    if let Some(lock) = db.lock_rows("SELECT id FROM sessions FOR UPDATE").await {
        assert_eq!(at_once(db.store.abandon(&lease, 3)).await, None);
        lock.release().await;
    }
    assert!(db.store.abandon(&lease, 3).await.unwrap().is_some());
}

/// The end of its last attempt wakes the parent.
async fn a_session_whose_parent_is_locked_is_taken_in_the_next_round(db: &Database) {
    let store = &db.store;
    let (_, _, lease, mail) = running(store).await;
    let dead = start_child(store, &lease, mail.turn, "c1").await.session;
    begin_and_die(store, dead).await;
    let broken = start_child(store, &lease, mail.turn, "c2").await.session;
    let (broken, _) = begin(store, broken).await;
    if let Some(lock) = db.lock_rows("SELECT id FROM sessions ORDER BY id LIMIT 1 FOR UPDATE").await {
        assert_eq!(at_once(store.reap(dead, 1)).await, None);
        assert_eq!(at_once(store.abandon(&broken, 1)).await, None);
        lock.release().await;
    }
    assert_eq!(store.reap(dead, 1).await.unwrap().unwrap().ended.len(), 1);
    assert_eq!(store.abandon(&broken, 1).await.unwrap().unwrap().ended.len(), 1);
}

async fn a_locked_worker_is_not_declared_dead_yet(db: &Database) {
    let worker = registered(&db.store).await;
    if let Some(lock) = db.lock_rows("SELECT id FROM workers FOR UPDATE").await {
        assert!(!at_once(db.store.declare_dead(worker, None)).await);
        lock.release().await;
    }
    assert!(db.store.declare_dead(worker, None).await.unwrap());
}

async fn a_bad_row_keeps_no_other_from_being_reaped(db: &Database) {
    let store = &db.store;
    let worker = registered(store).await;
    let bad = session_of(store, worker).await;
    db.execute("UPDATE sessions SET engine = 'of another world'").await;
    let good = session_of(store, worker).await;
    store.declare_dead(worker, None).await.unwrap();
    assert_eq!(store.reapable(None, 10).await.unwrap(), [bad, good]);
    let error = store.reap(bad, 3).await.unwrap_err();
    assert!(matches!(error, StoreError::Inconsistent { .. }), "{error:?}");
    // Whoever goes through them in pages comes past it.
    assert_eq!(store.reapable(Some(bad), 10).await.unwrap(), [good]);
    assert!(store.reap(good, 3).await.unwrap().is_some());
    db.execute("UPDATE sessions SET engine = 'openai'").await;
    assert!(store.reap(bad, 3).await.unwrap().is_some());
}

async fn sessions_of_a_worker_whose_row_is_gone_can_be_reaped(db: &Database) {
    let worker = registered(&db.store).await;
    let session = session_of(&db.store, worker).await;
    db.execute("DELETE FROM workers").await;
    assert_eq!(db.store.reapable(None, 10).await.unwrap(), [session]);
    assert_eq!(db.store.held(worker).await.unwrap(), []);
    let reaped = db.store.reap(session, 3).await.unwrap().unwrap();
    assert_eq!((reaped.worker, reaped.next.is_some()), (worker, true));
    assert_eq!(begin(&db.store, session).await.1.attempt, 2);
}

/// Between two turns, when somebody has cancelled what waits, a session has a worker and no open job.
async fn a_session_of_a_dead_worker_is_not_busy_once_its_jobs_have_ended(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    admit(store, session, "second").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    store.cancel_session(session).await.unwrap();
    assert!(matches!(
        try_cut(store, session, roundhouse_shared::domain::Cut::Reset).await,
        Err(StoreError::SessionBusy)
    ));
    store.declare_dead(lease.worker, None).await.unwrap();
    assert_eq!(store.admit(&message(session, "third")).await.unwrap().kind, JobKind::Chat);
    assert!(store.reap(session, 3).await.unwrap().unwrap().next.is_some());
}
