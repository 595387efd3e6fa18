//! Forks: both go their own ways, and remember what is displayed.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::cut::counted;
use crate::support::{Deployment, Kind, on, text, until};

on!(a_fork_knows_what_its_source_knew_then: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_fork_knows_what_its_source_knew_then(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let source = client.counted_to_eleven("oracle").await;
    let mut events = other.follow(&source, None).await;
    events.until("session.snapshot").await;
    let at = client.id_of(&source, "X = 6").await;

    let answer = client.fork(&source, &json!({ "upToMessageId": at, "title": "six" })).await;

    assert_eq!(answer.status, 201, "{}", answer.body);
    let forked = answer.json();
    let fork = text(&forked["sessionId"]);
    assert_eq!(answer.headers["location"], format!("/sessions/{fork}").as_str());
    assert_eq!(forked["session"], other.session(&fork).await);
    for (field, expected) in
        [("claudeForked", json!(false)), ("engineForked", json!(false)), ("contextSource", json!("replay"))]
    {
        assert_eq!(forked[field], expected, "{field}");
    }
    for (field, expected) in [
        ("parentSessionId", json!(source)),
        ("forkedFromMessageId", json!(at)),
        ("title", json!("six")),
        ("messageCount", json!(4)),
        ("usage", json!({ "input": 0, "output": 0, "cache": 0, "cost": null })),
    ] {
        assert_eq!(forked["session"][field], expected, "{field}");
    }
    let told = events.until("session.forked").await.data;
    assert_eq!((&told["forkedSessionId"], &told["messageId"]), (&json!(fork), &json!(at)));
    let of = async |session: &str| client.items(&format!("/sessions/{session}/messages")).await;
    for (copy, message) in of(&fork).await.iter().zip(of(&source).await) {
        for same in ["role", "content", "createdAt", "outputTokens"] {
            assert_eq!(copy[same], message[same], "{same}");
        }
        assert_eq!(copy["externalId"], format!("forkcopy:{}", message["id"]));
        assert_eq!((&copy["turnId"], &copy["jobId"]), (&Value::Null, &Value::Null));
    }
    assert_eq!((other.x(&fork).await, client.x(&source).await), ("X = 6".to_owned(), "X = 11".to_owned()));
    client.counts(&fork).await;
    deployment.end().await;
}

on!(forks_of_forks_and_their_trims_go_on_without_their_source: Embedded, Distributed);
async fn forks_of_forks_and_their_trims_go_on_without_their_source(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let first = client.counted_to_eleven("oracle").await;
    let second = client.fork_at(&first, "X = 11").await;
    client.says("oracle", &second, "add 100 to x").await;
    let third = other.fork_at(&second, "X = 111").await;
    assert_eq!(other.trim_at(&third, "X = 11").await["deleted"], 2);
    for gone in [&first, &second] {
        let answer = client.send(client.request("DELETE", &format!("/sessions/{gone}"))).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
    assert_eq!(client.x(&third).await, "X = 11");
    assert_eq!(other.trim_at(&third, "X = 6").await["contextSource"], "replay");
    assert_eq!(client.x(&third).await, "X = 6");
    // Nothing was spent twice: each turn is counted where it ran.
    let fork = client.fork_at(&third, "X = 6").await;
    assert_eq!(client.session(&fork).await["usage"]["input"], 0);
    deployment.end().await;
}

on!(ten_forks_at_once: Embedded, Distributed);
async fn ten_forks_at_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let clients = [deployment.client(), deployment.other()];
    let source = clients[0].counted_to_eleven("oracle").await;
    let at = clients[0].id_of(&source, "X = 6").await;
    // A session that is forked is busy: whoever comes second tries again.
    let forked = join_all((0..10).map(async |n: usize| {
        let client = clients[n % 2];
        until("a fork", async || {
            let answer = client.fork(&source, &json!({ "upToMessageId": at })).await;
            if answer.status == 409 {
                assert_eq!(answer.code(), "409 SESSION_BUSY");
                return None;
            }
            assert_eq!(answer.status, 201, "{}", answer.body);
            Some(text(&answer.json()["sessionId"]))
        })
        .await
    }))
    .await;
    let answers = join_all(
        forked
            .iter()
            .enumerate()
            .map(async |(n, fork)| clients[n % 2].says("oracle", fork, &format!("add {n} to x")).await),
    )
    .await;
    assert_eq!(answers, (0..10).map(|n| format!("X = {}", 6 + n)).collect::<Vec<_>>());
    assert_eq!(clients[1].x(&source).await, "X = 11");
    let spent: u64 = join_all(
        forked
            .iter()
            .chain([&source])
            .map(async |session| clients[0].session(session).await["usage"]["output"].as_u64().unwrap()),
    )
    .await
    .iter()
    .sum();
    assert_eq!(json!(spent), counted(&deployment, "output"), "each turn once");
    deployment.end().await;
}
