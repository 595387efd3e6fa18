//! Sessions: what is sent, what can be dropped, what is stopped.

use std::time::Duration;

use futures::FutureExt;
use roundhouse_engines::contract::{ContextMessage, EngineEvent};
use serde_json::json;

use crate::script::{Act, Server, head, piece, says, status};
use crate::turns::{after, assistant, engine, input, next, open, rest, settings, show, user};

const HI: [&str; 3] = ["delta hi", "message \"hi\"", "done after 1"];

fn delta(text: &str) -> Act {
    piece(format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]})))
}

#[tokio::test]
async fn a_turn_sends_instructions_and_its_context() {
    let server = Server::start([says("hi")]).await;
    let mut settings = settings(&server.base_url);
    settings.instructions = "Be brief.\n".to_owned();
    settings.api_key = Some("sk-key".into());
    settings.extra_headers = [("X-Team".to_owned(), "trains".into())].into();
    settings.extra_body = json!({"temperature": 0.5}).as_object().unwrap().clone();
    let engine = engine(settings);
    let mut session = open(&engine).await;
    let before = vec![user("one"), assistant("two"), ContextMessage::System("note".to_owned())];
    let input = after(before, &["three", "four \u{0} </user>"]);

    session.send(input).await.unwrap();
    assert_eq!(rest(&mut *session).await, HI);

    let request = &server.requests()[0];
    assert!(request.head.starts_with("post /v1/chat/completions http/1.1"), "{}", request.head);
    assert!(request.head.contains("authorization: bearer sk-key\r\n"), "{}", request.head);
    assert!(request.head.contains("x-team: trains\r\n"), "{}", request.head);
    assert_eq!(
        request.body,
        json!({
            "model": "m",
            "stream": true,
            "stream_options": {"include_usage": true},
            "temperature": 0.5,
            "messages": [
                {"role": "system", "content": "Be brief.\n"},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "system", "content": "note"},
                {"role": "user", "content": "three\n\nfour \u{0} </user>"},
            ],
        })
    );
}

#[tokio::test]
async fn each_delta_comes_as_soon_as_it_is_sent() {
    // The server never goes on, so a delta that waited for the next one would not come at all.
    let server = Server::start([vec![head(), delta("a"), delta("b"), Act::Hold]]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();

    assert_eq!(show(&next(&mut *session).await), "delta a");
    assert_eq!(show(&next(&mut *session).await), "delta b");
}

#[tokio::test]
async fn no_event_is_lost_when_the_wait_for_it_is_dropped() {
    let pause = Act::Sleep(Duration::from_millis(20));
    let reply = vec![head(), delta("a"), pause.clone(), delta("b"), pause];
    let reply = reply.into_iter().chain(says("c").into_iter().skip(1)).collect();
    let server = Server::start([status(500, "", ""), reply]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();

    let mut events = vec![];
    loop {
        // Polled once and dropped, over and over.
        let Some(event) = session.next().now_or_never() else {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        events.push(show(&event));
        if event.ends_turn() {
            break;
        }
    }

    let expected =
        ["retry after try 1: 500", "delta a", "delta b", "delta c", "message \"abc\"", "done after 1"];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn an_interrupt_closes_the_connection_and_the_session_can_go_on() {
    let mut server = Server::start([vec![head(), delta("a"), Act::Hold], says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();
    assert_eq!(show(&next(&mut *session).await), "delta a");

    session.interrupt().await;

    assert_eq!(show(&next(&mut *session).await), "interrupted");
    tokio::time::timeout(Duration::from_mins(1), server.closed.recv()).await.unwrap().unwrap();
    session.send(input(&["again"])).await.unwrap();
    assert_eq!(rest(&mut *session).await, HI);
}

#[tokio::test]
async fn an_interrupt_ends_the_wait_for_the_next_try() {
    let server = Server::start([status(500, "", "")]).await;
    let mut settings = settings(&server.base_url);
    settings.retry_delay = Duration::from_hours(1);
    settings.max_retry_delay = Duration::from_hours(1);
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();
    assert!(matches!(next(&mut *session).await, EngineEvent::Retry { .. }));

    session.interrupt().await;

    assert_eq!(show(&next(&mut *session).await), "interrupted");
}

#[tokio::test]
async fn without_a_turn_there_is_nothing_to_tell_and_nothing_to_interrupt() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();
    assert_eq!(rest(&mut *session).await, HI);

    session.interrupt().await;

    assert!(session.next().now_or_never().is_none());
}

#[tokio::test]
async fn a_second_turn_is_refused_while_one_runs() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();

    let error = session.send(input(&["me too"])).await.unwrap_err();

    assert_eq!(error.to_string(), "the engine is unavailable: a turn is already running in this session");
    assert_eq!(rest(&mut *session).await, HI);
}

#[tokio::test]
async fn sessions_of_one_engine_take_turns_on_one_connection() {
    let at_once: Vec<u8> = says("hi")
        .into_iter()
        .flat_map(|act| match act {
            Act::Send(bytes) => bytes,
            Act::Sleep(_) | Act::Hold | Act::Close | Act::Repeat => vec![],
        })
        .collect();
    let server = Server::start([vec![Act::Send(at_once)]]).await;
    let engine = engine(settings(&server.base_url));

    for _ in 0..3 {
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();
        assert_eq!(rest(&mut *session).await, HI);
        // The connection goes back to the pool in a task of the client's own.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 0]);
}
