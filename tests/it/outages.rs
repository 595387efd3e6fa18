//! T1: Redis or Postgres go away for a while, or lose what they had.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    COUNTED, Deployment, Effort, Kind, LONG, Load, MOMENT, Options, RedisServer, on, text, until,
};

on!(a_redis_that_loses_everything_loses_no_message: EmbeddedRedis);
async fn a_redis_that_loses_everything_loses_no_message(kind: Kind) {
    redis_goes_away(kind, Duration::from_secs(6)).await;
}

on!(a_redis_that_is_away_for_long_loses_no_message: Distributed);
async fn a_redis_that_is_away_for_long_loses_no_message(kind: Kind) {
    redis_goes_away(kind, Duration::from_secs(20)).await;
}

async fn redis_goes_away(kind: Kind, outage: Duration) {
    let mut redis = RedisServer::start();
    let options = Options { redis: Some(redis.url()), ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    let session = deployment.client().new_session().await;
    let mut listener = deployment.client().follow(&session, None).await;
    let load = Load::start(&deployment, 6, "slow 0.5", &[]);
    load.goes_on().await;

    redis.flush().await;
    load.goes_on().await;
    redis.kill();
    let away = Instant::now();
    await_readiness(&deployment, &["queue", "bus"]).await;
    load.goes_on().await;
    tokio::time::sleep_until(away + outage).await;
    redis.again();
    await_readiness(&deployment, &[]).await;
    load.goes_on().await;

    let efforts = load.end(&deployment).await;
    assert!(efforts.iter().all(Effort::is_single), "{efforts:?}");
    // Whoever listens all the while is told that something is missing, and hears what comes.
    listener.until("resync").await;
    let answer = deployment.other().chat(Some(&session), "say again").await.json();
    while listener.until("chat.response").await.data["jobId"] != answer["jobId"] {}
    deployment.end().await;
}

on!(a_worker_that_dies_while_redis_is_away_is_taken_over: Distributed);
async fn a_worker_that_dies_while_redis_is_away_is_taken_over(kind: Kind) {
    let mut redis = RedisServer::start();
    let options = Options { redis: Some(redis.url()), lease: "2s", ..Options::default() };
    let mut deployment = Deployment::with(kind, options).await;
    let session = deployment.client().new_session().await;
    let answer = deployment.client().chat_waiting(&session, LONG);
    let holder = deployment.holder(&session).await;
    redis.kill();
    await_readiness(&deployment, &["queue", "bus"]).await;

    deployment.workers[holder].kill().await;
    let jobs = deployment.client().items(&format!("/jobs?sessionId={session}")).await;
    let taken_over = async || {
        let job = deployment.client().get(&format!("/jobs/{}", text(&jobs[0]["id"]))).await.json();
        (job["attempt"] == 2).then_some(())
    };
    until("the turn to be taken over", taken_over).await;
    let result = deployment.hurried(&text(&jobs[0]["id"])).await["result"].clone();
    assert_eq!((&result["content"], &answer.result().await), (&json!(COUNTED), &result));
    assert_eq!(deployment.client().messages(&session).await.len(), 2);
    redis.again();
    await_readiness(&deployment, &[]).await;
    deployment.end().await;
}

/// Waits until every process that serves HTTP says that this is down, and nothing else.
async fn await_readiness(deployment: &Deployment, down: &[&str]) {
    for client in &deployment.clients {
        until("the truth about what is down", async || {
            let answer = client.get("/readyz").await;
            let dependencies = answer.json()["dependencies"].as_array()?.clone();
            let found: Vec<&Value> =
                dependencies.iter().filter(|one| one["ok"] == false).map(|one| &one["name"]).collect();
            let (status, ready) = if found.is_empty() { (200, true) } else { (503, false) };
            assert_eq!((answer.status, &answer.json()["ready"]), (status, &json!(ready)), "{}", answer.body);
            (found == down).then_some(())
        })
        .await;
    }
}

on!(broken_connections_to_the_database_lose_no_message: EmbeddedPostgres, Distributed);
async fn broken_connections_to_the_database_lose_no_message(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let load = Load::start(&deployment, 6, "slow 0.3", &["503 STORE_UNAVAILABLE"]);
    load.goes_on().await;
    for _ in 0..5 {
        let broken = deployment.database().break_connections().await;
        assert!(0 < broken);
        for client in &deployment.clients {
            let answer = client.get("/sessions").await;
            assert!(answer.status == 200 || answer.code() == "503 STORE_UNAVAILABLE", "{}", answer.body);
        }
        // Not at one moment of a turn only.
        tokio::time::sleep(MOMENT).await;
    }
    load.goes_on().await;
    let efforts = load.end(&deployment).await;
    assert!(efforts.iter().all(|effort| effort.requests <= effort.attempt), "{efforts:?}");
    await_readiness(&deployment, &[]).await;
    deployment.end().await;
}

on!(rings_that_nobody_hears_are_rung_again: Distributed);
async fn rings_that_nobody_hears_are_rung_again(kind: Kind) {
    let mut deployment = Deployment::with(kind, Options { lease: "60s", ..Options::default() }).await;
    for worker in &deployment.workers {
        worker.freeze().await;
    }
    // The first are taken by the frozen workers and end with them; the others lie in the queue.
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(deployment.client().chat_async(None, &format!("say {n}")).await);
    }
    until("the jobs to be rung for", async || {
        let queues = deployment.client().items("/queues").await;
        queues.iter().any(|queue| queue["name"] == "chat" && queue["bells"] == 3).then_some(())
    })
    .await;
    deployment.lose_rings().await;
    deployment.kill_workers().await;
    for _ in 0..2 {
        deployment.add_worker();
    }
    for (n, job) in jobs.iter().enumerate() {
        let job = deployment.other().ended(job["jobId"].as_str().unwrap()).await;
        assert_eq!((&job["result"]["content"], &job["attempt"]), (&json!(n.to_string()), &json!(1)));
    }
    deployment.end().await;
}
