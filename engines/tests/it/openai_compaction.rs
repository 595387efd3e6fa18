//! Conversations that become too long.

use roundhouse_engines::contract::{ContextMessage, EngineEvent, ToolCall, TurnInput};
use roundhouse_engines::openai::Settings;
use serde_json::{Value, json};

use crate::script::{Server, calls, says, status, using};
use crate::tools::with_tools;
use crate::turns::{after, answer_to, assistant, engine, input, message, next, open, rest, settings, user};

const FRAME: &str = "Summary of the conversation before the messages that follow:\n\n";

fn windowed(server: &Server, window: u64) -> Settings {
    let (settings, _) = with_tools(settings(&server.base_url));
    Settings { context_window: Some(window), ..settings }
}

/// A short conversation, and a message to answer.
fn talk() -> TurnInput {
    after(vec![user("X = 5"), assistant("noted")], &["hello"])
}

/// About a thousand tokens.
fn long() -> String {
    "word ".repeat(800)
}

fn messages(server: &Server, request: usize) -> Value {
    server.requests()[request].body["messages"].clone()
}

#[tokio::test]
async fn a_reported_context_near_the_window_is_summarised_before_the_next_call() {
    let replies = [
        using(calls(&[("a", "echo", "{}")]), 750, 60),
        using(says(" they spoke "), 30, 3),
        using(says("hi"), 40, 1),
    ];
    let server = Server::start(replies).await;

    let events = answer_to(windowed(&server, 1000), talk()).await;

    assert_eq!(
        events[2..],
        [
            "echo did a: {}".to_owned(),
            format!("2 became {:?} used 30+0 in, 3 out, 0 thinking", format!("{FRAME}they spoke")),
            "boundary".to_owned(),
            "delta hi".to_owned(),
            "message \"hi\" used 40+0 in, 1 out, 0 thinking".to_owned(),
            "done after 2 used 820+0 in, 64 out, 0 thinking".to_owned(),
        ]
    );
    let summary = &server.requests()[1].body;
    assert_eq!(summary["tools"], Value::Null);
    assert_eq!(summary["messages"][0]["role"], "system");
    assert_eq!(
        summary["messages"][1]["content"],
        "<conversation>\nUser: X = 5\n\nAssistant: noted\n</conversation>\n\nSummarise this conversation."
    );
    let sent = messages(&server, 2);
    assert_eq!(sent[0], json!({"role": "system", "content": format!("{FRAME}they spoke")}));
    let roles: Vec<_> = sent.as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
}

#[tokio::test]
async fn what_the_results_add_counts() {
    let replies = [using(calls(&[("a", "huge", "{}")]), 700, 10), says("they spoke"), says("hi")];
    let server = Server::start(replies).await;

    let events = answer_to(windowed(&server, 20_000), talk()).await;

    // The result alone is more than may stay beside a summary, so that of its exchange only the call stays with it.
    assert!(events[3].starts_with("3 became "), "{events:?}");
}

#[tokio::test]
async fn without_usage_the_length_is_estimated_also_at_the_start_of_a_turn() {
    let server = Server::start([says("they spoke"), says("hi")]).await;

    let events =
        answer_to(windowed(&server, 1200), after(vec![user(&long()), assistant("noted")], &["hello"])).await;

    let summary = format!("2 became {:?}", format!("{FRAME}they spoke"));
    assert_eq!(events, [&*summary, "delta hi", "message \"hi\"", "done after 1"]);
}

/// A turn that goes on with its message and these results.
fn resumed(results: &[&str]) -> TurnInput {
    let mut context = vec![user("do it")];
    for (index, result) in results.iter().enumerate() {
        let id = format!("c{index}");
        let call = ToolCall { id: id.clone(), name: "echo".to_owned(), arguments: "{}".to_owned() };
        context.push(ContextMessage::Assistant { text: String::new(), tool_calls: vec![call], opaque: None });
        context.push(ContextMessage::Tool { call: id, text: (*result).to_owned(), opaque: None });
    }
    TurnInput { context, messages: vec![message("job", "do it")], ..TurnInput::default() }
}

