//! Native sessions that are to be deleted.

use roundhouse_shared::domain::{Cut, EngineKind, SessionId};
use roundhouse_shared::store::{Store, WorkEnd};

use crate::support::*;

on_both_databases![
    a_copy_that_was_never_used_comes_due,
    what_a_deleted_session_leaves_is_due_at_once,
    what_cannot_be_deleted_is_given_up,
    without_a_lease_nothing_is_announced,
];

async fn due(store: &Store, host: &str) -> Vec<String> {
    let due = store.take_doomed(host, EngineKind::ClaudeCli, 10, LONG_MS).await.unwrap();
    due.into_iter().map(|doomed| doomed.native.native).collect()
}

async fn a_copy_that_was_never_used_comes_due(db: &Database) {
    let store = &db.store;
    let session = native(db, 1).await;
    let job = admit_cut(store, session, Cut::Reset).await;
    let (lease, _) = begin_cut(store, session).await;
    store.doom(&lease, &copy_of("in time", session), LONG_MS).await.unwrap();
    store.doom(&lease, &copy_of("now", session), 0).await.unwrap();
    let problem = roundhouse_shared::problem::Problem::new(EngineKind::ClaudeCli.fork_failed());
    store.finish_work(&lease, job, &WorkEnd::Failed(problem)).await.unwrap();

    assert!(due(store, "elsewhere").await.is_empty());
    // A worker without the engine does not spend a try.
    assert!(store.take_doomed("here", EngineKind::OpenAi, 10, LONG_MS).await.unwrap().is_empty());
    let found = store.take_doomed("here", EngineKind::ClaudeCli, 10, LONG_MS).await.unwrap();

    let [now] = &found[..] else { panic!("{found:?}") };
    assert_eq!(now.native, copy_of("now", session));
    assert_eq!((now.agent.as_str(), now.engine), ("helper", EngineKind::ClaudeCli));
    assert_eq!((now.attempt, now.last), (1, false));
    // Whoever has taken it has time.
    assert!(due(store, "here").await.is_empty());
    store.forget_doomed("now").await.unwrap();
    assert_eq!(db.texts("SELECT native_session_id FROM doomed_natives").await, ["in time"]);
}

async fn what_a_deleted_session_leaves_is_due_at_once(db: &Database) {
    let session = native(db, 1).await;
    db.store.delete_session(session).await.unwrap();
    assert_eq!(due(&db.store, "here").await, ["n1"]);
    // Where nobody knows where it is, nobody looks for it; an engine without any leaves nothing.
    let nowhere = native(db, 1).await;
    db.execute("UPDATE sessions SET native_host = NULL").await;
    db.store.delete_session(nowhere).await.unwrap();
    let replayed = talked(&db.store, EngineKind::OpenAi, 1).await;
    db.store.delete_session(replayed).await.unwrap();
    db.store.forget_doomed("n1").await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM doomed_natives").await, 0);
}

async fn what_cannot_be_deleted_is_given_up(db: &Database) {
    let session = native(db, 1).await;
    db.store.delete_session(session).await.unwrap();
    for attempt in 1..=10 {
        let found = db.store.take_doomed("here", EngineKind::ClaudeCli, 10, 0).await.unwrap();
        assert_eq!((found.len(), found[0].attempt, found[0].last), (1, attempt, attempt == 10));
    }
    assert!(db.store.take_doomed("here", EngineKind::ClaudeCli, 10, 0).await.unwrap().is_empty());
}

async fn without_a_lease_nothing_is_announced(db: &Database) {
    let session = native(db, 1).await;
    admit_cut(&db.store, session, Cut::Reset).await;
    let (lease, _) = begin_cut_as(&db.store, session, DEAD_MS).await;
    db.store.reap(session, 3).await.unwrap();
    assert_lost(&db.store.doom(&lease, &copy_of("n2", SessionId::generate()), 0).await);
    assert_eq!(db.number("SELECT count(*) FROM doomed_natives").await, 0);
    let (lease, work) = begin_cut(&db.store, session).await;
    db.store.finish_work(&lease, work.job, &ready()).await.unwrap();
}
