//! T1: what a stream tells, in which order, and how it ends.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Deployment, Kind, SseEvent, on, text};

/// The names of a chat's events, and the fields of their data.
const TRANSCRIPT: &str = "\
job.accepted: at jobId kind sessionId
chat.user_message: at content injected jobId messageId origin sessionId
job.started: at attempt jobId kind sessionId turnId
turn.started: at attempt engine model sessionId turnId
message.delta: at attempt sessionId text turnId
message.completed: at attempt message messageId sessionId turnId
turn.completed: at attempt iterations sessionId turnId usage
done: agent cancelled content contextSource correlationId durationMs engine injected iterations jobId messageId model \
sessionId tokenUsage truncated turnId
";

on!(the_events_of_a_chat_come_in_order: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn the_events_of_a_chat_come_in_order(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let session = text(&deployment.client().chat(None, "say before").await.json()["sessionId"]);

    let events = deployment.client().stream(Some(&session), "slow 0.2 count to 40").await.all().await;

    assert_eq!(transcript(&events), TRANSCRIPT);
    let (done, numbered) = events.split_last().unwrap();
    assert_eq!(done.id, None, "the end is for this request only");
    let numbers: Vec<_> = numbered.iter().map(number).collect();
    let epoch = numbers[0].0.clone();
    let contiguous: Vec<_> = (numbers[0].1..).take(numbers.len()).map(|n| (epoch.clone(), n)).collect();
    assert_eq!(numbers, contiguous);

    let job = deployment.other().get(&format!("/jobs/{}", text(&done.data["jobId"]))).await.json();
    assert_eq!((&job["result"], &job["state"]), (&done.data, &json!("succeeded")));
    let find = |name: &str| &events.iter().find(|event| event.name == name).unwrap().data;
    let messages = deployment.other().items(&format!("/sessions/{session}/messages")).await;
    assert_eq!(find("message.completed")["message"], messages[3]);
    assert_eq!(find("message.completed")["messageId"], done.data["messageId"]);
    assert_eq!(
        (&find("chat.user_message")["messageId"], &messages[2]["jobId"]),
        (&messages[2]["id"], &job["id"])
    );
    assert_eq!(find("chat.user_message")["content"], messages[2]["content"]);
    assert_eq!(find("turn.completed")["usage"], done.data["tokenUsage"]);
    deployment.end().await;
}

on!(a_session_is_followed_from_a_snapshot_on: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_session_is_followed_from_a_snapshot_on(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let first = client.chat(None, "X = 1").await.json();
    let session = text(&first["sessionId"]);

    let mut follower = other.follow(&session, None).await;
    let snapshot = follower.next().await.unwrap();
    assert_eq!((snapshot.name.as_str(), &snapshot.id), ("session.snapshot", &None));
    assert_eq!((&snapshot.data["status"], &snapshot.data["activeTurnId"]), (&json!("idle"), &Value::Null));
    assert_eq!(snapshot.data["lastMessageId"], first["messageId"]);

    let mut responses = Vec::new();
    for message in ["add 1 to x", "add 1 to x"] {
        let result = client.chat(Some(&session), message).await.json();
        let accepted = follower.until("job.accepted").await;
        assert_eq!(accepted.data["jobId"], result["jobId"]);
        let mut last = accepted;
        loop {
            let event = follower.next().await.expect("an event");
            assert_eq!(number(&event).1, number(&last).1 + 1, "no hole");
            if event.name == "chat.response" {
                responses.push((result, without_at(event.data), last.id.unwrap()));
                break;
            }
            last = event;
        }
    }
    for (result, response, before) in responses {
        assert_eq!(response, result);
        // Whoever comes back after the end gets it at once.
        let late = client.follow(&session, Some(&before)).await.next().await.unwrap();
        assert_eq!((late.name.as_str(), without_at(late.data)), ("chat.response", result));
    }
    deployment.end().await;
}

on!(a_session_at_work_shows_its_turn: Embedded, Distributed);
async fn a_session_at_work_shows_its_turn(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (session, running) = deployment.client().at_work().await;

    let mut follower = deployment.other().follow(&session, None).await;
    let snapshot = follower.next().await.unwrap().data;
    deployment.oracle.hurry();

    assert_eq!(snapshot["status"], "running");
    let response = follower.until("chat.response").await.data;
    assert_eq!(snapshot["activeTurnId"], response["turnId"]);
    assert_eq!(running.all().await.last().unwrap().data, without_at(response));
    deployment.end().await;
}

on!(an_event_id_that_is_not_ours_gets_one_resync: Embedded, Distributed);
async fn an_event_id_that_is_not_ours_gets_one_resync(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = text(&client.chat(None, "X = 1").await.json()["sessionId"]);
    for id in ["nonsense", "1-", "-1", "xyz-1", "1-2-3", "1-x", "4711"] {
        let path = format!("/sessions/{session}/events");
        let by_header = client.request("GET", &path).header("last-event-id", id);
        let by_query = client.request("GET", &format!("{path}?lastEventId={id}"));
        for request in [by_header, by_query] {
            let mut events = client.events(request).await;
            let resync = events.next().await.unwrap();
            assert_eq!((&*resync.name, &resync.data["reason"]), ("resync", &json!("unknown_event")), "{id}");
            assert_eq!(resync.data["status"], "idle");
            client.says("oracle", &session, "say hi").await;
            assert_eq!(events.next().await.unwrap().name, "job.accepted", "{id}");
        }
    }
    deployment.end().await;
}

on!(a_stream_that_cannot_be_is_refused: Embedded, Distributed);
async fn a_stream_that_cannot_be_is_refused(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = text(&client.chat(None, "X = 1").await.json()["sessionId"]);
    let unknown = uuid::Uuid::now_v7();

    let get = async |path: &str, id: Option<&str>| {
        let request = client.request("GET", path).header("accept", "text/event-stream");
        client.send(if let Some(id) = id { request.header("last-event-id", id) } else { request }).await
    };
    let events = format!("/sessions/{session}/events");
    assert_eq!(get(&format!("{events}?since=1"), None).await.code(), "400 INVALID_REQUEST");
    for id in [None, Some("1-1")] {
        let refused = get(&format!("/sessions/{unknown}/events"), id).await;
        assert_eq!(refused.code(), "404 SESSION_NOT_FOUND");
        assert_eq!(get("/sessions/nonsense/events", id).await.code(), "400 INVALID_REQUEST");
    }
    deployment.end().await;
}

/// Names and fields, a run of the same as one.
fn transcript(events: &[SseEvent]) -> String {
    let mut lines: Vec<String> = events
        .iter()
        .map(|event| {
            let fields: BTreeSet<_> = event.data.as_object().unwrap().keys().map(String::as_str).collect();
            format!("{}: {}\n", event.name, fields.into_iter().collect::<Vec<_>>().join(" "))
        })
        .collect();
    lines.dedup();
    lines.concat()
}

fn number(event: &SseEvent) -> (String, u64) {
    let (epoch, n) = event.id.as_deref().expect("an id").split_once('-').expect("epoch-n");
    (epoch.to_owned(), n.parse().unwrap())
}

/// A response says when it was told, which a result does not.
fn without_at(mut response: Value) -> Value {
    response.as_object_mut().unwrap().remove("at").expect("at");
    response
}
