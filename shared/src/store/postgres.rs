//! Postgres behind the store: its pool, with and without PgBouncer in front, and which connections are not used again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{Executor as _, Postgres, Transaction};

/// Starts a transaction. The settings travel in the same message, so they cost no round trip, and they end with the
/// transaction: PgBouncer in transaction mode gives the connection to somebody else then.
///
/// The isolation level is the one that the locks of sessions are written for, whatever the server's default is.
///
/// `idle_in_transaction_session_timeout`: a process that stands still, or a host that is gone, must not keep the sessions
/// that it has locked from everybody else; one that lives pauses for moments only. `lock_timeout` is a little longer, so
/// that whoever waits for such a session still gets it, and well below the lease, so that a run can try again.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '6s'; \
                     SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// The migrations run in one transaction, behind a lock that ends with it. The lock of a session, which sqlx would take,
/// means nothing behind PgBouncer: the next statement may run in another session. A schema is migrated by one process at a
/// time; the others wait for longer than a migration takes.
const LOCK_SCHEMA: &str = "SET LOCAL lock_timeout = '60s'; SET LOCAL idle_in_transaction_session_timeout = '60s'; \
                           SELECT pg_advisory_xact_lock(hashtext('roundhouse'), hashtext(current_schema()))";

/// A server that allows no writes: after a failover the old primary answers so.
const READ_ONLY: &str = "25006";

/// A pool of connections to Postgres.
#[derive(Debug, Clone)]
pub(super) struct PostgresPool {
    pool: PgPool,
    /// Whether PgBouncer in transaction mode may be in front: statements have no names then, and run in transactions.
    pgbouncer: bool,
    stale: Stale,
}

/// Until when connections were opened that are not used again.
#[derive(Debug, Clone, Default)]
struct Stale(Arc<Mutex<Option<Instant>>>);

impl Stale {
    /// No connection that is open now is used again.
    fn mark(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a connection of this age is one of them.
    fn includes(&self, age: Duration) -> bool {
        let stale = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stale.is_some_and(|until| Instant::now().checked_sub(age).is_none_or(|opened| opened <= until))
    }
}

impl PostgresPool {
    /// A pool that opens connections when they are needed: a process must be able to start, and say what is down, while
    /// the database is away.
    pub(super) fn lazy(options: PgConnectOptions, most: u32, patience: Duration, pgbouncer: bool) -> Self {
        let stale = Stale::default();
        let options = if pgbouncer {
            // PgBouncer refuses start-up parameters that it does not know.
            options.statement_cache_capacity(0).extra_float_digits(None)
        } else {
            options
        };
        let known_stale = stale.clone();
        let pool = PgPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(patience)
            .before_acquire(move |_, connection| {
                let is_fresh = !known_stale.includes(connection.age);
                Box::pin(async move { Ok(is_fresh) })
            })
            .connect_lazy_with(options);
        Self { pool, pgbouncer, stale }
    }

    /// Starts a transaction that may write.
    pub(super) async fn begin(&self) -> Result<PostgresTx, sqlx::Error> {
        let begun = self.pool.begin_with(BEGIN).await;
        let tx = begun.map_err(|error| self.failed(error))?;
        Ok(PostgresTx { tx, pool: self.clone() })
    }

    /// All rows of a query outside any transaction of the caller's.
    pub(super) async fn all(
        &self,
        sql: &'static str,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.pgbouncer {
            // A statement is prepared and run in two steps, which PgBouncer may give to two connections.
            let mut tx = self.begin().await?;
            let rows = tx.all(sql, arguments).await?;
            tx.commit().await?;
            return Ok(rows);
        }
        let rows = self.query(sql, arguments).fetch_all(&self.pool).await;
        rows.map_err(|error| self.failed(error))
    }

    /// Runs the migrations that the schema lacks.
    pub(super) async fn migrate(&self, migrations: &Migrator) -> Result<(), MigrateError> {
        let mut migrations =
            Migrator { migrations: migrations.migrations.clone(), locking: false, ..Migrator::DEFAULT };
        migrations.set_ignore_missing(false);
        let PostgresTx { mut tx, .. } = self.begin().await?;
        tx.execute(LOCK_SCHEMA).await?;
        // The migrator names its statements. Behind PgBouncer the names of others may be there, and ours must not stay.
        if self.pgbouncer {
            tx.execute("DEALLOCATE ALL").await?;
        }
        migrations.run_direct(None, &mut *tx, false).await?;
        if self.pgbouncer {
            tx.execute("DEALLOCATE ALL").await?;
        }
        tx.commit().await?;
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    fn query(&self, sql: &'static str, arguments: PgArguments) -> Query<'static, Postgres, PgArguments> {
        sqlx::query_with(sql, arguments).persistent(!self.pgbouncer)
    }

    /// Looks at an error: a server that has become read-only stays so, and a new connection may lead to another.
    fn failed(&self, error: sqlx::Error) -> sqlx::Error {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if code.as_deref() == Some(READ_ONLY) {
            self.stale.mark();
        }
        error
    }
}

/// A transaction that may write. Dropped, it is rolled back.
pub(super) struct PostgresTx {
    tx: Transaction<'static, Postgres>,
    pool: PostgresPool,
}

impl PostgresTx {
    /// All rows of a query.
    pub(super) async fn all(
        &mut self,
        sql: &'static str,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let rows = self.pool.query(sql, arguments).fetch_all(&mut *self.tx).await;
        rows.map_err(|error| self.pool.failed(error))
    }

    /// Runs a statement; returns how many rows it touched.
    pub(super) async fn run(
        &mut self,
        sql: &'static str,
        arguments: PgArguments,
    ) -> Result<u64, sqlx::Error> {
        let done = self.pool.query(sql, arguments).execute(&mut *self.tx).await;
        done.map(|done| done.rows_affected()).map_err(|error| self.pool.failed(error))
    }

    /// Makes it so.
    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        self.tx.commit().await.map_err(|error| self.pool.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_that_were_open_already_are_stale() {
        let stale = Stale::default();
        assert!(!stale.includes(Duration::from_hours(1)));
        stale.mark();
        assert!(stale.includes(Duration::from_hours(1)));
        std::thread::sleep(Duration::from_millis(2));
        assert!(!stale.includes(Duration::ZERO));
    }
}
