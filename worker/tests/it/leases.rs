//! Leases in a process that runs turns: steps of the clock, a process that is declared dead while it works, rows that cannot be
//! taken, and a connection that does not answer any more.

use std::sync::Arc;

use roundhouse_shared::domain::{JobState, SessionJob, WorkerId};
use roundhouse_shared::store::Begin;
use sqlx::Connection;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::house::{House, On, dead_worker};
use crate::support::until;

const HOUR_MS: i64 = 3_600_000;

macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod sqlite {$(
            #[tokio::test]
            async fn $case() { super::$case(super::On::Sqlite).await; }
        )*}
        mod postgres {$(
            #[tokio::test]
            async fn $case() { super::$case(super::On::Postgres).await; }
        )*}
    };
}

on_both![
    a_step_of_the_clock_ends_no_turn,
    a_clock_that_is_set_back_keeps_no_dead_worker,
    a_worker_that_is_declared_dead_goes_on_as_another,
    a_session_that_cannot_be_taken_keeps_no_other_from_being_taken,
];

/// So does a host that was suspended see it: its monotonic clock has stood still.
async fn a_step_of_the_clock_ends_no_turn(on: On) {
    let house = House::new(on).await;
    let job = house.running().await;
    for step in [HOUR_MS, -2 * HOUR_MS, HOUR_MS] {
        house.clock.step(step);
        // Longer than a lease, in which any reaper might find it.
        house.renewed(4).await;
    }
    house.may_end.send_replace(true);
    let ended = house.ended(job).await;
    assert_eq!((ended.state, ended.attempt), (JobState::Succeeded, 1));
    assert_eq!(house.store.workers().await.unwrap().len(), 1);
    house.end().await;
}

async fn a_clock_that_is_set_back_keeps_no_dead_worker(on: On) {
    let house = House::new(on).await;
    house.may_end.send_replace(true);
    let dead = dead_worker(&house).await;
    let job = begun_by(&house, dead).await;
    house.clock.step(-HOUR_MS);
    let ended = house.ended(job).await;
    assert_eq!((ended.state, ended.attempt), (JobState::Succeeded, 2));
    assert_ne!(ended.worker, Some(dead));
    house.end().await;
}

async fn a_worker_that_is_declared_dead_goes_on_as_another(on: On) {
    let house = House::new(on).await;
    let job = house.running().await;
    let dead = house.job(job).await.worker.unwrap();
    assert!(house.store.declare_dead(dead, None).await.unwrap());

    until(async || house.job(job).await.attempt == 2).await;
    house.may_end.send_replace(true);
    let (ended, fresh) = (house.ended(job).await, house.running_to_the_end().await);

    assert_eq!((ended.state, ended.attempt), (JobState::Succeeded, 2));
    let workers = house.store.workers().await.unwrap();
    assert_eq!(workers.iter().map(|worker| Some(worker.id)).collect::<Vec<_>>(), [ended.worker]);
    assert_eq!((fresh.worker, fresh.attempt), (ended.worker, 1));
    assert_ne!(ended.worker, Some(dead));
    house.end().await;
}

/// A job of a new session that this worker has.
async fn begun_by(house: &House, worker: WorkerId) -> SessionJob {
    let job = house.admit().await;
    let begun = house.store.begin(job.session, worker, |_| true).await.unwrap();
    assert!(matches!(begun, Begin::Started(..)), "{begun:?}");
    job
}

async fn a_session_that_cannot_be_taken_keeps_no_other_from_being_taken(on: On) {
    let house = House::new(on).await;
    house.may_end.send_replace(true);
    let dead = dead_worker(&house).await;
    let bad = begun_by(&house, dead).await;
    house.execute("UPDATE sessions SET engine = 'of another world'").await;
    let good = begun_by(&house, dead).await;
    assert!(house.store.declare_dead(dead, None).await.unwrap());
    assert_eq!(house.ended(good).await.attempt, 2);
    assert_eq!(house.job(bad).await.state, JobState::Claimed);
    // Once it is put right, a later round takes it.
    house.execute("UPDATE sessions SET engine = 'openai'").await;
    assert_eq!(house.ended(bad).await.attempt, 2);
    house.end().await;
}

#[tokio::test]
async fn a_locked_session_of_a_dead_worker_is_taken_once_it_is_free() {
    let house = House::new(On::Postgres).await;
    house.may_end.send_replace(true);
    let dead = dead_worker(&house).await;
    let locked = begun_by(&house, dead).await;
    let mut operator = house.operator().await;
    sqlx::query("BEGIN").execute(&mut operator).await.unwrap();
    sqlx::query("SELECT id FROM sessions FOR UPDATE").execute(&mut operator).await.unwrap();
    let free = begun_by(&house, dead).await;
    assert!(house.store.declare_dead(dead, None).await.unwrap());
    assert_eq!(house.ended(free).await.attempt, 2);
    house.renewed(2).await;
    assert_eq!(house.job(locked).await.state, JobState::Claimed);
    sqlx::query("ROLLBACK").execute(&mut operator).await.unwrap();
    operator.close().await.unwrap();
    assert_eq!(house.ended(locked).await.attempt, 2);
    house.end().await;
}

/// Passes connections on, until they are silenced: then those that there are say nothing any more, and later ones do.
struct Proxy {
    address: String,
    silenced: watch::Sender<u64>,
    _task: JoinSet<()>,
}

impl Proxy {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let silenced = watch::Sender::new(0);
        let (server, times) = (Arc::new(server), silenced.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let (server, mut silenced) = (server.clone(), times.subscribe());
                connections.spawn(async move {
                    let Ok(mut to) = TcpStream::connect(server.as_str()).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        // Kept open, as by a firewall that has forgotten them.
                        _ = silenced.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, silenced, _task: task }
    }

    fn silence(&self) {
        self.silenced.send_modify(|times| *times += 1);
    }
}

#[tokio::test]
async fn a_connection_that_does_not_answer_any_more_ends_no_turn() {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where the server is")]
    let url = std::env::var("ROUNDHOUSE_TEST_POSTGRES_URL").expect("run the tests by `cargo xtask test`");
    let (_, rest) = url.split_once('@').expect("a user");
    let server = rest.split(['/', '?']).next().unwrap().to_owned();
    let proxy = Proxy::to(server.clone()).await;
    let house = House::with_heart(On::Postgres, |url| url.replace(&server, &proxy.address)).await;
    let job = house.running().await;
    house.renewed(1).await;
    proxy.silence();
    house.renewed(3).await;
    house.may_end.send_replace(true);
    let ended = house.ended(job).await;
    assert_eq!((ended.state, ended.attempt), (JobState::Succeeded, 1));
    house.end().await;
}
