//! A database of one case's own: a file, or a schema, which is made much faster than a Postgres database.

use std::path::PathBuf;

use roundhouse_shared::store::{Clock, Settings, Store};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tempfile::TempDir;

use crate::proxy::{Proxy, target_of};

const POSTGRES_URL: &str = "ROUNDHOUSE_TEST_POSTGRES_URL";

/// The two databases that we support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Sqlite,
    Postgres,
}

/// An empty, migrated database, the store on it, and a way past the store.
pub(crate) struct Database {
    pub(crate) store: Store,
    /// The clock of every store on it.
    pub(crate) clock: Clock,
    settings: Settings,
    folder: TempDir,
    raw: Raw,
}

/// A connection of the case's own, to look at rows that the store does not show.
enum Raw {
    Sqlite(SqlitePool),
    Postgres { pool: PgPool, schema: String },
}

/// Rows that are locked.
pub(crate) struct RowLock(PgConnection);

impl RowLock {
    /// Lets them go.
    pub(crate) async fn release(mut self) {
        self.0.execute("ROLLBACK").await.unwrap();
        self.0.close().await.unwrap();
    }
}

impl AsRef<Store> for Database {
    fn as_ref(&self) -> &Store {
        &self.store
    }
}

impl AsRef<Self> for Database {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Database {
    /// A migrated one.
    pub(crate) async fn create(server: Server) -> Self {
        let db = Self::create_empty(server).await;
        db.store.migrate().await.unwrap();
        db
    }

    /// One without any table.
    pub(crate) async fn create_empty(server: Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (url, raw) = match server {
            Server::Sqlite => ("sqlite".to_owned(), sqlite(folder.path().join("roundhouse.db"))),
            Server::Postgres => postgres().await,
        };
        let settings = Settings { url, max_connections: 8, ..Settings::default() };
        let store = Store::connect(&settings, folder.path()).await.unwrap();
        Self { store, clock: settings.clock.clone(), settings, folder, raw }
    }

    /// Where it is.
    pub(crate) fn server(&self) -> Server {
        match self.raw {
            Raw::Sqlite(_) => Server::Sqlite,
            Raw::Postgres { .. } => Server::Postgres,
        }
    }

    /// Another store on the same database, as another process would have it.
    pub(crate) async fn connect_again(&self) -> Store {
        Store::connect(&self.settings, self.folder.path()).await.unwrap()
    }

    /// Where its server listens.
    pub(crate) fn address(&self) -> String {
        target_of(&self.settings.url)
    }

    /// The same through a proxy.
    pub(crate) async fn connect_through(&self, proxy: &Proxy) -> Store {
        let settings = Settings { url: proxy.url(&self.settings.url), ..self.settings.clone() };
        Store::connect(&settings, self.folder.path()).await.unwrap()
    }

    /// Another store on the same database, with further parts of a URL: `options[…]=…&…`.
    pub(crate) async fn connect_with(&self, further: &str) -> Store {
        let url = format!("{}&{further}", self.settings.url);
        Store::connect(&Settings { url, ..self.settings.clone() }, self.folder.path()).await.unwrap()
    }

    /// A connection to a Postgres of the case's own, to get in the way of the store's.
    pub(crate) async fn postgres(&self) -> PgConnection {
        PgConnection::connect(&self.settings.url).await.unwrap()
    }

    /// The number that a query gives.
    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        let number = match &self.raw {
            Raw::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
            Raw::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await,
        };
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The texts that a query gives.
    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        let texts = match &self.raw {
            Raw::Sqlite(pool) => sqlx::query_scalar(sql).fetch_all(pool).await,
            Raw::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_all(pool).await,
        };
        texts.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Changes what no method of the store changes.
    pub(crate) async fn execute(&self, sql: &'static str) {
        let done = match &self.raw {
            Raw::Sqlite(pool) => pool.execute(sql).await.map(drop),
            Raw::Postgres { pool, .. } => pool.execute(sql).await.map(drop),
        };
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Locks rows as an operator would who has forgotten a transaction, until this is dropped. SQLite has no locks of rows.
    pub(crate) async fn lock_rows(&self, sql: &'static str) -> Option<RowLock> {
        let Raw::Postgres { schema, .. } = &self.raw else { return None };
        let mut connection = PgConnection::connect(&self.settings.url).await.unwrap();
        connection.execute(AssertSqlSafe(format!("SET search_path = {schema}"))).await.unwrap();
        connection.execute("BEGIN").await.unwrap();
        let locked = connection.fetch_all(sql).await.unwrap();
        assert!(!locked.is_empty(), "{sql} locks nothing");
        Some(RowLock(connection))
    }

    /// Closes and deletes it.
    pub(crate) async fn remove(self) {
        self.store.close().await;
        match self.raw {
            Raw::Sqlite(pool) => pool.close().await,
            Raw::Postgres { pool, schema } => {
                pool.execute(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).await.unwrap();
                pool.close().await;
            }
        }
        self.folder.close().unwrap();
    }
}

fn sqlite(file: PathBuf) -> Raw {
    let options = SqliteConnectOptions::new().filename(file);
    Raw::Sqlite(SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options))
}

async fn postgres() -> (String, Raw) {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where the server is")]
    let url = std::env::var(POSTGRES_URL)
        .unwrap_or_else(|_| panic!("run `cargo xtask test`, or set {POSTGRES_URL} to a superuser's URL"));
    let schema = format!("store_{}", uuid::Uuid::now_v7().simple());
    let joint = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{joint}options[search_path]={schema}");
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    pool.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await.unwrap();
    (url, Raw::Postgres { pool, schema })
}
