//! The sweep: the oldest first, only what can be run, and nobody stands in another's way.

use std::time::Duration;

use roundhouse_shared::domain::{Cut, EngineKind, JobKind, SessionId};
use roundhouse_shared::store::{Begin, Due, Needs, NewSession, Store, Sweep};

use crate::support::*;

on_both_databases![
    mail_that_nobody_can_run_hides_no_other,
    the_oldest_are_rung_for_first_and_none_twice,
    what_has_no_mail_leaves_the_list,
    mail_that_comes_while_a_session_runs_is_found_after_it,
    a_session_that_was_refused_says_so_until_it_runs,
    a_cut_that_needs_an_engine_is_left_to_those_that_have_it,
    each_kind_of_mail_has_its_own_age,
    a_session_that_is_locked_is_left_for_the_next_time,
    a_sweep_of_many_is_short,
];

/// Sessions of the agent `gone`, each with a message that waits since long ago.
async fn forgotten(db: &Database, sessions: usize) {
    let ids = match db.server() {
        Server::Sqlite => {
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n}) \
                           SELECT randomblob(16), 'gone', 'openai', '', '{}', 1, 1, i FROM n"
        }
        Server::Postgres => {
            "SELECT gen_random_uuid(), 'gone', 'openai', '', '{}', 1, 1, i FROM generate_series(1, {n}) AS n (i)"
        }
    };
    let ids = ids.replace("{n}", &sessions.to_string());
    let into = "INSERT INTO sessions (id, agent, engine, cwd, metadata, created_ms, updated_ms, enqueued_ms)";
    db.execute(leaked(format!("{into} {ids}"))).await;
    // A job has its session's id: any id that is not used will do.
    let jobs = "INSERT INTO jobs (id, session_id, seq, kind, state, created_ms) \
                SELECT id, id, 1, 'chat', 'pending', 1 FROM sessions WHERE agent = 'gone'";
    db.execute(jobs).await;
    if db.server() == Server::Postgres {
        db.execute("ANALYZE").await;
    }
}

/// A query that lasts as long as the test.
fn leaked(sql: String) -> &'static str {
    Box::leak(sql.into_boxed_str())
}

async fn sweep(store: &Store, agents: &[&str], limit: i64) -> Vec<SessionId> {
    let due = store.sweep(sweeping(agents, 0, limit)).await.unwrap();
    due.into_iter().map(|due| due.job.session).collect()
}

async fn mail_that_nobody_can_run_hides_no_other(db: &Database) {
    forgotten(db, 1_500).await;
    let session = session(&db.store).await;
    admit(&db.store, session, "hello").await;

    assert_eq!(sweep(&db.store, &["helper"], 500).await, [session]);
    // Nor is it lost: who has the agent finds it.
    assert_eq!(sweep(&db.store, &["gone", "helper"], 100).await.len(), 101);

    db.execute("DELETE FROM sessions WHERE agent = 'gone'").await;
}

async fn the_oldest_are_rung_for_first_and_none_twice(db: &Database) {
    forgotten(db, 250).await;
    let rung = |due: Vec<Due>| due.into_iter().map(|due| due.job.session).collect::<Vec<_>>();
    let mut all = Vec::new();
    for expected in [100, 100, 50, 0] {
        // Rung for just now, they are not due.
        let due = db.store.sweep(sweeping(&["gone"], LONG_MS, 100)).await.unwrap();
        assert_eq!(due.len(), expected);
        all.extend(rung(due));
    }
    let sorted = "SELECT lower(hex(id)) FROM sessions ORDER BY created_ms";
    let sorted = if db.server() == Server::Postgres {
        "SELECT replace(id::text, '-', '') FROM sessions"
    } else {
        sorted
    };
    let mut known = db.texts(sorted).await;
    known.sort();
    let mut found: Vec<_> = all.iter().map(|session| session.0.simple().to_string()).collect();
    found.sort();
    assert_eq!(found, known);
    db.execute("DELETE FROM sessions").await;
}

async fn what_has_no_mail_leaves_the_list(db: &Database) {
    let to_ring = async || db.number("SELECT count(*) FROM sessions WHERE enqueued_ms > 0").await;
    let session = session(&db.store).await;
    let job = admit(&db.store, session, "hello").await;
    assert_eq!(to_ring().await, 1);
    let (lease, mail) = begin(&db.store, session).await;
    assert_eq!(to_ring().await, 0, "it is begun");
    db.store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(to_ring().await, 0);

    // What is cancelled before it begins is only found.
    let second = admit(&db.store, session, "again").await;
    assert_ne!(job, second);
    db.store.cancel_job(second).await.unwrap();
    assert_eq!(rung_again(&db.store, 0, 10).await, []);
    assert_eq!(to_ring().await, 0);
    // It comes back with the next message.
    let third = admit(&db.store, session, "third").await;
    assert_eq!(rung_again(&db.store, 0, 10).await[0].job, third);

    // Many that have none hide nobody that has.
    db.execute("UPDATE sessions SET enqueued_ms = 2").await;
    forgotten(db, 1_000).await;
    db.execute("UPDATE sessions SET agent = 'helper', enqueued_ms = 1 WHERE agent = 'gone'").await;
    db.execute("DELETE FROM jobs WHERE kind = 'chat' AND message_id IS NULL").await;
    assert_eq!(sweep(&db.store, &["helper"], 100).await, [session]);
    db.execute("DELETE FROM sessions WHERE created_ms = 1").await;
}

