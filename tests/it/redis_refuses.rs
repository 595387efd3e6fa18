//! A Redis that answers and refuses writes is as good as away: nothing is lost, and operators are told why.

use serde_json::json;

use crate::support::{Deployment, Kind, Options, RedisServer, on, text, until};

/// What a server is told to refuse writes and to take them again, and what its error says.
const REFUSALS: [([&str; 4], [&str; 4], &str); 2] = [
    (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"], "OOM"),
    (["REPLICAOF", "127.0.0.1", "1", ""], ["REPLICAOF", "NO", "ONE", ""], "read only replica"),
];

on!(a_redis_that_refuses_writes_loses_no_message: EmbeddedRedis, Distributed);
async fn a_redis_that_refuses_writes_loses_no_message(kind: Kind) {
    let redis = RedisServer::start();
    let options = Options { redis: Some(redis.url()), ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    let session = deployment.client().new_session().await;
    deployment.client().chat(Some(&session), "X = 1").await;
    for (refuse, accept, error) in REFUSALS {
        tell(&redis, refuse).await;
        await_readiness(&deployment, Some(error)).await;
        for client in &deployment.clients {
            let answer = client.chat(Some(&session), "add 1 to x").await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert_eq!(client.chat(None, "say hi").await.json()["content"], "hi");
        }
        tell(&redis, accept).await;
        await_readiness(&deployment, None).await;
        assert_eq!(deployment.other().chat(None, "say ho").await.json()["content"], "ho");
    }
    deployment.end().await;
}

async fn tell(redis: &RedisServer, command: [&str; 4]) {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let words: Vec<_> = command.into_iter().filter(|word| !word.is_empty()).collect();
    let mut call = redis::cmd(words[0]);
    call.arg(&words[1..]);
    call.query_async::<redis::Value>(&mut connection).await.unwrap();
}

/// Waits until every api says that queue and bus are down because of this, or that nothing is.
async fn await_readiness(deployment: &Deployment, error: Option<&str>) {
    for client in &deployment.clients {
        until("the truth about what is down", async || {
            let answer = client.get("/readyz").await;
            let body = answer.json();
            let Some(error) = error else { return (answer.status == 200).then_some(()) };
            assert_eq!(body["dependencies"][0]["ok"], json!(true));
            let told = |n: usize| text(&body["dependencies"][n]["error"]).contains(error);
            (answer.status == 503 && told(1) && told(2)).then_some(())
        })
        .await;
    }
}
