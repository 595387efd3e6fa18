//! T1: a stream that breaks off is continued, on any process, without a hole and without a repetition.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{Client, Deployment, Kind, SseEvent, on, text};

/// Sessions whose stream is cut again and again.
const SESSIONS: usize = 8;

on!(a_stream_cut_anywhere_is_whole: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_stream_cut_anywhere_is_whole(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    join_all((0..SESSIONS).map(|n| cut_and_compare(&deployment, n))).await;
    deployment.end().await;
}

/// Follows a turn twice: throughout, and in pieces of a few events from one process and then the other.
async fn cut_and_compare(deployment: &Deployment, n: usize) {
    let clients = [deployment.client(), deployment.other()];
    let session = clients[0].post("/sessions", &json!({"agent": "oracle"})).await.json();
    let session = text(&session["id"]);
    let mut throughout = clients[n % 2].follow(&session, None).await;
    let mut piece = clients[(n + 1) % 2].follow(&session, None).await;
    for follower in [&mut throughout, &mut piece] {
        assert_eq!(follower.next().await.unwrap().name, "session.snapshot");
    }
    clients[0].chat_async(Some(&session), &format!("X = {n}")).await;
    let slow = clients[1].chat_async(Some(&session), "slow 1 count to 200").await;
    let is_last = |event: &SseEvent| event.name == "chat.response" && event.data["jobId"] == slow["jobId"];

    let whole = async {
        let mut events = Vec::new();
        while !events.last().is_some_and(is_last) {
            events.push(throughout.next().await.expect("an event"));
        }
        events
    };
    let pieces = async {
        let mut events: Vec<SseEvent> = Vec::new();
        let mut length = n;
        while !events.last().is_some_and(is_last) {
            length = (length * 5 + 3) % 13;
            for _ in 0..=length {
                if !events.last().is_some_and(is_last) {
                    events.push(piece.next().await.expect("an event"));
                }
            }
            let last = events.last().and_then(|event| event.id.clone());
            piece = clients[length % 2].follow(&session, last.as_deref()).await;
        }
        events
    };
    let (whole, pieces) = tokio::join!(whole, pieces);
    assert_eq!(pieces, whole, "session {n}");
    assert!(whole.iter().all(|event| event.name != "resync"), "session {n}: {whole:?}");
    let counted: String = whole
        .iter()
        .filter(|event| event.name == "message.delta")
        .map(|event| text(&event.data["text"]))
        .collect();
    assert!(counted.ends_with(&(1..=200).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")), "{counted}");
}

on!(a_place_that_is_not_known_is_told_once: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_place_that_is_not_known_is_told_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let events = client.stream(None, "X = 1").await.all().await;
    let done = &events.last().unwrap().data;
    let session = text(&done["sessionId"]);
    let (epoch, _) = events[0].id.as_deref().unwrap().split_once('-').unwrap();

    // Another numbering, of which nothing is known: after the word, all that there is.
    let stream = format!("/sessions/{session}/events?lastEventId=abc123-7");
    let mut follower = other.events(other.request("GET", &stream)).await;
    is_resync(&follower.next().await.unwrap(), done);
    let again = [follower.next().await.unwrap(), follower.next().await.unwrap()];
    assert_eq!(again[..], events[..2]);

    // Ahead of all that there is: after the word, what comes.
    let mut follower = other.follow(&session, Some(&format!("{epoch}-1000000"))).await;
    is_resync(&follower.next().await.unwrap(), done);
    goes_on(client, &session, &mut follower).await;
    deployment.end().await;
}

on!(a_place_that_is_too_old_is_told_once: Embedded, Distributed);
async fn a_place_that_is_too_old_is_told_once(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let first = client.stream(None, "X = 1").await.all().await;
    let session = text(&first[0].data["sessionId"]);

    // More events than the log holds: 2000, and what it may keep beyond.
    let mut last = first.clone();
    while number(last.iter().rev().find(|event| event.id.is_some()).unwrap()) < 2_200 {
        last = client.stream(Some(&session), "slow 1 count to 1500").await.all().await;
    }

    let mut follower = other.follow(&session, first[0].id.as_deref()).await;
    is_resync(&follower.next().await.unwrap(), &last.last().unwrap().data);
    goes_on(client, &session, &mut follower).await;
    deployment.end().await;
}

fn number(event: &SseEvent) -> u64 {
    event.id.as_deref().unwrap().split_once('-').unwrap().1.parse().unwrap()
}

fn is_resync(event: &SseEvent, done: &Value) {
    assert_eq!((event.name.as_str(), &event.id), ("resync", &None), "{event:?}");
    assert_eq!(event.data["status"], "idle");
    assert_eq!(event.data["lastMessageId"], done["messageId"]);
    assert_eq!((&event.data["reason"], &event.data["sessionId"]), (&json!("log_lost"), &done["sessionId"]));
}

/// The next events are those of the next chat.
async fn goes_on(client: &Client, session: &str, follower: &mut crate::support::Events) {
    let result = client.chat(Some(session), "add 1 to x").await.json();
    assert_eq!(result["content"], "X = 2");
    let next = follower.next().await.unwrap();
    assert_eq!((next.name.as_str(), &next.data["jobId"]), ("job.accepted", &result["jobId"]));
    let response = follower.until("chat.response").await;
    assert_eq!(response.data["jobId"], result["jobId"]);
}