#[tokio::test]
async fn a_long_exchange_is_cut_within_and_keeps_its_message_and_its_newest_calls_with_their_results() {
    let server = Server::start([says("two calls"), says("hi")]).await;
    let long = long();

    let events = answer_to(windowed(&server, 2400), resumed(&[&long, &long, "short"])).await;

    let question = "The message that is being worked on, word for word:\n\ndo it";
    let summary = format!("{FRAME}two calls\n\n{question}");
    assert_eq!(events[0], format!("5 became {summary:?}"));
    let sent = messages(&server, 1);
    // No person's message is left, and some models take no conversation without one at its beginning.
    assert_eq!(sent[0], json!({"role": "user", "content": summary}));
    assert_eq!(sent[1]["tool_calls"][0]["id"], "c2");
    assert_eq!(sent[2], json!({"role": "tool", "tool_call_id": "c2", "content": "short"}));
    assert_eq!(sent.as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn the_newest_call_stays_whole_however_long_its_result_is() {
    let server = Server::start([says("a call"), says("hi")]).await;

    let events = answer_to(windowed(&server, 1000), resumed(&["short", &long()])).await;

    assert!(events[0].starts_with("3 became "), "{events:?}");
    assert_eq!(messages(&server, 1)[1]["tool_calls"][0]["id"], "c1");
}

#[tokio::test]
async fn an_earlier_summary_counts_as_one_message_and_is_not_summarised_alone() {
    let server = Server::start([says("more"), says("hi"), says("hi")]).await;
    let earlier = ContextMessage::System(format!("{FRAME}{}", long()));

    let with_more = after(vec![earlier.clone(), user("one"), assistant("two")], &["hello"]);
    let with_more = answer_to(windowed(&server, 1000), with_more).await;
    let alone = answer_to(windowed(&server, 1000), after(vec![earlier], &["hello"])).await;

    assert!(with_more[0].starts_with("3 became "), "{with_more:?}");
    assert!(messages(&server, 0)[1]["content"].as_str().unwrap().contains("\nNote: Summary of"));
    assert_eq!(alone, ["delta hi", "message \"hi\"", "done after 1"]);
}

#[tokio::test]
async fn a_summary_that_fails_fails_the_turn_only_if_there_is_no_room_left() {
    let no = || status(401, "", r#"{"error":{"message":"no"}}"#);
    let call = |tokens| using(calls(&[("a", "echo", "{}")]), tokens, 0);

    let room = Server::start([call(900), no(), call(950), says("hi")]).await;
    let with_room = answer_to(windowed(&room, 1000), talk()).await;
    let full = Server::start([call(1000), no(), says("hi")]).await;
    let without = answer_to(windowed(&full, 1000), talk()).await;
    let empty = Server::start([call(1000), says(" "), says(" "), says("hi")]).await;
    let with_nothing = answer_to(windowed(&empty, 1000), talk()).await;

    assert!(with_room.last().unwrap().starts_with("done after 3"), "{with_room:?}");
    // It is tried once a turn.
    assert_eq!(room.requests().len(), 4);
    let reason = "the conversation is too long for the model, and could not be summarised";
    assert_eq!(without.last().unwrap(), &format!("failed: the provider failed with HTTP 401: {reason}: no"));
    assert_eq!(
        with_nothing.last().unwrap(),
        &format!(
            "failed: the provider failed: {reason}: the answer was empty: the model gave neither text nor a call"
        )
    );
}

#[tokio::test]
async fn what_a_summary_of_nothing_has_used_is_told() {
    let server =
        Server::start([using(calls(&[("a", "echo", "{}")]), 1000, 0), using(says(" "), 1000, 77)]).await;

    let events = answer_to(windowed(&server, 1000), talk()).await;

    assert_eq!(events[3], "for nothing used 1000+0 in, 77 out, 0 thinking");
    // It is made once more.
    assert_eq!(events[3..5], [events[5].clone(), "retry after try 1".to_owned()]);
    assert!(events[6].starts_with("failed: "), "{events:?}");
}

#[tokio::test]
async fn a_summary_is_tried_again_like_any_call_and_its_text_is_not_told() {
    let server = Server::start([status(500, "", ""), says("they spoke"), says("hi")]).await;

    let events =
        answer_to(windowed(&server, 1200), after(vec![user(&long()), assistant("noted")], &["hello"])).await;

    assert_eq!(events[0], "retry after try 1: 500");
    assert!(events[1].starts_with("2 became"), "{events:?}");
    assert_eq!(events[2..], ["delta hi", "message \"hi\"", "done after 1"]);
}

#[tokio::test]
async fn the_part_to_summarise_is_shortened_to_what_the_model_takes() {
    let server = Server::start([says("they spoke"), says("hi")]).await;
    let before = (0..20).flat_map(|_| [user(&long()), assistant("noted")]).collect();

    let events = answer_to(windowed(&server, 4000), after(before, &["hello"])).await;

    assert!(events[0].starts_with("40 became"), "{events:?}");
    let asked = messages(&server, 0)[1]["content"].as_str().unwrap().len();
    assert!((9_000..10_000).contains(&asked), "{asked}");
}

#[tokio::test]
async fn a_second_summary_stands_for_the_first_and_keeps_the_message_too() {
    let call = |id: &str, tokens| using(calls(&[(id, "huge", "{}")]), tokens, 0);
    // Each result is about 16,000 tokens.
    let replies =
        [call("a", 100), call("b", 17_000), says("one"), call("c", 17_000), says("two"), says("hi")];
    let server = Server::start(replies).await;

    let events = answer_to(windowed(&server, 40_000), talk()).await;

    let compacted: Vec<_> = events.iter().filter(|event| event.contains(" became ")).collect();
    let question = "The message that is being worked on, word for word:\\n\\nhello";
    assert!(compacted[0].starts_with("5 became ") && compacted[0].contains(question), "{compacted:?}");
    assert!(compacted[1].starts_with("3 became ") && compacted[1].contains(question), "{compacted:?}");
    assert_eq!(events.last().unwrap(), "done after 4 used 34100+0 in, 0 out, 0 thinking");
}

#[tokio::test]
async fn messages_that_came_at_one_boundary_count_each() {
    let call = |id: &str, name: &str| using(calls(&[(id, name, "{}")]), 100, 0);
    let replies = [call("a", "echo"), call("b", "huge"), says("they spoke"), says("hi")];
    let server = Server::start(replies).await;
    let engine = engine(windowed(&server, 20_000));
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();

    let mut came = vec![message("1", "one"), message("2", "two")];
    let compacted = loop {
        match next(&mut *session).await {
            EngineEvent::Boundary => session.proceed(std::mem::take(&mut came)).await,
            EngineEvent::Compacted { replaced, .. } => break replaced,
            event => assert!(!event.ends_turn(), "{event:?}"),
        }
    };
    assert_eq!(rest(&mut *session).await.last().unwrap(), "done after 3 used 200+0 in, 0 out, 0 thinking");

    // The message, a call and its result, and both: all but the call whose result is too long, with that.
    assert_eq!(compacted, 5);
    assert!(!messages(&server, 3).to_string().contains("\"two\""));
}

#[tokio::test]
async fn what_servers_would_refuse_counts_too_where_it_is_replaced() {
    let server = Server::start([says("they spoke"), says("hi")]).await;
    let lost = || ContextMessage::Tool { call: "lost".to_owned(), text: String::new(), opaque: None };
    let call = ToolCall { id: "a".to_owned(), name: "echo".to_owned(), arguments: String::new() };
    let open = ContextMessage::Assistant { text: String::new(), tool_calls: vec![call], opaque: None };

    let before = vec![lost(), user(&long()), lost(), open, user("one")];
    let events = answer_to(windowed(&server, 1200), after(before, &["hello"])).await;

    assert!(events[0].starts_with("5 became "), "{events:?}");
}

#[tokio::test]
async fn an_exchange_that_is_all_there_is_and_is_short_is_not_summarised() {
    let server = Server::start([using(calls(&[("a", "echo", "{}")]), 900, 0), says("hi")]).await;

    let events = answer_to(windowed(&server, 1000), resumed(&["short"])).await;

    assert!(!events.iter().any(|event| event.contains(" became ")), "{events:?}");
    assert!(events.last().unwrap().starts_with("done after 2"), "{events:?}");
}
