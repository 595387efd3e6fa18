//! Turns against the oracle, which answers only from what it is sent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use roundhouse_engines::contract::{Answer, Engine, EngineEvent};
use roundhouse_engines::openai::{Prices, Settings};
use roundhouse_engines::tools::{ToolContext, ToolOutcome, ToolSource, ToolSpec};
use roundhouse_oracle::Oracle;
use serde_json::{Value, json};

use crate::turns::{
    after, answered, assistant, engine, input, message, next, open, rest, settings, show, user,
};

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
    let second = after(vec![user("X = 5"), assistant("X = 5")], &["add 1 to x", "what is X"]);
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

/// A shell that understands what the oracle asks of one: `sleep S && echo W`.
struct Shell;

#[async_trait]
impl ToolSource for Shell {
    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: "shell".to_owned(),
            description: "Runs a command.".to_owned(),
            input_schema: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
        }]
    }

    async fn call(&self, _: &str, input: Value, _: &ToolContext) -> ToolOutcome {
        let command = input["command"].as_str().unwrap();
        let (sleep, echo) = command.split_once(" && echo ").unwrap();
        let seconds = sleep.strip_prefix("sleep ").unwrap().parse().unwrap();
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        ToolOutcome::success(echo)
    }
}

#[tokio::test]
async fn the_oracle_calls_the_shell_and_says_what_it_returned() {
    let oracle = Oracle::start().await.unwrap();
    let settings = settings(&format!("{}/v1", oracle.base_url()));
    let engine = engine(Settings { sources: vec![Arc::new(Shell)], ..settings });
    let mut session = open(&engine).await;
    session.send(input(&["sleep 0.05 then say hi"])).await.unwrap();

    let mut events = vec![];
    loop {
        let event = next(&mut *session).await;
        events.push(show(&event));
        if matches!(event, EngineEvent::Boundary) {
            session.proceed(vec![message("later", "say there")]).await;
        }
        if event.ends_turn() {
            break;
        }
    }

    let call = events[0].split(" as ").next().unwrap();
    assert_eq!(call, r#"message "" calls shell {"command":"sleep 0.05 && echo hi"}"#);
    assert!(events[2].starts_with("shell did call_") && events[2].ends_with(": hi"), "{events:?}");
    assert_eq!(events[3], "boundary");
    let answer = &events[events.len() - 2];
    assert!(answer.starts_with("message \"hi\\nthere\" by m"), "{answer}");
    // 5 words and then 5, 1 and 2: what the oracle counts itself.
    let requests = oracle.requests();
    let used = requests.iter().filter_map(|request| request.usage);
    let (input, output) = used.fold((0, 0), |(input, output), usage| {
        (input + usage.input_tokens - usage.cached_tokens, output + usage.output_tokens)
    });
    let done = events.last().unwrap();
    assert!(done.starts_with("done after 2 used ") && done.contains(&format!("{input}+")), "{done}");
    assert!(done.contains(&format!(" in, {output} out")), "{done}");
}

#[tokio::test]
async fn the_oracle_asks_and_says_what_was_answered() {
    let oracle = Oracle::start().await.unwrap();
    let settings = settings(&format!("{}/v1", oracle.base_url()));
    let engine = engine(Settings { ask_user: true, ..settings });
    let mut session = open(&engine).await;
    session.send(input(&["ask: Which way?"])).await.unwrap();

    let events = answered(&mut *session, [Answer::Text("left".to_owned())]).await;

    assert!(events[2].starts_with("asks ") && events[2].contains(r#""question":"Which way?""#), "{events:?}");
    let answer = &events[events.len() - 2];
    assert!(answer.starts_with("message \"left\""), "{answer}");
}
