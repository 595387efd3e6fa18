//! One query text for two databases.
//!
//! Every query is written once, with `$1` placeholders, and run on whichever database is behind [`Db`]. What
//! differs between the two is in [`Dialect`] and nowhere else. Values and rows are reduced to the few types that the
//! schema uses, so nothing above this module is generic over a driver.

use std::borrow::Cow;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{Arguments, ColumnIndex, Decode, Postgres, Sqlite, Transaction, Type};
use uuid::Uuid;

use super::gate::{Gates, Place};
use super::postgres::{PostgresPool, PostgresTx};
use super::{Clock, StoreError};

/// A database: its pools and its clock.
#[derive(Debug, Clone)]
pub(super) struct Db {
    pub(super) pools: Pools,
    pub(super) clock: Clock,
}

/// The pools of a database.
#[derive(Debug, Clone)]
pub(super) enum Pools {
    Sqlite {
        /// One connection: SQLite has one writer, and waiting here is fair where its own lock is not.
        write: SqlitePool,
        read: SqlitePool,
    },
    Postgres(PostgresPool, Gates),
}

/// The texts that differ between the databases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    /// The database's clock in milliseconds.
    pub(super) clock: &'static str,
    /// The session's row, held until the transaction ends, with the database's time.
    pub(super) lock_session: &'static str,
    /// The row of a worker that was not declared dead, held until the transaction ends.
    pub(super) lock_worker: &'static str,
    /// Sets a short lock timeout for the rest of the transaction, where rows have locks.
    pub(super) short_lock_timeout: Option<&'static str>,
    /// The answers of the jobs whose ids a JSON array names.
    pub(super) jobs_by_ids: &'static str,
    /// Sessions to be rung for, held until the transaction ends.
    pub(super) to_ring: super::sweep::ToRing,
    /// The next job of each of the sessions that a JSON array names, where it has one.
    pub(super) heads_by_ids: &'static str,
    /// Notes for the sessions that a JSON array names that they were rung for, or that there is nothing to ring for.
    pub(super) rung_by_ids: &'static str,
    /// Gives messages the native session `$1` and the anchors that a JSON array of `{id, metadata}` has for them.
    pub(super) set_anchors: &'static str,
    /// Deletes the rows of the outbox whose ids a JSON array names.
    pub(super) forget_published: &'static str,
}

macro_rules! lock_session {
    ($clock:literal, $suffix:literal) => {
        concat!(
            "SELECT id, agent, engine, model, cwd, native_session_id, native_host, last_seq, last_message_id, ",
            "lease_worker, lease_token, active_turn_id, cancel_turn_id, last_step, ",
            $clock,
            " AS now_ms FROM sessions WHERE id = $1",
            $suffix
        )
    };
}

macro_rules! heads_by_ids {
    ($ids:literal) => {
        concat!(
            "SELECT s.id AS session_id, s.refused, j.id, j.kind FROM sessions s JOIN jobs j ON j.id = \
             (SELECT n.id FROM jobs n WHERE n.session_id = s.id AND n.state = 'pending' \
             ORDER BY n.turn_id IS NULL, NOT n.given_back, n.seq LIMIT 1) WHERE s.id IN (",
            $ids,
            ") ORDER BY s.enqueued_ms"
        )
    };
}

macro_rules! rung_by_ids {
    ($ids:literal) => {
        concat!(
            "UPDATE sessions SET enqueued_ms = CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE session_id = sessions.id \
             AND state = 'pending') THEN $2 ELSE 0 END WHERE id IN (",
            $ids,
            ")"
        )
    };
}

const SQLITE: Dialect = Dialect {
    clock: "SELECT cast(unixepoch('subsec') * 1000 AS integer) AS now_ms",
    lock_session: lock_session!("cast(unixepoch('subsec') * 1000 AS integer)", ""),
    lock_worker: "SELECT beats FROM workers WHERE id = $1 AND dead_ms IS NULL",
    short_lock_timeout: None,
    jobs_by_ids: "SELECT id, state, result, problem FROM jobs \
                  WHERE id IN (SELECT unhex(value, '-') FROM json_each($1))",
    to_ring: super::sweep::to_ring!(""),
    heads_by_ids: heads_by_ids!("SELECT unhex(value, '-') FROM json_each($1)"),
    rung_by_ids: rung_by_ids!("SELECT unhex(value, '-') FROM json_each($1)"),
    set_anchors: "UPDATE messages SET native_session_id = $1, engine_metadata = moved.value ->> 'metadata' \
                  FROM json_each($2) AS moved WHERE messages.id = moved.value ->> 'id'",
    forget_published: "DELETE FROM outbox WHERE id IN (SELECT value FROM json_each($1))",
};

