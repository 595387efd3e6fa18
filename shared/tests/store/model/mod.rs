//! Any interleaving of what clients, workers, reapers and people do to one session ends as the design says.
//!
//! Each step is one transaction of the store and one step of [`expected::Expected`], which is the design in memory;
//! after each, both must agree. In the end the session is run until it is idle, and every job must have been answered
//! exactly once, with the answer that its row has.

mod agreement;
mod expected;
mod simulation;
mod told;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use roundhouse_shared::domain::OnBusy;

use crate::support::*;
use simulation::Simulation;

/// One step of somebody.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A client sends a message.
    Admit(OnBusy),
    /// A worker wants to run the session. It may be one that is declared dead at once.
    Begin { worker: usize, alive: bool },
    /// A client wants the session emptied, or copied.
    Cut(Copies),
    /// A run goes on: it ends its turn or its cut, or takes the next turn. The newest run, or an earlier one that may have lost its
    /// lease long ago.
    GoOn { run: usize, end: End },
    /// A run stores a model call, and the result of the tool that it calls unless that goes on.
    Append { run: usize, open: bool },
    /// A run takes what came while its turn works.
    DrainMore { run: usize },
    /// A run does again what it has done, because it does not know that its commit went through.
    Repeat { run: usize },
    /// A run gives its session back.
    HandBack { run: usize },
    /// A worker's heartbeat. If it was declared dead it is told so, and registers again as another.
    Beat { worker: usize },
    /// Somebody declares a worker dead, which may run on and not know it.
    DeclareDead { worker: usize },
    /// A worker notices that a run of its own broke off.
    Abandon { run: usize, max_attempts: i64 },
    /// A reaper finds the session.
    Reap { max_attempts: i64 },
    /// Another process publishes what was left to be published.
    Publish,
    /// The sweeper comes by.
    Sweep,
    /// Somebody cancels the session.
    Cancel,
    /// Somebody cancels one of its jobs.
    CancelJob { job: usize },
}

/// Whether a cut is a fork, or else a reset.
type Copies = bool;

/// How a turn ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Answered,
    Failed,
    Cancelled,
}

const WORKERS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let run = || prop_oneof![6 => Just(0_usize), 1 => 1..4_usize];
    let alive = || prop_oneof![3 => Just(true), 1 => Just(false)];
    let end = prop_oneof![4 => Just(End::Answered), 1 => Just(End::Failed), 1 => Just(End::Cancelled)];
    prop_oneof![
        8 => select(OnBusy::ALL).prop_map(Step::Admit),
        3 => any::<Copies>().prop_map(Step::Cut),
        6 => (0..WORKERS, alive()).prop_map(|(worker, alive)| Step::Begin { worker, alive }),
        9 => (run(), end).prop_map(|(run, end)| Step::GoOn { run, end }),
        4 => (run(), any::<bool>()).prop_map(|(run, open)| Step::Append { run, open }),
        4 => run().prop_map(|run| Step::DrainMore { run }),
        1 => run().prop_map(|run| Step::Repeat { run }),
        2 => run().prop_map(|run| Step::HandBack { run }),
        3 => (0..WORKERS).prop_map(|worker| Step::Beat { worker }),
        2 => (0..WORKERS).prop_map(|worker| Step::DeclareDead { worker }),
        2 => (run(), 1..4_i64).prop_map(|(run, max_attempts)| Step::Abandon { run, max_attempts }),
        4 => (1..4_i64).prop_map(|max_attempts| Step::Reap { max_attempts }),
        1 => Just(Step::Publish),
        1 => Just(Step::Sweep),
        2 => Just(Step::Cancel),
        2 => (0..8_usize).prop_map(|job| Step::CancelJob { job }),
    ]
}

fn check(server: Server, cases: u32) {
    let runtime = runtime();
    let db = runtime.block_on(Database::create(server));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let found = TestRunner::new(config).run(&vec(step(), 1..50), |steps| {
        runtime.block_on(Box::pin(simulate(&db, &steps)));
        Ok(())
    });
    runtime.block_on(db.remove());
    if let Err(error) = found {
        panic!("{error}");
    }
}

async fn simulate(db: &Database, steps: &[Step]) {
    // Also what a failed case has left behind.
    db.execute("DELETE FROM sessions").await;
    let mut simulation = Simulation::new(&db.store, WORKERS).await;
    for step in steps {
        simulation.step(*step).await;
        simulation.assert_as_expected().await;
    }
    invariants::check(db).await;
    simulation.run_to_the_end().await;
    simulation.assert_as_expected().await;
    simulation.assert_all_answered_once().await;
    simulation.assert_all_told_once().await;
    invariants::check(db).await;
}

#[test]
fn sqlite_does_what_the_design_says() {
    check(Server::Sqlite, 80);
}

#[test]
fn postgres_does_what_the_design_says() {
    check(Server::Postgres, 25);
}
