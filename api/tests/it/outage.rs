//! With the bus and the queue away: slower, but nothing is lost.

use roundhouse_shared::bus::Bus;
use roundhouse_shared::queue::Queue;
use roundhouse_shared::redis::Settings as RedisSettings;
use serde_json::json;

use crate::support::{Api, Options, id, names};

/// An api whose Redis does not answer.
async fn without_redis() -> Api {
    // A port that is free, and closed again.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let redis = RedisSettings { url: format!("redis://127.0.0.1:{port}"), ..RedisSettings::default() };
    let bus = Bus::connect(&redis).unwrap();
    let queue = Queue::connect(&redis).unwrap();
    Api::with(Options { bus, queue, ..Options::default() }).await
}

#[tokio::test]
async fn a_message_is_admitted_and_answered() {
    let api = without_redis().await;
    let mut events = api.chat_events(&json!({"message": "m"})).await;
    let first = events.expect("job.accepted").await;
    assert_eq!(first.id, None);
    let session = id(&first.data["sessionId"]);
    api.begin_when_rung(session).await.answer("a").await;
    let rest = events.rest().await;
    assert_eq!(names(&rest), ["done"]);
    assert_eq!(rest[0].data["content"], "a");
    let body = api.get("/readyz").await.json();
    assert_eq!(
        body["dependencies"].as_array().unwrap().iter().map(|of| of["ok"].clone()).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert_eq!(api.get("/queues").await.json()["items"][0]["bells"], json!(null));
}

#[tokio::test]
async fn an_answer_that_nobody_tells_of_is_found() {
    let api = Api::start().await;
    let session = api.session().await;
    let body = json!({"message": "m", "sessionId": session});
    let (answer, ()) = tokio::join!(api.chat(&body), async {
        api.begin_when_rung(session).await.answer_silently("one").await;
    });
    assert_eq!(answer.json()["content"], "one");

    let events = api.chat_events(&body).await;
    api.begin_when_rung(session).await.answer_silently("two").await;
    let rest = events.rest().await;
    assert_eq!(names(&rest), ["job.accepted", "chat.user_message", "job.started", "turn.started", "done"]);
    assert_eq!(rest[4].data["content"], "two");
}
