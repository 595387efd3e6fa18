//! The store: the truth about sessions, their mail, turns, messages and workers.
//!
//! [`Store`] is one type over `SQLite` and Postgres. One method is one transaction; the three that everything hard goes
//! through ([`Store::admit`], [`Store::begin`]/[`Store::drain`], [`Store::finish`]) start by locking the session's row,
//! and every write of a run compares the lease's token first. Time is the database's clock.

mod admit;
mod again;
mod cancel;
mod children;
mod clock;
mod connect;
mod cut;
mod db;
mod delivery;
mod doomed;
mod drain;
mod finish;
mod fork;
mod gate;
mod interactions;
mod jobs;
mod lease;
mod maintenance;
mod messages;
mod native;
mod outage;
mod outbox;
mod pairs;
mod postgres;
mod progress;
mod rows;
mod seen;
mod sessions;
mod step;
mod sweep;
mod turns;
mod tx;
mod workers;

use crate::code::{Code, HasCode};

pub use admit::{Admission, Admitted, Idempotency, NewSession, Target};
pub use cancel::Cancelled;
pub use children::Spawn;
pub use clock::Clock;
pub use connect::Settings;
pub use cut::DeletedMessage;
pub use doomed::{Doomed, DoomedNative};
pub use drain::{Begin, Claimed, MOST_MERGED, Mail, Needs, Unsent};
pub use finish::{Ended, Finished, Next, TurnEnd, TurnOutcome, WrittenMessage};
pub use interactions::NewInteraction;
pub use jobs::{JobFilter, Outcome, QueueStats};
pub use lease::Reaped;
pub use maintenance::{AdmittedCut, CutAdmission, NativeFork, Work, WorkEnd, Worked};
pub use messages::{ContextEntry, MessagePage};
pub use native::SoFar;
pub use progress::{Meanwhile, Together};
pub use seen::SeenAgent;
pub use sessions::{Deleted, SessionFilter, SessionPatch};
pub use step::Step;
pub use sweep::{Due, Sweep};
pub use workers::{Beat, Sighting};

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    db: db::Db,
    /// The step that its writes belong to.
    step: Option<Step>,
}

/// What went wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such session.
    #[error("there is no such session")]
    SessionNotFound,
    /// There is no such job.
    #[error("there is no such job")]
    JobNotFound,
    /// There is no such message in the session.
    #[error("there is no such message in the session")]
    MessageNotFound,
    /// There is no such interaction in the session.
    #[error("there is no such interaction")]
    InteractionNotFound,
    /// The interaction has been answered or closed.
    #[error("the interaction is already answered or closed")]
    InteractionResolved,
    /// The session runs or has unanswered mail.
    #[error("the session is busy")]
    SessionBusy,
    /// The idempotency key came with another request before.
    #[error("the idempotency key was used for another request")]
    IdempotencyConflict,
    /// The run has lost its lease: it must stop, write nothing and publish nothing. Never shown to a client.
    #[error("the lease is lost")]
    LeaseLost,
    /// A row says what no code of ours writes.
    #[error("inconsistent row: {table}.{column} of {id}")]
    Inconsistent {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's id.
        id: String,
    },
    /// The configured address cannot be used.
    #[error("{0}")]
    BadUrl(String),
    /// The schema could not be brought up to date.
    #[error("the schema could not be migrated")]
    Migrate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The session's row was locked for so long that callers of it are refused.
    #[error("the session is locked in the database")]
    SessionLocked,
    /// The database failed or cannot be reached.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl HasCode for StoreError {
    fn code(&self) -> Code {
        match self {
            Self::SessionNotFound => Code::SessionNotFound,
            Self::JobNotFound => Code::JobNotFound,
            Self::MessageNotFound => Code::MessageNotFound,
            Self::InteractionNotFound => Code::InteractionNotFound,
            Self::InteractionResolved => Code::InteractionResolved,
            Self::SessionBusy => Code::SessionBusy,
            Self::IdempotencyConflict => Code::IdempotencyConflict,
            Self::LeaseLost | Self::Inconsistent { .. } | Self::BadUrl(_) | Self::Migrate(_) => {
                Code::Internal
            }
            Self::SessionLocked => Code::StoreUnavailable,
            Self::Database(error) if outage::is_outage(error) => Code::StoreUnavailable,
            Self::Database(_) => Code::Internal,
        }
    }
}

impl StoreError {
    /// Whether trying again later may help: the database is away, not the request wrong.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::SessionLocked => true,
            Self::Database(error) => outage::is_outage(error),
            _ => false,
        }
    }

    /// Whether the database has ended the transaction in favour of another: the same may work at once.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Database(error) if outage::is_conflict(error))
    }

    /// Whether somebody else holds a row for longer than the transaction waits.
    pub(crate) fn is_locked(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| code == "55P03")
    }

    fn inconsistent(table: &'static str, column: &'static str, id: impl std::fmt::Display) -> Self {
        let id = id.to_string();
        Self::Inconsistent { table, column, id }
    }
}
