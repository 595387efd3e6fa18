//! The two schemas are one, and processes that start together bring them up together.

use std::collections::BTreeSet;
use std::path::Path;

use roundhouse_shared::store::Store;
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    the_database_answers_and_tells_the_time,
    a_schema_that_is_up_to_date_is_left_alone,
    many_processes_that_start_together_migrate_once,
    a_second_process_sees_what_the_first_wrote,
    a_store_that_is_closed_is_away,
];

async fn the_database_answers_and_tells_the_time(store: &Store) {
    store.ping().await.unwrap();
    let (before, after) = (store.now_ms().await.unwrap(), store.now_ms().await.unwrap());
    // 2020: milliseconds, not seconds and not microseconds.
    assert!((1_577_836_800_000..=after).contains(&before) && after < 10_000_000_000_000, "{before} {after}");
}

async fn a_schema_that_is_up_to_date_is_left_alone(store: &Store) {
    let session = session(store).await;
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    assert!(store.session(session).await.unwrap().is_some());
}

async fn many_processes_that_start_together_migrate_once(db: &Database) {
    let server = db.server();
    for _ in 0..3 {
        let empty = Database::create_empty(server).await;
        let mut processes = JoinSet::new();
        for _ in 0..6 {
            let store = empty.connect_again().await;
            processes.spawn(async move {
                store.migrate().await.unwrap();
                let session = session(&store).await;
                store.close().await;
                session
            });
        }
        assert_eq!(processes.join_all().await.len(), 6);
        assert_eq!(empty.number("SELECT count(*) FROM sessions").await, 6);
        empty.remove().await;
    }
}

async fn a_second_process_sees_what_the_first_wrote(db: &Database) {
    let other = db.connect_again().await;
    let session = session(&db.store).await;
    let job = admit(&other, session, "hello").await;
    let (lease, mail) = begin(&db.store, session).await;
    assert_eq!(jobs_of(&mail), [job]);
    other.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(contents(&db.store, session).await, ["hello", "ok"]);
    other.close().await;
    db.store.ping().await.unwrap();
}

async fn a_store_that_is_closed_is_away(db: &Database) {
    let other = db.connect_again().await;
    other.close().await;
    let error = other.ping().await.unwrap_err();
    assert!(error.is_outage(), "{error:?}");
}

/// `table.column type null?`, with the types of both databases under one name.
const SQLITE_COLUMNS: &str = "SELECT t.name || '.' || c.name || CASE \
    WHEN c.type = 'BLOB' THEN ' id' WHEN c.type = 'TEXT' THEN ' text' WHEN c.type = 'INTEGER' THEN ' number' ELSE c.type END \
    || CASE WHEN c.\"notnull\" = 1 THEN '' ELSE ' or null' END \
    FROM sqlite_master t JOIN pragma_table_info(t.name) c \
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE '_sqlx_%'";

const POSTGRES_COLUMNS: &str = "SELECT table_name || '.' || column_name || CASE \
    WHEN data_type = 'uuid' THEN ' id' WHEN data_type = 'text' THEN ' text' \
    WHEN data_type IN ('bigint', 'boolean') THEN ' number' ELSE data_type END \
    || CASE WHEN is_nullable = 'NO' THEN '' ELSE ' or null' END \
    FROM information_schema.columns WHERE table_schema = current_schema() AND table_name NOT LIKE '_sqlx_%'";

const SQLITE_INDEXES: &str =
    "SELECT tbl_name || ' ' || name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL";

const POSTGRES_INDEXES: &str = "SELECT tablename || ' ' || indexname FROM pg_indexes \
    WHERE schemaname = current_schema() AND tablename NOT LIKE '_sqlx_%' AND indexname NOT LIKE '%_pkey'";

#[test]
fn both_databases_have_the_same_tables_columns_and_indexes() {
    runtime().block_on(async {
        let sqlite = Database::create(Server::Sqlite).await;
        let postgres = Database::create(Server::Postgres).await;
        let columns = (set(&sqlite, SQLITE_COLUMNS).await, set(&postgres, POSTGRES_COLUMNS).await);
        let indexes = (set(&sqlite, SQLITE_INDEXES).await, set(&postgres, POSTGRES_INDEXES).await);
        sqlite.remove().await;
        postgres.remove().await;
        for (sqlite, postgres) in [columns, indexes] {
            assert!(!sqlite.is_empty());
            let differ: Vec<_> = sqlite.symmetric_difference(&postgres).collect();
            assert!(differ.is_empty(), "only in one of them: {differ:#?}");
        }
    });
}

async fn set(db: &Database, sql: &'static str) -> BTreeSet<String> {
    db.texts(sql).await.into_iter().collect()
}

#[test]
fn both_databases_have_the_same_migrations() {
    let names = |server: &str| -> BTreeSet<_> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations").join(server);
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert!(!names("sqlite").is_empty());
    assert_eq!(names("sqlite"), names("postgres"));
}
