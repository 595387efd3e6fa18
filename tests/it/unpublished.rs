//! T1: a turn's end that is committed and not yet published, and commits of which nobody knows whether they happened.

use serde_json::{Value, json};

use crate::support::{
    COUNTED, Deployment, Events, Kind, LONG, Options, RedisServer, SseEvent, on, text, until,
};

/// What a session's stream says at the end of a turn.
const END: [&str; 3] = ["message.completed", "turn.completed", "chat.response"];

/// Reads on until the end of this job was told; returns what of the ends came, in order, and whether there was a resync.
async fn end_of(events: &mut Events, job: &str) -> (Vec<SseEvent>, bool) {
    let (mut seen, mut resync) = (Vec::new(), false);
    loop {
        let event = events.next().await.expect("a stream that goes on");
        resync |= event.name == "resync";
        let ends = END.contains(&event.name.as_str());
        let is_last = event.name == "chat.response" && event.data["jobId"] == *job;
        if ends {
            seen.push(event);
        }
        if is_last {
            return (seen, resync);
        }
    }
}

fn names(events: &[SseEvent]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// The job of a session, which has one.
async fn job_of(deployment: &Deployment, session: &str) -> String {
    let jobs = deployment.client().items(&format!("/jobs?sessionId={session}")).await;
    text(&jobs[0]["id"])
}

/// A turn that ends while Redis stands still. Returns a listener from before, the session and the job.
async fn ended_while_redis_stands_still(
    deployment: &Deployment,
    redis: &RedisServer,
) -> (Events, String, String) {
    let client = deployment.client();
    let session = client.new_session().await;
    let mut listener = client.follow(&session, None).await;
    let answer = client.chat_waiting(&session, LONG);
    listener.until("message.delta").await;
    let job = job_of(deployment, &session).await;
    redis.freeze();
    assert_eq!(deployment.hurried(&job).await["result"]["content"], COUNTED);
    assert_eq!(answer.result().await["content"], COUNTED);
    (listener, session, job)
}

on!(the_end_of_a_turn_is_told_once_redis_goes_on: EmbeddedRedis, Distributed);
async fn the_end_of_a_turn_is_told_once_redis_goes_on(kind: Kind) {
    let redis = RedisServer::start();
    let options = Options { redis: Some(redis.url()), ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    let (mut listener, session, job) = ended_while_redis_stands_still(&deployment, &redis).await;
    // Longer than the run tries to publish.
    until("the run to give up", async || {
        deployment.logs().contains("the last events of a run were not published").then_some(())
    })
    .await;
    redis.thaw();
    let (seen, _) = end_of(&mut listener, &job).await;
    assert_eq!(names(&seen), END);
    assert_eq!(seen[0].data["message"]["content"], COUNTED);
    // Nothing of it comes again, and the next turn comes after it.
    let next = deployment.other().chat(Some(&session), "say next").await.json();
    let (seen, resync) = end_of(&mut listener, &text(&next["jobId"])).await;
    assert_eq!((names(&seen), resync), (END.to_vec(), false));
    deployment.end().await;
}

on!(the_end_of_a_turn_is_told_by_another_when_its_worker_dies: Distributed);
async fn the_end_of_a_turn_is_told_by_another_when_its_worker_dies(kind: Kind) {
    let redis = RedisServer::start();
    let options = Options { redis: Some(redis.url()), workers: 1, ..Options::default() };
    let mut deployment = Deployment::with(kind, options).await;
    let (mut listener, _, job) = ended_while_redis_stands_still(&deployment, &redis).await;
    // It has committed, and dies before it can publish.
    deployment.kill_workers().await;
    redis.thaw();
    deployment.add_worker();
    let (seen, _) = end_of(&mut listener, &job).await;
    assert_eq!(names(&seen), END);
    deployment.end().await;
}

on!(a_redis_that_comes_back_empty_is_told_the_end_of_a_turn: Distributed);
async fn a_redis_that_comes_back_empty_is_told_the_end_of_a_turn(kind: Kind) {
    let mut redis = RedisServer::start();
    let options = Options { redis: Some(redis.url()), ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    let (mut listener, _, job) = ended_while_redis_stands_still(&deployment, &redis).await;
    redis.kill();
    redis.again();
    let (seen, resync) = end_of(&mut listener, &job).await;
    assert_eq!((names(&seen), resync), (END.to_vec(), true));
    deployment.end().await;
}

on!(what_is_committed_is_stored_once_though_nobody_was_told: EmbeddedPostgres, Distributed);
async fn what_is_committed_is_stored_once_though_nobody_was_told(kind: Kind) {
    let deployment = Deployment::with(kind, Options { proxied: true, ..Options::default() }).await;
    let client = deployment.client();
    let session = client.new_session().await;
    let mut listener = client.follow(&session, None).await;
    // The transaction that ends a turn: its commit happens, and nobody is told.
    deployment.proxy().lose_reply(b"completed", b"COMMIT\0");
    let first = client.chat(Some(&session), "say four").await;
    assert_eq!((first.status, &first.json()["content"]), (200, &json!("four")), "{}", first.body);
    deployment.proxy().lost(1).await;
    let (seen, resync) = end_of(&mut listener, &text(&first.json()["jobId"])).await;
    assert_eq!((names(&seen), resync), (END.to_vec(), false));
    let next = client.chat(Some(&session), "say five").await;
    assert_eq!((next.status, &next.json()["content"]), (200, &json!("five")), "{}", next.body);
    let messages = client.items(&format!("/sessions/{session}/messages")).await;
    let contents: Vec<&Value> = messages.iter().map(|message| &message["content"]).collect();
    let all = ["say four", "four", "say five", "five"];
    assert_eq!(contents, all.map(|one| json!(one)).iter().collect::<Vec<_>>());
    let row = client.session(&session).await;
    let turns: i64 = messages.iter().filter_map(|message| message["outputTokens"].as_i64()).sum();
    assert_eq!(row["usage"]["output"], json!(turns), "{row}");
    deployment.end().await;
}
