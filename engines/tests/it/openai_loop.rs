//! The loop: model calls and the tools that they call.

use std::time::Duration;

use futures::FutureExt;
use roundhouse_engines::contract::EngineEvent;
use roundhouse_engines::openai::{Prices, Settings};
use serde_json::json;
use tokio::sync::mpsc;

use crate::script::{Server, calls, roles, says, using};
use crate::tools::{NAMES, with_tools};
use crate::turns::{engine, input, message, next, open, rest, settings, show, turn};

#[tokio::test]
async fn tools_run_one_after_another_until_the_model_calls_none() {
    let two = calls(&[("a", "echo", r#"{"x": 1}"#), ("b", "speak", "")]);
    let server = Server::start([using(two, 10, 2), using(says("hi"), 20, 1)]).await;
    let (settings, _) = with_tools(settings(&server.base_url));

    let events = turn(settings).await;

    assert_eq!(
        events,
        [
            r#"message "" calls echo {"x": 1} as a calls speak  as b used 10+0 in, 2 out, 0 thinking"#,
            r#"started echo {"x": 1} as a"#,
            r#"echo did a: {"x":1}"#,
            "started speak  as b",
            "output of b: one",
            "output of b: two",
            "speak did b: /",
            "boundary",
            "delta hi",
            r#"message "hi" used 20+0 in, 1 out, 0 thinking"#,
            "done after 2 used 30+0 in, 3 out, 0 thinking",
        ]
    );
    assert_eq!(
        server.requests()[1].body["messages"],
        json!([
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "echo", "arguments": r#"{"x": 1}"#}},
                {"id": "b", "type": "function", "function": {"name": "speak", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": r#"{"x":1}"#},
            {"role": "tool", "tool_call_id": "b", "content": "/"},
        ])
    );
}

#[tokio::test]
async fn the_list_of_tools_is_the_same_in_each_request_and_fits_all_servers() {
    let server = Server::start([calls(&[("a", "echo", "{}")]), says("hi")]).await;
    let (mut settings, fake) = with_tools(settings(&server.base_url));
    settings.sources.push(fake);
    settings.ask_user = true;
    settings.spawn_agent = Some(vec!["helper".to_owned()]);

    turn(settings).await;

    let requests = server.requests();
    let tools = &requests[0].body["tools"];
    let names: Vec<_> =
        tools.as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect();
    assert_eq!(names, ["ask_user", "echo", "fail", "hang", "huge", "shell", "spawn_agent", "speak"]);
    assert_eq!(
        tools[1],
        json!({"type": "function", "function": {
            "name": "echo", "description": "The tool echo.", "parameters": {"type": "object", "properties": {}},
        }})
    );
    assert_eq!(tools[6]["function"]["parameters"]["properties"]["agent"]["enum"], json!(["helper"]));
    assert_eq!(requests[1].body["tools"], *tools);
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_told_to_the_model() {
    let known = NAMES.join(", ");
    let cases = [
        ("nothing", "{}", format!("There is no tool `nothing`. There are: {known}.")),
        (
            "echo",
            "{\"x\":",
            "The arguments are no valid JSON: EOF while parsing a value at line 1 column 5.".to_owned(),
        ),
        ("echo", "[1]", "The arguments have to be a JSON object.".to_owned()),
        ("fail", "{}", "it is broken\u{FFFD}".to_owned()),
    ];
    for (name, arguments, result) in cases {
        let server = Server::start([calls(&[("a", name, arguments)]), says("hi")]).await;
        let (settings, _) = with_tools(settings(&server.base_url));

        let events = turn(settings).await;

        assert!(events.contains(&format!("{name} failed a: {result}")), "{events:?}");
        assert_eq!(events.last().unwrap(), "done after 2");
        assert_eq!(server.requests()[1].body["messages"][2]["content"], result);
    }
}

#[tokio::test]
async fn arguments_are_read_leniently_and_go_back_as_an_object() {
    let cases = [
        ("  ", "{}", "{}"),
        ("null", "{}", r#"{"invalid_arguments":"null"}"#),
        (r#""{\"x\":1}""#, r#"{"x":1}"#, r#"{"invalid_arguments":"\"{\\\"x\\\":1}\""}"#),
        (r#"{"x":"\ud83d"}"#, "{\"x\":\"\u{FFFD}\"}", r#"{"invalid_arguments":"{\"x\":\"\\ud83d\"}"}"#),
        (r#"{"x": 1}"#, r#"{"x":1}"#, r#"{"x": 1}"#),
    ];
    for (written, ran, sent) in cases {
        let server = Server::start([calls(&[("a", "echo", written)]), says("hi")]).await;
        let (settings, _) = with_tools(settings(&server.base_url));

        let events = turn(settings).await;

        assert!(events.contains(&format!("echo did a: {ran}")), "{events:?}");
        let back = &server.requests()[1].body["messages"][1]["tool_calls"][0]["function"]["arguments"];
        assert_eq!(back, sent, "{written}");
    }
}

#[tokio::test]
async fn a_name_that_no_server_takes_goes_back_as_one_that_all_take() {
    let server = Server::start([calls(&[("a", "functions.été", "{}")]), says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));

    turn(settings).await;

    let back = &server.requests()[1].body["messages"][1]["tool_calls"][0]["function"]["name"];
    assert_eq!(back, "functions__t_");
}

#[tokio::test]
async fn a_long_result_keeps_its_head_and_tail() {
    let server = Server::start([calls(&[("a", "huge", "{}")]), says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));

    let events = turn(settings).await;

    let sent = server.requests()[1].body["messages"][2]["content"].as_str().unwrap().to_owned();
    assert!(sent.starts_with('é') && sent.ends_with('é') && sent.len() < 65 * 1024, "{}", sent.len());
    assert!(sent.contains("\n[… 134464 bytes left out …]\n"));
    assert_eq!(events[2], format!("huge did a: {sent}"));
}

#[tokio::test]
async fn messages_that_come_at_a_boundary_are_behind_the_results() {
    let server = Server::start([calls(&[("a", "echo", "{}")]), says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();
    // Nothing waits for this yet.
    session.proceed(vec![message("early", "too early")]).await;
    while !matches!(next(&mut *session).await, EngineEvent::Boundary) {}
    assert!(session.next().now_or_never().is_none());
    assert_eq!(server.requests().len(), 1);

    session.proceed(vec![message("1", "one"), message("2", "two")]).await;
    assert_eq!(rest(&mut *session).await, ["delta hi", "message \"hi\"", "done after 2"]);

    let request = &server.requests()[1].body;
    // Each is a message of its own, as it is when the conversation is replayed.
    assert_eq!(roles(request), ["user", "assistant", "tool", "user", "user"]);
    assert_eq!(request["messages"][3]["content"], "one");
    assert_eq!(request["messages"][4]["content"], "two");
}

#[tokio::test]
async fn no_tool_runs_before_the_event_behind_its_message_is_asked_for() {
    let server = Server::start([calls(&[("a", "echo", "{}")]), says("hi")]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();

    assert!(show(&next(&mut *session).await).starts_with("message"));
    tokio::task::yield_now().await;
    assert_eq!(*fake.ran.lock().unwrap(), [""; 0]);
    assert!(show(&next(&mut *session).await).starts_with("started"));
    assert_eq!(*fake.ran.lock().unwrap(), [""; 0]);
    assert!(show(&next(&mut *session).await).starts_with("echo did"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn an_interrupt_ends_the_running_tool() {
    let server = Server::start([calls(&[("a", "hang", "{}"), ("b", "echo", "{}")]), says("hi")]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));
    let (held, mut dropped) = mpsc::unbounded_channel();
    *fake.dropped.lock().unwrap() = Some(held);
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();
    for _ in 0..2 {
        next(&mut *session).await;
    }
    tokio::select! {
        event = session.next() => panic!("{event:?}"),
        () = fake.hangs.notified() => {}
    }
    assert!(dropped.try_recv() == Err(mpsc::error::TryRecvError::Empty));

    session.interrupt().await;

    assert!(dropped.try_recv() == Err(mpsc::error::TryRecvError::Disconnected));
    assert_eq!(show(&next(&mut *session).await), "interrupted");
    assert_eq!(*fake.ran.lock().unwrap(), ["hang {}"]);
    session.send(input(&["again"])).await.unwrap();
    assert_eq!(rest(&mut *session).await, ["delta hi", "message \"hi\"", "done after 1"]);
}

#[tokio::test]
async fn a_turn_may_make_so_many_model_calls() {
    let server = Server::start([calls(&[("a", "echo", "{}")])]).await;
    let (mut settings, _) = with_tools(settings(&server.base_url));
    settings.max_iterations = 2;

    let events = turn(settings).await;

    let limit = "failed: the turn was ended: it has made 2 model calls, and max_iterations allows no more";
    assert_eq!(events.last().unwrap(), limit);
    assert_eq!(events.iter().filter(|event| *event == "boundary").count(), 1);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_turn_may_cost_so_much() {
    let server = Server::start([using(calls(&[("a", "echo", "{}")]), 100, 0)]).await;
    let (base, _) = with_tools(settings(&server.base_url));
    let priced = Settings { prices: Some(Prices { input: 1.0, output: 1.0, cache: None }), ..base.clone() };
    let allowed = |settings: &Settings| Settings {
        max_cost_nanos: Some(200_000),
        max_iterations: 5,
        ..settings.clone()
    };

    let limited = turn(allowed(&priced)).await;
    let unknown = turn(allowed(&base)).await;

    let limit = "failed: the turn was ended: it has cost 0.0002 USD, and its agent may spend 0.0002 USD";
    assert_eq!(limited.last().unwrap(), limit);
    assert!(unknown.last().unwrap().contains("max_iterations"), "{unknown:?}");
    assert_eq!(server.requests().len(), 2 + 5);
}

#[tokio::test]
async fn no_event_is_lost_when_the_wait_for_it_is_dropped_while_tools_run() {
    let server = Server::start([calls(&[("a", "speak", "{}"), ("b", "echo", "{}")]), says("hi")]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));
    let expected = turn(settings.clone()).await;
    let server = Server::start([calls(&[("a", "speak", "{}"), ("b", "echo", "{}")]), says("hi")]).await;
    let engine = engine(Settings { base_url: server.base_url.clone(), ..settings });
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
        if matches!(event, EngineEvent::Boundary) {
            session.proceed(vec![]).await;
        }
        if event.ends_turn() {
            break;
        }
    }

    assert_eq!(events, expected);
    // Each twice, once in each turn.
    assert_eq!(fake.ran.lock().unwrap().len(), 4);
}