const POSTGRES: Dialect = Dialect {
    clock: "SELECT cast(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now_ms",
    lock_session: lock_session!(
        "cast(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
        " FOR UPDATE"
    ),
    lock_worker: "SELECT beats FROM workers WHERE id = $1 AND dead_ms IS NULL FOR UPDATE",
    short_lock_timeout: Some("SET LOCAL lock_timeout = '500ms'"),
    jobs_by_ids: "SELECT id, state, result, problem FROM jobs \
                  WHERE id IN (SELECT value::uuid FROM json_array_elements_text($1::json))",
    // One that is locked is left for the next round: somebody works on it, and the others do not wait.
    to_ring: super::sweep::to_ring!(" FOR UPDATE SKIP LOCKED"),
    heads_by_ids: heads_by_ids!("SELECT value::uuid FROM json_array_elements_text($1::json)"),
    rung_by_ids: rung_by_ids!("SELECT value::uuid FROM json_array_elements_text($1::json)"),
    set_anchors: "UPDATE messages SET native_session_id = $1, engine_metadata = moved.metadata \
                  FROM json_to_recordset($2::json) AS moved(id bigint, metadata text) WHERE messages.id = moved.id",
    forget_published: "DELETE FROM outbox \
                       WHERE id IN (SELECT value::bigint FROM json_array_elements_text($1::json))",
};

/// A bound value. `None` is SQL `NULL` of that type.
#[derive(Debug, Clone)]
pub(super) enum Value<'q> {
    Bool(bool),
    Int(Option<i64>),
    Id(Option<Uuid>),
    Text(Option<Cow<'q, str>>),
}

macro_rules! into_value {
    ($($from:ty => |$v:ident| $to:expr;)*) => {$(
        impl<'q> From<$from> for Value<'q> {
            fn from($v: $from) -> Self { $to }
        }
    )*};
}

into_value! {
    bool => |v| Value::Bool(v);
    i64 => |v| Value::Int(Some(v));
    Option<i64> => |v| Value::Int(v);
    Uuid => |v| Value::Id(Some(v));
    Option<Uuid> => |v| Value::Id(v);
    &'q str => |v| Value::Text(Some(Cow::Borrowed(v)));
    Option<&'q str> => |v| Value::Text(v.map(Cow::Borrowed));
    String => |v| Value::Text(Some(Cow::Owned(v)));
    Option<String> => |v| Value::Text(v.map(Cow::Owned));
}

/// The values of a query, in the order of its placeholders.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::db::Value::from($value)),*] };
}
pub(super) use values;

/// A row of either database.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A type that both databases can give back.
pub(super) trait Column:
    for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}
impl<T> Column for T where
    T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}

impl Row {
    /// The value of a column.
    pub(super) fn get<T: Column>(&self, column: &str) -> Result<T, StoreError> {
        fn found<R: sqlx::Row, T>(row: &R, column: &str) -> Result<T, sqlx::Error>
        where
            for<'c> &'c str: ColumnIndex<R>,
            T: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        {
            row.try_get(column)
        }
        Ok(match self {
            Self::Sqlite(row) => found(row, column)?,
            Self::Postgres(row) => found(row, column)?,
        })
    }
}

