//! A database that refuses for a while: what is told of it, and that it hurts nobody else.

use std::time::Duration;

use roundhouse_shared::code::{Code, HasCode as _};
use roundhouse_shared::domain::{JobState, SessionId};
use roundhouse_shared::store::{Store, StoreError};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::*;

on_postgres![
    a_server_that_has_become_read_only_is_left_for_the_one_that_is_not,
    callers_of_a_locked_session_leave_connections_for_all_others,
    a_run_passes_the_callers_of_its_session,
    whoever_waits_for_a_locked_session_is_told_in_time,
    a_statement_that_takes_too_long_is_an_outage,
    a_connection_that_is_closed_is_an_outage,
    who_loses_a_deadlock_begins_anew,
    the_isolation_of_the_server_does_not_matter,
];

/// How long anything may take that ought to happen at once. Long, because the machine may be slow.
const SOON: Duration = Duration::from_mins(1);

#[track_caller]
fn assert_outage<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    let error = result.unwrap_err();
    assert!(error.is_outage(), "{error:?}");
    assert_eq!(error.code(), Code::StoreUnavailable);
}

async fn execute(connection: &mut PgConnection, sql: String) {
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
}

/// Locks a session's row, until the connection ends its transaction.
async fn lock(connection: &mut PgConnection, session: SessionId) {
    execute(connection, "BEGIN".to_owned()).await;
    execute(connection, format!("SELECT FROM sessions WHERE id = '{session}' FOR UPDATE")).await;
}

/// Waits until so many connections to this case's database wait for a lock.
async fn until_waiting(db: &Database, connections: i64) {
    // Schemas are the case's own, the database is shared.
    let sql = "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_locks t ON t.pid = l.pid \
               WHERE NOT l.granted AND t.relation = 'sessions'::regclass";
    let waiting = async {
        while db.number(sql).await < connections {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, waiting).await.expect("connections that wait for a lock");
}

async fn a_server_that_has_become_read_only_is_left_for_the_one_that_is_not(db: &Database) {
    let mut admin = db.postgres().await;
    let role = format!("failover_{}", uuid::Uuid::now_v7().simple());
    execute(&mut admin, format!("CREATE ROLE {role} SUPERUSER LOGIN")).await;
    let session = session(&db.store).await;
    // A connection has what was set when it was opened, as one to the old primary goes on leading there.
    execute(&mut admin, format!("ALTER ROLE {role} SET default_transaction_read_only = on")).await;
    let store = db.connect_with(&format!("user={role}")).await;

    assert_outage(store.admit(&message(session, "to the old primary")).await);
    assert!(store.session(session).await.unwrap().is_some(), "it can be read");
    execute(&mut admin, format!("ALTER ROLE {role} RESET default_transaction_read_only")).await;
    // One more may still be in the pool, which the reader opened; with its error all go that were opened before.
    let mut refused = 0;
    for n in 0..4 {
        if store.admit(&message(session, &n.to_string())).await.is_err() {
            refused += 1;
        }
    }
    assert!(refused <= 1, "{refused} of 4");

    store.close().await;
    execute(&mut admin, format!("DROP ROLE {role}")).await;
}

async fn callers_of_a_locked_session_leave_connections_for_all_others(db: &Database) {
    let (locked, free) = (session(&db.store).await, session(&db.store).await);
    let mut other = db.postgres().await;
    lock(&mut other, locked).await;
    let mut callers = JoinSet::new();
    for n in 0..32 {
        let store = db.store.clone();
        callers.spawn(async move { store.admit(&message(locked, &n.to_string())).await.map(drop) });
    }
    until_waiting(db, 1).await;

    for n in 0..20 {
        db.store.admit(&message(free, &n.to_string())).await.unwrap();
    }
    for refused in timeout(SOON, callers.join_all()).await.unwrap() {
        assert_outage(refused);
    }
    execute(&mut other, "COMMIT".to_owned()).await;
    db.store.admit(&message(locked, "at last")).await.unwrap();
    assert_eq!(contents(&db.store, locked).await, ["at last"]);
}

async fn a_run_passes_the_callers_of_its_session(db: &Database) {
    let (session, _, lease, mail) = running(&db.store).await;
    let mut other = db.postgres().await;
    lock(&mut other, session).await;
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let store = db.store.clone();
        callers.spawn(async move { store.cancel_session(session).await });
    }
    until_waiting(db, 2).await;
    let store = db.store.clone();
    let mut run = JoinSet::new();
    run.spawn(async move {
        let written = [calls("look", &["c1"])];
        store.append(&lease, mail.turn, &written).await
    });
    until_waiting(db, 3).await;
    execute(&mut other, "COMMIT".to_owned()).await;
    timeout(SOON, run.join_next()).await.unwrap().unwrap().unwrap().unwrap();
    timeout(SOON, callers.join_all()).await.unwrap();
}

