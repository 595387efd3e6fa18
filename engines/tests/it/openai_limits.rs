//! What a turn may use, over all its attempts.

use roundhouse_engines::contract::{ContextMessage, Earlier, ToolCall, TurnInput, Usage};
use roundhouse_engines::openai::{Prices, Settings};

use crate::script::{Act, Server, calls, says, using};
use crate::tools::with_tools;
use crate::turns::{answer_to, message, settings, user};

/// A turn that goes on after it was cut off behind a tool's result, and has come so far.
fn cut_off(iterations: u32, cost_nanos: Option<i64>) -> TurnInput {
    let call = ToolCall { id: "a".to_owned(), name: "echo".to_owned(), arguments: "{}".to_owned() };
    let context = vec![
        user("hello"),
        ContextMessage::Assistant { text: String::new(), tool_calls: vec![call] },
        ContextMessage::Tool { call: "a".to_owned(), text: "echoed".to_owned() },
    ];
    let usage = Usage { input_tokens: 100, cost_nanos, ..Usage::default() };
    let earlier = Earlier { iterations, usage, results: vec!["a".to_owned()], ..Earlier::default() };
    TurnInput { context, messages: vec![message("job-0", "hello")], earlier: Some(earlier) }
}

#[tokio::test]
async fn model_calls_of_earlier_attempts_count() {
    // Two are left, and none.
    for (iterations, made) in [(3, 2), (5, 0), (9, 0)] {
        let server = Server::start([calls(&[("b", "echo", "{}")])]).await;
        let (base, fake) = with_tools(settings(&server.base_url));

        let events = answer_to(Settings { max_iterations: 5, ..base }, cut_off(iterations, None)).await;

        let limit =
            "failed: the turn was ended: it has made 5 model calls, and max_iterations allows no more";
        assert_eq!(events.last().unwrap(), limit);
        assert_eq!((server.requests().len(), fake.ran.lock().unwrap().len()), (made, made));
    }
}

#[tokio::test]
async fn what_earlier_attempts_have_cost_counts() {
    let prices = Some(Prices { input: 1.0, output: 1.0, cache: None });
    for (earlier, made, cost) in
        [(None, 2, "0.0002"), (Some(150_000), 1, "0.00025"), (Some(300_000), 0, "0.0003")]
    {
        let server = Server::start([using(calls(&[("b", "echo", "{}")]), 100, 0)]).await;
        let (base, _) = with_tools(settings(&server.base_url));

        let limited = Settings { prices, max_cost_nanos: Some(200_000), ..base };
        let events = answer_to(limited, cut_off(1, earlier)).await;

        let limit =
            format!("failed: the turn was ended: it has cost {cost} USD, and its agent may spend 0.0002 USD");
        assert_eq!(*events.last().unwrap(), limit);
        assert_eq!(server.requests().len(), made);
    }
}

#[tokio::test]
async fn what_is_told_is_of_this_attempt() {
    let server = Server::start([using(says("hi"), 7, 3)]).await;
    let prices = Some(Prices { input: 1.0, output: 1.0, cache: None });

    let events = answer_to(Settings { prices, ..settings(&server.base_url) }, cut_off(4, Some(1_000))).await;

    assert_eq!(
        events,
        [
            "delta hi",
            "message \"hi\" used 7+0 in, 3 out, 0 thinking for 10000",
            "done after 1 used 7+0 in, 3 out, 0 thinking for 10000",
        ]
    );
}

#[tokio::test]
async fn a_turn_that_goes_on_has_the_results_that_were_kept() {
    let server = Server::start([vec![Act::Repeat]]).await;

    let events = answer_to(settings(&server.base_url), cut_off(1, None)).await;

    assert_eq!(events, ["delta echoed", "message \"echoed\"", "done after 1"]);
}
