//! What a turn may use, over all its attempts.

use roundhouse_engines::contract::{ContextMessage, Earlier, ToolCall, TurnInput, Usage};
use roundhouse_engines::openai::{Prices, Settings};

use crate::script::{Act, Server, calls, says, streamed, using};
use crate::tools::with_tools;
use crate::turns::{answer_to, input, message, settings, user};

/// A turn that goes on after it was cut off behind a tool's result, and has come so far.
fn cut_off(iterations: u32, cost_nanos: Option<i64>) -> TurnInput {
    let call = ToolCall { id: "a".to_owned(), name: "echo".to_owned(), arguments: "{}".to_owned() };
    let context = vec![
        user("hello"),
        ContextMessage::Assistant { text: String::new(), tool_calls: vec![call], opaque: None },
        ContextMessage::Tool { call: "a".to_owned(), text: "echoed".to_owned(), opaque: None },
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
            "boundary",
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

    assert_eq!(events, ["boundary", "delta echoed", "message \"echoed\"", "done after 1"]);
}

#[tokio::test]
async fn the_cost_of_a_turn_is_that_of_the_calls_whose_cost_is_known() {
    let call = || calls(&[("a", "echo", "{}")]);
    let prices = Some(Prices { input: 1.0, output: 1.0, cache: None });
    let cases = [
        vec![using(call(), 100, 0), says("hi")],
        vec![call(), using(says("hi"), 100, 0)],
        vec![using(call(), 60, 0), call(), using(says("hi"), 40, 0)],
    ];
    for replies in cases {
        let server = Server::start(replies).await;
        let (base, _) = with_tools(settings(&server.base_url));

        let events = answer_to(Settings { prices, ..base }, input(&["hello"])).await;

        assert!(
            events.last().unwrap().ends_with("used 100+0 in, 0 out, 0 thinking for 100000"),
            "{events:?}"
        );
    }
}

#[tokio::test]
async fn what_an_answer_that_came_to_nothing_has_used_is_told_and_counts() {
    let prices = Some(Prices { input: 1.0, output: 1.0, cache: None });
    let used =
        r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#.to_owned() + "\n\n";
    let half = r#"data: {"choices":[{"delta":{"content":"h"}}]}"#.to_owned() + "\n\n";
    let done = "data: [DONE]\n\n".to_owned();
    let server =
        Server::start([streamed([&used, &done]), using(says("hi"), 9, 1), streamed([&half, &used])]).await;
    let settings = Settings { prices, ..settings(&server.base_url) };

    let again = answer_to(settings.clone(), input(&["hello"])).await;
    let broken = answer_to(settings, input(&["hello"])).await;

    let for_nothing = "for nothing used 9+0 in, 1 out, 0 thinking for 10000";
    assert_eq!(
        again,
        [
            for_nothing,
            "retry after try 1",
            "delta hi",
            "message \"hi\" used 9+0 in, 1 out, 0 thinking for 10000",
            "done after 1 used 18+0 in, 2 out, 0 thinking for 20000",
        ]
    );
    assert_eq!(broken[..2], ["delta h", for_nothing]);
    assert!(broken[2].starts_with("failed: ") && broken.len() == 3, "{broken:?}");
}

#[tokio::test]
async fn what_a_call_of_no_tool_has_used_is_told() {
    let server = Server::start([using(calls(&[("a", "echo", "{}")]), 9, 1)]).await;

    let events = answer_to(settings(&server.base_url), input(&["hello"])).await;

    assert_eq!(events[0], "for nothing used 9+0 in, 1 out, 0 thinking");
    assert!(events[1].starts_with("failed: ") && events.len() == 2, "{events:?}");
}
