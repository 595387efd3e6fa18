//! What a locked row does to the leases of a worker.

use serde_json::json;
use sqlx::Connection;

use crate::support::{COUNTED, Deployment, Kind, LONG, Options, on, until};

/// How often the only worker was renewed.
async fn beats(deployment: &Deployment) -> i64 {
    let mut observer = deployment.database().connection().await;
    sqlx::query_scalar("SELECT max(beats) FROM workers").fetch_one(&mut observer).await.unwrap()
}

on!(a_row_that_an_operator_locks_ends_no_turn: Distributed);
async fn a_row_that_an_operator_locks_ends_no_turn(kind: Kind) {
    let options = Options { workers: 1, lease: "3s", ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    let mut callers = Vec::new();
    for _ in 0..3 {
        let session = deployment.client().new_session().await;
        let mut events = deployment.client().follow(&session, None).await;
        let caller = deployment.other().chat_waiting(&session, LONG);
        events.until_it_speaks(1).await;
        callers.push((session, caller));
    }
    let mut operator = deployment.database().connection().await;
    sqlx::query("BEGIN").execute(&mut operator).await.unwrap();
    let lock = "SELECT id FROM sessions WHERE id = $1::uuid FOR UPDATE";
    sqlx::query(lock).bind(&callers[0].0).fetch_one(&mut operator).await.unwrap();

    // Three leases long.
    let before = beats(&deployment).await;
    until("the worker to be renewed", async || (before + 9 <= beats(&deployment).await).then_some(())).await;
    deployment.oracle.hurry();
    let (_, locked) = callers.remove(0);
    let mut results = Vec::new();
    for (_, free) in callers {
        results.push(free.result().await);
    }
    sqlx::query("ROLLBACK").execute(&mut operator).await.unwrap();
    operator.close().await.unwrap();
    results.push(locked.result().await);
    for result in results {
        let job = deployment.client().ended(result["jobId"].as_str().unwrap()).await;
        assert_eq!((&result["content"], &job["attempt"]), (&json!(COUNTED), &json!(1)));
    }
    deployment.end().await;
}
