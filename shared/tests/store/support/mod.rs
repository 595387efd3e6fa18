//! What the cases stand on: a database each, short ways to a situation, and what must always hold.

mod builders;
mod cuts;
mod database;
pub(crate) mod invariants;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt as _;

pub(crate) use builders::*;
pub(crate) use cuts::*;
pub(crate) use database::{Database, Server};

/// Makes a test for each database of every case named. A case is an `async fn` that takes `&Store`, or `&Database`
/// where it has to look behind the store. One that is not named here is dead code, which fails the lints.
macro_rules! on_both_databases {
    ($($case:ident),* $(,)?) => {
        mod sqlite {$(
            #[test]
            fn $case() {
                crate::support::run(crate::support::Server::Sqlite, super::$case);
            }
        )*}
        mod postgres {$(
            #[test]
            fn $case() {
                crate::support::run(crate::support::Server::Postgres, super::$case);
            }
        )*}
    };
}

/// The same for what only a server over the network can do.
macro_rules! on_postgres {
    ($($case:ident),* $(,)?) => {
        mod postgres {$(
            #[test]
            fn $case() {
                crate::support::run(crate::support::Server::Postgres, super::$case);
            }
        )*}
    };
}

/// Runs a case on a database of its own, which is gone afterwards, however the case ends.
pub(crate) fn run<T>(server: Server, case: impl AsyncFnOnce(&T))
where
    Database: AsRef<T>,
{
    runtime().block_on(async {
        let db = Database::create(server).await;
        let checked = async {
            case(db.as_ref()).await;
            invariants::check(&db).await;
        };
        let end = Box::pin(AssertUnwindSafe(checked).catch_unwind()).await;
        db.remove().await;
        if let Err(panic) = end {
            resume_unwind(panic);
        }
    });
}

/// More than one thread: races are to be real.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap()
}
