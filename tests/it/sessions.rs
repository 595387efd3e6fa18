//! Sessions: create, list, change, read, delete.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{Client, Deployment, Kind, SOON, on, text};

on!(a_session_is_created_changed_and_deleted: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_session_is_created_changed_and_deleted(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let body = json!({"agent": "oracle", "title": "first", "metadata": {"a": [1, null]}, "model": "other"});

    let created = client.post("/sessions", &body).await;

    assert_eq!(created.status, 201, "{}", created.body);
    let session = created.json();
    let path = format!("/sessions/{}", text(&session["id"]));
    assert_eq!(created.headers["location"], path.as_str());
    assert_eq!(other.get(&path).await.json(), session);
    let zero = json!({"input": 0, "output": 0, "cache": 0, "cost": null});
    for (field, expected) in [
        ("agent", json!("oracle")),
        ("engine", json!("openai")),
        ("model", json!("other")),
        ("title", json!("first")),
        ("metadata", json!({"a": [1, null]})),
        ("status", json!("idle")),
        ("messageCount", json!(0)),
        ("archived", json!(false)),
        ("usage", zero),
        ("lastMessageId", Value::Null),
        ("activeTurnId", Value::Null),
    ] {
        assert_eq!(session[field], expected, "{field}");
    }

    let mut follower = other.follow(&text(&session["id"]), None).await;
    follower.until("session.snapshot").await;
    let patch = async |client: &Client, body: Value| {
        let answer = client.send(client.request("PATCH", &path).json(&body)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let changed = patch(client, json!({"title": null, "archived": true, "model": "oracle"})).await;
    assert_eq!((&changed["title"], &changed["archived"]), (&Value::Null, &json!(true)));
    assert_eq!((&changed["model"], &changed["metadata"]), (&json!("oracle"), &session["metadata"]));
    follower.until("session.updated").await;
    assert_eq!(patch(other, json!({"metadata": {"b": 1}})).await["metadata"], json!({"b": 1}));
    assert_eq!(patch(other, json!({"metadata": null})).await["metadata"], json!({}));
    let job = text(&client.chat(Some(&text(&session["id"])), "say hi").await.json()["jobId"]);

    assert_eq!(other.send(other.request("DELETE", &path)).await.status, 204);
    for gone in [path.clone(), format!("{path}/messages"), format!("{path}/events")] {
        assert_eq!(client.get(&gone).await.code(), "404 SESSION_NOT_FOUND", "{gone}");
    }
    assert_eq!(client.get(&format!("/jobs/{job}")).await.code(), "404 JOB_NOT_FOUND");
    assert_eq!(client.send(client.request("DELETE", &path)).await.code(), "404 SESSION_NOT_FOUND");
    deployment.end().await;
}

on!(sessions_are_listed_by_their_newest_activity: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn sessions_are_listed_by_their_newest_activity(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let mut ids = Vec::new();
    for n in 0..7 {
        let agent = if n % 2 == 0 { "oracle" } else { "priced" };
        ids.push(text(&client.post("/sessions", &json!({"agent": agent})).await.json()["id"]));
    }
    let list = async |query: &str| {
        let items = other.items(&format!("/sessions?{query}")).await;
        items.iter().map(|session| text(&session["id"])).collect::<Vec<_>>()
    };
    client.chat(Some(&ids[0]), "say first again").await;
    let newest_first: Vec<_> = [0, 6, 5, 4, 3, 2, 1].map(|n: usize| ids[n].clone()).into();
    // Sessions of one millisecond are in the order of their ids, so in that of their creation.
    assert_eq!(list("limit=200").await, newest_first);

    assert_eq!(pages(other, "/sessions?limit=2").await, newest_first);
    let priced: Vec<_> = newest_first.iter().filter(|id| [1, 3, 5].iter().any(|n| ids[*n] == **id)).collect();
    assert_eq!(list("agent=priced").await.iter().collect::<Vec<_>>(), priced);
    assert!(list("agent=nobody").await.is_empty());
    let (running, _events) = client.at_work().await;
    assert_eq!(list("status=running").await, [running]);
    deployment.oracle.hurry();
    deployment.end().await;
}

on!(messages_come_in_pages: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn messages_come_in_pages(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = text(&client.chat(None, "X = 0").await.json()["sessionId"]);
    for _ in 0..4 {
        client.chat(Some(&session), "add 1 to x").await;
    }
    let path = format!("/sessions/{session}/messages");
    let list = async |query: &str| {
        let items = deployment.other().items(&format!("{path}?{query}")).await;
        items.iter().map(|message| message["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };

    let all = list("").await;
    assert_eq!(all.len(), 10);
    assert_eq!(list("limit=3").await, all[..3]);
    assert_eq!(list(&format!("after={}", all[6])).await, all[7..]);
    assert_eq!(list(&format!("before={}&limit=2", all[6])).await, all[4..6], "the newest of them");
    assert_eq!(list(&format!("after={}&before={}", all[1], all[4])).await, all[2..4]);
    assert!(list(&format!("after={}", all[9])).await.is_empty());
    let page = client.get(&format!("{path}?limit=4")).await.json();
    assert_eq!(page["nextCursor"], all[3].to_string());
    let page = client.get(&format!("{path}?before={}&limit=4", all[9])).await.json();
    assert_eq!(page["nextCursor"], all[5].to_string());
    assert_eq!(client.get(&format!("{path}?limit=10")).await.json()["nextCursor"], Value::Null);
    deployment.end().await;
}

on!(a_busy_session_is_deleted_by_force_only: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_busy_session_is_deleted_by_force_only(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, running) = other.at_work().await;
    let path = format!("/sessions/{session}");
    let waiting = join_all(["inject", "enqueue"].map(|on_busy| {
        client.ask_events(json!({"message": "say no", "sessionId": session, "onBusy": on_busy}))
    }))
    .await;

    for busy in [path.clone(), format!("{path}?force=false")] {
        assert_eq!(client.send(client.request("DELETE", &busy)).await.code(), "409 SESSION_BUSY");
    }
    let deleted = client.send(client.request("DELETE", &format!("{path}?force=true"))).await;

    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert_eq!(other.get(&path).await.code(), "404 SESSION_NOT_FOUND");
    for events in waiting {
        let end = events.all().await.pop().unwrap();
        assert_eq!((end.name.as_str(), &end.data["cancelled"]), ("done", &json!(true)), "{end:?}");
    }
    // So does who waits at another process, which may look when the row is gone.
    let end = running.all().await.pop().unwrap();
    assert_eq!((end.name.as_str(), &end.data["cancelled"]), ("done", &json!(true)), "{end:?}");
    deployment.oracle.wait_for(|request| request.client_gone, SOON).await.unwrap();
    assert_eq!(deployment.oracle.requests().len(), 1);
    assert!(client.items("/jobs").await.is_empty());
    deployment.end().await;
}

/// The ids of a list, page by page.
async fn pages(client: &Client, path: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("{path}{cursor}")).await.json();
        ids.extend(page["items"].as_array().unwrap().iter().map(|item| text(&item["id"])));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}
