//! Turns against the oracle, which answers only from what it is sent.

use std::time::Duration;

use roundhouse_engines::contract::{ContextMessage, Engine};
use roundhouse_engines::openai::Prices;
use roundhouse_oracle::Oracle;

use crate::turns::{engine, input, next, open, rest, settings, show};

#[tokio::test]
async fn a_turn_is_answered_from_the_replayed_context() {
    let oracle = Oracle::start().await.unwrap();
    let mut settings = settings(&format!("{}/v1", oracle.base_url()));
    settings.instructions = "Be brief.".to_owned();
    settings.prices = Some(Prices { input: 1.0, output: 2.0, cache: Some(0.5) });
    let engine = engine(settings);
    assert_eq!(engine.available().await, Ok(()));
    let mut session = open(&engine).await;

    session.send(input(&["X = 5"])).await.unwrap();
    let first = rest(&mut *session).await;
    let mut second = input(&["add 1 to x", "what is X"]);
    second.history =
        vec![ContextMessage::User("X = 5".to_owned()), ContextMessage::Assistant("X = 5".to_owned())];
    session.send(second).await.unwrap();
    let second = rest(&mut *session).await;

    // 2 + 3 words in, 3 out.
    let used = " used 5+0 in, 3 out, 0 thinking for 11000";
    assert_eq!(
        first[first.len() - 2..],
        [format!("message \"X = 5\" by m{used}"), format!("done after 1{used}")]
    );
    // 7 words new, 8 before them, 6 out.
    let used = " used 7+8 in, 6 out, 0 thinking for 23000";
    assert_eq!(
        second[second.len() - 2..],
        [format!("message \"X = 6\\nX = 6\" by m{used}"), format!("done after 1{used}")]
    );
}

#[tokio::test]
async fn each_word_is_a_delta() {
    let oracle = Oracle::start().await.unwrap();
    let engine = engine(settings(&format!("{}/v1", oracle.base_url())));
    let mut session = open(&engine).await;

    session.send(input(&["count to 3"])).await.unwrap();
    let events = rest(&mut *session).await;

    let deltas: Vec<_> = events.iter().filter_map(|event| event.strip_prefix("delta ")).collect();
    assert_eq!(deltas.len(), 3, "{events:?}");
    assert_eq!(deltas.concat(), "1 2 3");
}

#[tokio::test]
async fn a_failure_that_passes_costs_a_try() {
    let oracle = Oracle::start().await.unwrap();
    let engine = engine(settings(&format!("{}/v1", oracle.base_url())));
    let mut session = open(&engine).await;

    session.send(input(&["fail 529 once", "say hi"])).await.unwrap();
    let events = rest(&mut *session).await;

    assert_eq!(events[0], "retry after try 1: 529");
    assert!(events[events.len() - 1].starts_with("done after 1"), "{events:?}");
    assert_eq!(oracle.requests().len(), 2);
}

#[tokio::test]
async fn the_oracle_sees_that_an_interrupted_client_is_gone() {
    let oracle = Oracle::start().await.unwrap();
    let engine = engine(settings(&format!("{}/v1", oracle.base_url())));
    let mut session = open(&engine).await;
    session.send(input(&["slow 3600", "count to 1000"])).await.unwrap();
    assert!(show(&next(&mut *session).await).starts_with("delta "));

    session.interrupt().await;

    assert_eq!(show(&next(&mut *session).await), "interrupted");
    oracle.wait_for(|request| request.client_gone, Duration::from_mins(1)).await.unwrap();
}