fn sqlite_arguments(values: Vec<Value<'_>>) -> Result<SqliteArguments, StoreError> {
    let mut arguments = SqliteArguments::default();
    for value in values {
        match value {
            Value::Bool(v) => arguments.add(v),
            Value::Int(v) => arguments.add(v),
            Value::Id(v) => arguments.add(v),
            Value::Text(v) => arguments.add(v.map(Cow::into_owned)),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

fn postgres_arguments(values: Vec<Value<'_>>) -> Result<PgArguments, StoreError> {
    let mut arguments = PgArguments::default();
    for value in values {
        match value {
            Value::Bool(v) => arguments.add(v),
            Value::Int(v) => arguments.add(v),
            Value::Id(v) => arguments.add(v),
            Value::Text(v) => arguments.add(v.map(Cow::into_owned)),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

impl Db {
    /// The texts of this database.
    pub(super) const fn dialect(&self) -> &'static Dialect {
        match &self.pools {
            Pools::Sqlite { .. } => &SQLITE,
            Pools::Postgres(..) => &POSTGRES,
        }
    }

    /// Whether a transaction that may write keeps all others from writing.
    pub(super) const fn has_one_writer(&self) -> bool {
        matches!(self.pools, Pools::Sqlite { .. })
    }

    /// Starts a transaction that may write.
    pub(super) async fn begin(&self) -> Result<Tx, StoreError> {
        let open = match &self.pools {
            // IMMEDIATE: a deferred transaction that reads first can fail when it comes to write.
            Pools::Sqlite { write, .. } => Open::Sqlite(write.begin_with("BEGIN IMMEDIATE").await?),
            Pools::Postgres(pool, _) => Open::Postgres(pool.begin().await?),
        };
        Ok(Tx { open, clock: self.clock.clone(), place: None })
    }

    /// Starts a transaction of a caller who is about to lock a session.
    ///
    /// # Errors
    /// [`StoreError::SessionLocked`] where others have waited for that session's row for too long already.
    pub(super) async fn begin_for(&self, session: Uuid) -> Result<Tx, StoreError> {
        let place = match &self.pools {
            // There is one writer, and nobody outside of this process keeps it.
            Pools::Sqlite { .. } => None,
            Pools::Postgres(_, gates) => Some(gates.enter(session).await.ok_or(StoreError::SessionLocked)?),
        };
        Ok(Tx { place, ..self.begin().await? })
    }

    /// Starts a transaction whose statements fail with [`StoreError::is_locked`] when they wait for a lock for half a second: for
    /// callers that have other rows to go on with. Not at once, because most locks are held for milliseconds, also by a
    /// transaction that is being rolled back.
    pub(super) async fn begin_short_wait(&self) -> Result<Tx, StoreError> {
        let mut tx = self.begin().await?;
        if let Some(sql) = self.dialect().short_lock_timeout {
            tx.run(sql, values![]).await?;
        }
        Ok(tx)
    }

    /// All rows of a query outside any transaction.
    pub(super) async fn all(
        &self,
        sql: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<Row>, StoreError> {
        Ok(match &self.pools {
            Pools::Sqlite { read, .. } => {
                let rows = sqlx::query_with(sql, sqlite_arguments(values)?).fetch_all(read).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Pools::Postgres(pool, _) => {
                let rows = pool.all(sql, postgres_arguments(values)?).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// The first row of a query outside any transaction.
    pub(super) async fn first(
        &self,
        sql: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, values).await?.into_iter().next())
    }
}

/// A transaction that may write. Dropped, it is rolled back.
pub(super) struct Tx {
    open: Open,
    pub(super) clock: Clock,
    /// Left when the connection is free again: fields are dropped in order.
    place: Option<Place>,
}

/// A transaction of either database.
enum Open {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(PostgresTx),
}

impl Tx {
    /// All rows of a query.
    pub(super) async fn all(
        &mut self,
        sql: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<Row>, StoreError> {
        Ok(match &mut self.open {
            Open::Sqlite(tx) => {
                let rows = sqlx::query_with(sql, sqlite_arguments(values)?).fetch_all(&mut **tx).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Open::Postgres(tx) => {
                let rows = tx.all(sql, postgres_arguments(values)?).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// The first row of a query.
    pub(super) async fn first(
        &mut self,
        sql: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, values).await?.into_iter().next())
    }

    /// The only row of a query that always has one.
    pub(super) async fn one(&mut self, sql: &'static str, values: Vec<Value<'_>>) -> Result<Row, StoreError> {
        self.first(sql, values).await?.ok_or(StoreError::Database(sqlx::Error::RowNotFound))
    }

    /// Runs a statement; returns how many rows it touched.
    pub(super) async fn run(&mut self, sql: &'static str, values: Vec<Value<'_>>) -> Result<u64, StoreError> {
        Ok(match &mut self.open {
            Open::Sqlite(tx) => {
                sqlx::query_with(sql, sqlite_arguments(values)?).execute(&mut **tx).await?.rows_affected()
            }
            Open::Postgres(tx) => tx.run(sql, postgres_arguments(values)?).await?,
        })
    }

    /// The database's time in milliseconds.
    pub(super) async fn now_ms(&mut self) -> Result<i64, StoreError> {
        let now_ms = self.one(self.dialect().clock, values![]).await?.get("now_ms")?;
        Ok(self.clock.read(now_ms))
    }

    /// The texts of this database.
    pub(super) const fn dialect(&self) -> &'static Dialect {
        match &self.open {
            Open::Sqlite(_) => &SQLITE,
            Open::Postgres(_) => &POSTGRES,
        }
    }

    /// Locks a session: its row as it is now, or `None` where there is no such session.
    pub(super) async fn lock_session(&mut self, session: Uuid) -> Result<Option<Row>, StoreError> {
        let row = self.first(self.dialect().lock_session, values![session]).await?;
        self.place.iter().for_each(Place::got_row);
        Ok(row)
    }

    /// Locks the row of a worker that was not declared dead; `None` where there is none.
    pub(super) async fn lock_worker(&mut self, worker: Uuid) -> Result<Option<Row>, StoreError> {
        self.first(self.dialect().lock_worker, values![worker]).await
    }

    /// Makes it so.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        match self.open {
            Open::Sqlite(tx) => tx.commit().await?,
            Open::Postgres(tx) => tx.commit().await?,
        }
        Ok(())
    }
}
