//! When a model call is tried again, and when not.

use std::time::Duration;

use roundhouse_engines::contract::{EngineError, EngineEvent};

use crate::script::{Act, Server, end, head, nobody, piece, says, status, streamed};
use crate::turns::{engine, input, next, open, rest, settings, turn};

const HI: [&str; 3] = ["delta hi", "message \"hi\"", "done after 1"];

#[tokio::test]
async fn a_call_is_tried_again_until_its_first_token() {
    let cases = [
        ("too many requests", status(429, "", "slow down"), "retry after try 1: 429"),
        ("a server's error", status(529, "", ""), "retry after try 1: 529"),
        ("an end before the answer", vec![head(), piece(": wait\n\n"), end()], "retry after try 1"),
        ("a cut before the answer", vec![head(), Act::Close], "retry after try 1"),
        ("a cut before the head", vec![Act::Close], "retry after try 1"),
        ("an end of nothing", streamed(["data: [DONE]\n\n"]), "retry after try 1"),
        (
            "chunks without a choice",
            streamed(["data: {\"choices\":[],\"model\":\"m-1\"}\n\n", "data: [DONE]\n\n"]),
            "retry after try 1",
        ),
        (
            "an error in the stream",
            vec![head(), piece("data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n"), end()],
            "retry after try 1: 503",
        ),
    ];
    for (case, reply, retry) in cases {
        let server = Server::start([reply, says("hi")]).await;

        let events = turn(settings(&server.base_url)).await;

        assert_eq!(events[0], retry, "{case}");
        assert_eq!(events[1..], HI, "{case}");
    }
}

#[tokio::test]
async fn tries_are_bounded_and_the_last_error_is_told() {
    let server =
        Server::start([status(429, "retry-after: 7\r\n", r#"{"error":{"message":"slow down"}}"#)]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();

    let mut retries = vec![];
    let error = loop {
        match next(&mut *session).await {
            EngineEvent::Retry { attempt, delay, status } => retries.push((attempt, delay, status)),
            EngineEvent::Failed(error) => break error,
            other => panic!("{other:?}"),
        }
    };

    // The provider asks for more than is allowed here.
    let longest = Duration::from_millis(5);
    assert_eq!(retries, [1, 2, 3].map(|attempt| (attempt, longest, Some(429))));
    assert_eq!(
        error,
        EngineError::Provider {
            status: Some(429),
            retry_after: Some(Duration::from_secs(7)),
            detail: "slow down".to_owned()
        }
    );
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn the_provider_says_how_long_to_wait() {
    let cases = [
        ("retry-after: 0\r\n", Duration::ZERO),
        ("retry-after: 0.002\r\n", Duration::from_millis(2)),
        ("retry-after-ms: 3\r\nretry-after: 1\r\n", Duration::from_millis(3)),
        ("retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", Duration::ZERO),
    ];
    for (headers, expected) in cases {
        let server = Server::start([status(503, headers, ""), says("hi")]).await;
        let engine = engine(settings(&server.base_url));
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();

        let first = next(&mut *session).await;

        assert!(
            matches!(first, EngineEvent::Retry { delay, .. } if delay == expected),
            "{headers}: {first:?}"
        );
        assert_eq!(rest(&mut *session).await, HI);
    }
}

#[tokio::test]
async fn without_a_word_of_the_provider_the_wait_doubles() {
    let server = Server::start([status(500, "", "")]).await;
    let mut settings = settings(&server.base_url);
    settings.retry_delay = Duration::from_millis(4);
    settings.max_retry_delay = Duration::from_millis(10);
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();

    for longest in [4, 8, 10] {
        let event = next(&mut *session).await;
        let range = Duration::from_millis(longest) / 2..=Duration::from_millis(longest);
        assert!(matches!(event, EngineEvent::Retry { delay, .. } if range.contains(&delay)), "{event:?}");
    }
    assert_eq!(rest(&mut *session).await, ["failed: the provider failed with HTTP 500: without a reason"]);
}

#[tokio::test]
async fn nothing_is_tried_again_after_the_first_token() {
    let half = piece("data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\n");
    let server = Server::start([vec![head(), half, Act::Close], says("hi")]).await;

    let events = turn(settings(&server.base_url)).await;

    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0], "thinking hm");
    assert!(events[1].starts_with("failed: "), "{events:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_rejection_that_would_come_again_is_not_tried_again() {
    let server = Server::start([status(401, "", r#"{"error":{"message":"bad key"}}"#), says("hi")]).await;

    let events = turn(settings(&server.base_url)).await;

    assert_eq!(events, ["failed: the provider failed with HTTP 401: bad key"]);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again_and_then_named() {
    let (_held, nobody) = nobody();
    let mut settings = settings(&format!("http://{nobody}/v1?key=hidden"));
    settings.max_tries = 2;

    let events = turn(settings).await;

    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0], "retry after try 1");
    assert!(
        events[1].starts_with("failed: the provider failed: the provider cannot be reached"),
        "{events:?}"
    );
    assert!(events[1].contains("refused") && !events[1].contains("hidden"), "{events:?}");
}

#[tokio::test]
async fn a_server_that_refuses_stream_options_is_asked_without_from_then_on() {
    let cases = [
        (400, r#"{"error":{"message":"unknown field stream_options"}}"#),
        (
            422,
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"not permitted"}]}"#,
        ),
        (400, "include_usage is not supported"),
    ];
    for (code, refusal) in cases {
        let server = Server::start([status(code, "", refusal), says("hi")]).await;
        assert_eq!(asked_for_usage(&server, 2).await, [true, false, false], "{refusal}");
    }
}

#[tokio::test]
async fn a_refusal_that_does_not_name_stream_options_costs_the_usage_of_one_call() {
    let loading = status(400, "", r#"{"error":{"message":"model is loading"}}"#);
    let server = Server::start([loading, says("hi")]).await;

    assert_eq!(asked_for_usage(&server, 2).await, [true, false, true]);
}

/// Runs so many turns of one agent, each of which ends well, and tells for each request whether it asked for usage.
async fn asked_for_usage(server: &Server, turns: usize) -> Vec<bool> {
    let engine = engine(settings(&server.base_url));
    for _ in 0..turns {
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();
        assert_eq!(rest(&mut *session).await, HI);
    }
    let requests = server.requests();
    requests.iter().map(|request| request.body["stream_options"]["include_usage"] == true).collect()
}

#[tokio::test]
async fn a_request_that_is_bad_for_another_reason_does_not_cost_the_usage_of_the_next() {
    let bad = status(400, "", r#"{"error":{"message":"too long"}}"#);
    let server = Server::start([bad.clone(), bad, says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;

    session.send(input(&["hello"])).await.unwrap();
    assert_eq!(rest(&mut *session).await, ["failed: the provider failed with HTTP 400: too long"]);
    session.send(input(&["hello"])).await.unwrap();
    assert_eq!(rest(&mut *session).await, HI);

    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].body["stream_options"]["include_usage"], true);
}