async fn mail_that_comes_while_a_session_runs_is_found_after_it(store: &Store) {
    let (session, _, lease, _) = running(store).await;
    let injected = admit(store, session, "injected").await;
    assert_eq!(rung_again(store, 0, 10).await, []);
    store.hand_back(&lease).await.unwrap();
    let again = rung_again(store, 0, 10).await;
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].job, injected, "the turn that was cut off goes on first");
}

async fn a_session_that_was_refused_says_so_until_it_runs(store: &Store) {
    let session = session(store).await;
    let refused = async || {
        let due = store.sweep(sweeping(&["helper"], 0, 10)).await.unwrap();
        due.iter().map(|due| due.refused).collect::<Vec<_>>()
    };
    admit(store, session, "hello").await;
    assert_eq!(refused().await, [false]);
    for _ in 0..2 {
        store.refuse(session).await.unwrap();
        assert_eq!(refused().await, [true]);
    }
    let (lease, mail) = begin(store, session).await;
    // Who has it, has it.
    store.refuse(session).await.unwrap();
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    admit(store, session, "again").await;
    assert_eq!(refused().await, [false]);
}

async fn a_cut_that_needs_an_engine_is_left_to_those_that_have_it(db: &Database) {
    let store = &db.store;
    let session = native(db, 1).await;
    let id = admit_cut(store, session, Cut::Fork(whole())).await;
    let with = |agents: &'static [&'static str], engines: &'static [EngineKind]| Sweep {
        engines,
        ..sweeping(agents, 0, 10)
    };
    let found = async |wanted: Sweep<'_>| {
        let due = store.sweep(wanted).await.unwrap();
        due.iter().map(|due| (due.job.job, due.job.kind)).collect::<Vec<_>>()
    };
    // Nobody knows yet whether it copies a conversation.
    assert_eq!(found(with(&["helper"], &[EngineKind::OpenAi])).await, [(id, JobKind::Fork)]);
    let here = |needs: Needs<'_>| needs == Needs::Engine(EngineKind::OpenAi);
    let begun = store.begin(session, registered(store).await, here).await.unwrap();
    assert!(matches!(begun, Begin::NotHere), "{begun:?}");
    store.refuse(session).await.unwrap();
    assert_eq!(found(with(&["helper"], &[EngineKind::OpenAi])).await, []);
    assert_eq!(found(with(&[], &[])).await, []);
    assert_eq!(found(with(&[], &[EngineKind::ClaudeCli])).await, [(id, JobKind::Fork)]);
}

async fn each_kind_of_mail_has_its_own_age(store: &Store) {
    let (chat, cut) = (session(store).await, talked(store, EngineKind::OpenAi, 1).await);
    admit(store, chat, "hello").await;
    admit_cut(store, cut, Cut::Reset).await;
    let (injected, _, lease, mail) = running(store).await;
    admit(store, injected, "injected").await;
    // The first of its messages was answered: only the other is left.
    store.cancel_job(mail.jobs[0].job).await.unwrap();
    store.hand_back(&lease).await.unwrap();
    let found = async |wanted: Sweep<'_>| {
        let due = store.sweep(wanted).await.unwrap();
        let mut found: Vec<_> = due.iter().map(|due| due.job.session).collect();
        found.sort();
        found
    };
    let none = sweeping(&["helper"], LONG_MS, 10);
    assert_eq!(found(none).await, []);
    assert_eq!(found(Sweep { inject_ms: 0, ..none }).await, [injected]);
    assert_eq!(found(Sweep { maintenance_ms: 0, ..none }).await, [cut]);
    let mut all = [chat, injected];
    all.sort();
    assert_eq!(found(Sweep { chat_ms: 0, inject_ms: 0, ..none }).await, all);
}

async fn a_session_that_is_locked_is_left_for_the_next_time(db: &Database) {
    let store = &db.store;
    let new = NewSession { title: Some("locked".to_owned()), ..new_session() };
    let locked = store.create_session(&new).await.unwrap().id;
    let free = session(store).await;
    admit(store, locked, "hello").await;
    admit(store, free, "hello").await;
    if db.server() == Server::Postgres {
        db.execute("BEGIN").await;
        db.execute("SELECT id FROM sessions WHERE title = 'locked' FOR UPDATE").await;
        let swept = tokio::time::timeout(Duration::from_mins(1), sweep(store, &["helper"], 10)).await;
        assert_eq!(swept.expect("a locked session stops the sweep"), [free]);
        db.execute("ROLLBACK").await;
    }
    let mut all = sweep(store, &["helper"], 10).await;
    all.sort();
    let mut expected = [locked, free];
    expected.sort();
    assert_eq!(all, expected);
}

async fn a_sweep_of_many_is_short(db: &Database) {
    forgotten(db, 20_000).await;
    let session = session(&db.store).await;
    admit(&db.store, session, "hello").await;
    assert_eq!(sweep(&db.store, &["helper"], 500).await, [session]);
    assert_eq!(sweep(&db.store, &["gone"], 500).await.len(), 500);
    db.execute("DELETE FROM sessions WHERE agent = 'gone'").await;
}