async fn whoever_waits_for_a_locked_session_is_told_in_time(db: &Database) {
    let (session, _, lease, mail) = running(&db.store).await;
    let mut other = db.postgres().await;
    lock(&mut other, session).await;
    let told = timeout(SOON, db.store.finish(&lease, answered(mail.turn, "done"))).await;
    assert_outage(told.unwrap());
    execute(&mut other, "COMMIT".to_owned()).await;
    db.store.finish(&lease, answered(mail.turn, "done")).await.unwrap();
    assert_eq!(contents(&db.store, session).await, ["first", "done"]);
}

async fn a_statement_that_takes_too_long_is_an_outage(db: &Database) {
    let session = session(&db.store).await;
    let store = db.connect_with("options[statement_timeout]=500ms").await;
    let mut other = db.postgres().await;
    lock(&mut other, session).await;
    assert_outage(store.admit(&message(session, "hello")).await);
    execute(&mut other, "COMMIT".to_owned()).await;
    store.admit(&message(session, "hello")).await.unwrap();
    store.close().await;
}

async fn a_connection_that_is_closed_is_an_outage(db: &Database) {
    let session = session(&db.store).await;
    let mut other = db.postgres().await;
    lock(&mut other, session).await;
    let store = db.store.clone();
    let mut caller = JoinSet::new();
    caller.spawn(async move { store.admit(&message(session, "cut off")).await });
    until_waiting(db, 1).await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_locks t \
                ON t.pid = l.pid WHERE NOT l.granted AND t.relation = 'sessions'::regclass) AS waiting";
    assert_eq!(db.number(kill).await, 1);
    assert_outage(timeout(SOON, caller.join_next()).await.unwrap().unwrap().unwrap());
    execute(&mut other, "COMMIT".to_owned()).await;
    db.store.admit(&message(session, "whole")).await.unwrap();
    assert_eq!(contents(&db.store, session).await, ["whole"]);
}

async fn who_loses_a_deadlock_begins_anew(db: &Database) {
    let (parent, _, lease, mail) = running(&db.store).await;
    let child = start_child(&db.store, &lease, mail.turn, "c1").await;
    let mut other = db.postgres().await;
    // Only the store looks for deadlocks, so the store is the one that loses.
    execute(&mut other, "SET deadlock_timeout = '10min'".to_owned()).await;
    let store = db.connect_with("options[deadlock_timeout]=3s").await;
    lock(&mut other, parent).await;
    let caller = store.clone();
    // The end of the child wakes its parent: both are locked, in this order.
    let mut cancel = JoinSet::new();
    cancel.spawn(async move { caller.cancel_job(child.job).await });
    until_waiting(db, 1).await;
    let both = format!("SELECT FROM sessions WHERE id = '{}' FOR UPDATE", child.session);
    timeout(SOON, execute(&mut other, both)).await.expect("the store to lose");
    execute(&mut other, "COMMIT".to_owned()).await;

    let (_, cancelled) = timeout(SOON, cancel.join_next()).await.unwrap().unwrap().unwrap().unwrap();
    assert_eq!(ids(&cancelled.ended), [child.job]);
    assert_eq!(job(&store, child.job).await.state, JobState::Cancelled);
    store.close().await;
}

async fn the_isolation_of_the_server_does_not_matter(db: &Database) {
    let session = session(&db.store).await;
    let store = db.connect_with("options[default_transaction_isolation]=serializable").await;
    let mut callers = JoinSet::new();
    for n in 0..40 {
        let store: Store = store.clone();
        callers.spawn(async move { store.admit(&message(session, &n.to_string())).await.map(drop) });
    }
    assert!(callers.join_all().await.iter().all(Result::is_ok));
    assert_eq!(contents(&store, session).await.len(), 40);
    store.close().await;
}
