//! What the oracle records.

use std::time::{Duration, Instant};

use roundhouse_oracle::{Oracle, Protocol, RecordedRequest, Settings, most_at_once, serve};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{DEADLINE, World, user};

const PATH: &str = "/v1/chat/completions";

fn chat(text: &str) -> Value {
    json!({"messages": [user(text)], "stream": true})
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_request() {
    let world = World::start().await;
    for stream in [true, false] {
        world.oracle.clear();
        let mut body = chat("slow 60, count to 10");
        body["stream"] = json!(stream);
        let asking = world.client.post(world.url(PATH)).json(&body).send();
        if stream {
            let mut response = asking.await.unwrap();
            response.chunk().await.unwrap().unwrap();
            assert!(world.oracle.requests()[0].in_flight());
            drop(response);
        } else {
            tokio::select! {
                _ = asking => panic!("it answered"),
                found = world.oracle.wait_for(|_| true, DEADLINE) => assert!(found.unwrap().in_flight()),
            }
        }
        let gone = world.oracle.wait_for(|request| request.end_n.is_some(), DEADLINE).await.unwrap();
        assert!(gone.client_gone && gone.usage.is_none());
    }
    world.stop().await;
}

#[tokio::test]
async fn slow_answers_under_way_can_be_hurried() {
    let world = World::start().await;
    for stream in [true, false] {
        let mut body = chat(&format!("slow 3600, say {stream} is late"));
        body["stream"] = json!(stream);
        let hurry = async {
            let of_this = |request: &RecordedRequest| request.in_flight();
            world.oracle.wait_for(of_this, DEADLINE).await.unwrap();
            world.oracle.hurry();
        };
        let read = async { world.post(PATH, &body).await.text().await.unwrap() };
        let (text, ()) = tokio::join!(read, hurry);
        assert!(text.contains("late"), "{text}");
    }
    world.stop().await;
}

#[tokio::test]
async fn requests_at_the_same_time_are_seen_as_such() {
    let world = World::start().await;
    let read = async |text: &str| world.post(PATH, &chat(text)).await.text().await.unwrap();
    tokio::join!(read("slow 0.5, say a b c"), read("slow 0.5, say d e f"));
    assert_eq!(most_at_once(&world.oracle.requests()), 2);
    world.oracle.clear();
    for _ in 0..20 {
        read("say a").await;
        read("slow 0.01").await;
    }
    let requests = world.oracle.requests();
    assert_eq!((requests.len(), most_at_once(&requests)), (40, 1));
    assert!(requests.iter().all(|request| request.status == Some(200) && !request.client_gone));
    world.stop().await;
}

#[tokio::test]
async fn waiting_finds_what_was_there_and_what_comes_and_gives_up() {
    let world = World::start().await;
    let says = |text: &'static str| {
        move |request: &roundhouse_oracle::RecordedRequest| request.json()["messages"][0]["content"] == text
    };
    let wait = world.oracle.wait_for(says("say b"), DEADLINE);
    let send = async {
        world.post(PATH, &chat("say a")).await;
        world.post(PATH, &chat("say b")).await;
    };
    let (found, ()) = tokio::join!(wait, send);
    assert_eq!(found.unwrap().seq, 2);
    assert_eq!(world.oracle.wait_for(says("say a"), DEADLINE).await.unwrap().seq, 1);
    let none = world.oracle.wait_for(says("say c"), Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(none.seen, 2);
    world.stop().await;
}

#[tokio::test]
async fn the_record_is_served_without_credentials_and_cleared() {
    let world = World::start().await;
    let request = world.client.post(world.url(PATH)).bearer_auth("secret").header("x-session", "s1");
    request.json(&chat("say a")).send().await.unwrap().text().await.unwrap();
    world.client.post(world.url(PATH)).body("not JSON").send().await.unwrap();
    let listed = world.client.get(world.url("/requests")).send().await.unwrap().text().await.unwrap();
    assert!(!listed.contains("secret"));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["body"], chat("say a"));
    assert_eq!((&listed[0]["headers"]["x-session"], &listed[0]["protocol"]), (&json!("s1"), &json!("chat")));
    assert_eq!(
        (&listed[0]["startN"], &listed[0]["endN"], &listed[0]["inFlight"]),
        (&json!(1), &json!(2), &json!(false))
    );
    assert_eq!((&listed[1]["body"], &listed[1]["status"]), (&json!("not JSON"), &json!(400)));
    let cleared = world.client.delete(world.url("/requests")).send().await.unwrap();
    assert_eq!((cleared.status().as_u16(), world.oracle.requests().len()), (204, 0));
    world.stop().await;
}

#[tokio::test]
async fn recording_can_be_switched_off() {
    let mut world = World::start().await;
    world.oracle = Oracle::start_with(Settings { record: false, ..Settings::default() }).await.unwrap();
    world.post(PATH, &chat("say a")).await;
    assert_eq!(world.oracle.requests().len(), 0);
    world.stop().await;
}

#[tokio::test]
async fn stopping_breaks_off_what_is_slow_and_frees_the_port() {
    let world = World::start().await;
    let addr = world.oracle.addr();
    let mut response = world.post(PATH, &chat("slow 60, count to 10")).await;
    response.chunk().await.unwrap().unwrap();
    let recorded = world.oracle.requests().remove(0);
    assert_eq!(recorded.protocol, Protocol::Chat);
    let begun = Instant::now();
    world.oracle.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    while let Ok(Some(_)) = response.chunk().await {}
    // A second oracle can have the port, so the first has let go of it.
    let (listener, stop) = (TcpListener::bind(addr).await.unwrap(), CancellationToken::new());
    let served = serve(listener, Settings::default(), stop.clone());
    let asking = async {
        let found = world.client.get(format!("http://{addr}/")).send().await.unwrap();
        assert_eq!(found.text().await.unwrap(), "roundhouse oracle\n");
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(served, asking);
    ended.unwrap();
}
