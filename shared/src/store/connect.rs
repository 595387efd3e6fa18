//! Opening the store: which database, its pools, its schema.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::db::{Db, Pools};
use super::gate::Gates;
use super::outage::is_outage;
use super::postgres::PostgresPool;
use super::{Clock, Store, StoreError};

static SQLITE: Migrator = sqlx::migrate!("../migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("../migrations/postgres");

/// How long a caller waits for a connection before the database counts as away.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The `[store]` section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `sqlite` (a file in the data directory), `sqlite:<path>` or `postgres://…`.
    pub url: String,
    /// Most connections to Postgres; for SQLite, most readers.
    pub max_connections: u32,
    /// Whether Postgres is behind `PgBouncer` in transaction mode.
    pub pgbouncer: bool,
    /// A shift of the database's clock, for tests.
    #[serde(skip)]
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self { url: "sqlite".to_owned(), max_connections: 16, pgbouncer: false, clock: Clock::default() }
    }
}

impl Settings {
    /// The file of an `SQLite` database.
    pub fn sqlite_file(&self, data_dir: &Path) -> Option<PathBuf> {
        sqlite_path(&self.url).map(|path| data_dir.join(path))
    }
}

impl Store {
    /// Connects, without touching the schema. A relative `SQLite` file lies in `data_dir`.
    pub async fn connect(settings: &Settings, data_dir: &Path) -> Result<Self, StoreError> {
        let url = settings.url.as_str();
        let most = settings.max_connections.max(1);
        let pools = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = PgConnectOptions::from_str(url).map_err(|error| bad_url(url, &error))?;
            let pool = PostgresPool::lazy(options, most, ACQUIRE_TIMEOUT, settings.pgbouncer);
            Pools::Postgres(pool, Gates::new(most))
        } else if let Some(file) = settings.sqlite_file(data_dir) {
            if let Some(parent) = file.parent() {
                std::fs::create_dir_all(parent).map_err(|error| {
                    StoreError::BadUrl(format!("cannot create {}: {error}", parent.display()))
                })?;
            }
            sqlite(&file, most).await?
        } else {
            return Err(StoreError::BadUrl(format!(
                "`store.url` is {:?}; it can be `sqlite`, `sqlite:<path>` or `postgres://…`",
                crate::secret::masked_url(url)
            )));
        };
        Ok(Self { db: Db { pools, clock: settings.clock.clone() }, step: None })
    }

    /// Brings the schema up to date. Processes that start together do it one after another.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let done = match &self.db.pools {
            Pools::Sqlite { write, .. } => migrate_sqlite(write).await,
            Pools::Postgres(pool, _) => pool.migrate(&POSTGRES).await,
        };
        done.map_err(|error| match error {
            MigrateError::Execute(error) => StoreError::Database(error),
            MigrateError::ExecuteMigration(error, _) if is_outage(&error) => StoreError::Database(error),
            other => StoreError::Migrate(Box::new(other)),
        })
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.now_ms().await.map(drop)
    }

    /// The database's time in milliseconds.
    pub async fn now_ms(&self) -> Result<i64, StoreError> {
        let row = self.db.first(self.db.dialect().clock, super::db::values![]).await?;
        let now_ms = row.ok_or(StoreError::Database(sqlx::Error::RowNotFound))?.get("now_ms")?;
        Ok(self.db.clock.read(now_ms))
    }

    /// Closes all connections.
    pub async fn close(&self) {
        match &self.db.pools {
            Pools::Sqlite { write, read } => {
                read.close().await;
                write.close().await;
            }
            Pools::Postgres(pool, _) => pool.close().await,
        }
    }
}

/// The migrator has no lock for SQLite: who is slower fails at what the faster one has just done, and looks again.
async fn migrate_sqlite(pool: &SqlitePool) -> Result<(), MigrateError> {
    let mut tries = SQLITE.iter().count();
    loop {
        match SQLITE.run(pool).await {
            Err(MigrateError::ExecuteMigration(..)) if 0 < tries => tries -= 1,
            done => return done,
        }
    }
}

fn sqlite_path(url: &str) -> Option<&str> {
    if url == "sqlite" {
        return Some("roundhouse.db");
    }
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (!path.is_empty()).then_some(path)
}

async fn sqlite(file: &Path, readers: u32) -> Result<Pools, StoreError> {
    // NORMAL in WAL mode: a commit survives the death of any process; a power cut may take the last moments.
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true)
        .busy_timeout(ACQUIRE_TIMEOUT);
    let pool = |most: u32| {
        SqlitePoolOptions::new()
            .max_connections(most)
            .acquire_timeout(ACQUIRE_TIMEOUT * 4)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
    };
    let write = pool(1).connect_with(options.clone()).await?;
    let read = pool(readers).connect_with(options.read_only(false)).await?;
    Ok(Pools::Sqlite { write, read })
}

fn bad_url(url: &str, error: &sqlx::Error) -> StoreError {
    StoreError::BadUrl(format!("`store.url` {:?}: {error}", crate::secret::masked_url(url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_of_another_kind_is_refused_without_its_password() {
        let settings = Settings { url: "mysql://u:secret@h/db".to_owned(), ..Settings::default() };
        let error = Store::connect(&settings, Path::new(".")).await.unwrap_err().to_string();
        assert!(error.contains("mysql://u:***@h/db") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn sqlite_addresses() {
        assert_eq!(sqlite_path("sqlite"), Some("roundhouse.db"));
        assert_eq!(sqlite_path("sqlite:a.db"), Some("a.db"));
        assert_eq!(sqlite_path("sqlite:///tmp/a.db"), Some("/tmp/a.db"));
        assert_eq!(sqlite_path("sqlite:"), None);
    }
}
