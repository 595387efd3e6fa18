//! Contexts that a turn begins with.

use roundhouse_engines::contract::{ContextMessage, Earlier, EngineError, EngineEvent, ToolCall, TurnInput};
use serde_json::json;

use crate::script::{Server, calls, roles, says};
use crate::tools::with_tools;
use crate::turns::{after, assistant, engine, input, message, next, open, rest, settings, user};

fn called(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "echo".to_owned(), arguments: "{}".to_owned() }
}

fn result(call: &str, text: &str) -> ContextMessage {
    ContextMessage::Tool { call: call.to_owned(), text: text.to_owned(), opaque: None }
}

#[tokio::test]
async fn a_turn_goes_on_from_the_results_that_it_has() {
    let server = Server::start([calls(&[("a", "echo", "{}")]), says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));
    let engine = engine(settings);
    let mut session = open(&engine).await;
    let made =
        ContextMessage::Assistant { text: "see".to_owned(), tool_calls: vec![called("a")], opaque: None };
    let context = vec![user("hello"), made, result("a", "r")];

    session
        .send(TurnInput { context, messages: vec![message("job", "hello")], ..TurnInput::default() })
        .await
        .unwrap();
    let events = rest(&mut *session).await;

    // The id that the model gives is in the context already.
    assert_eq!(events[0], "message \"\" calls echo {} as ours");
    assert_eq!(events.last().unwrap(), "done after 2");
    let requests = server.requests();
    assert_eq!(roles(&requests[0].body), ["user", "assistant", "tool"]);
    assert_eq!(requests[0].body["messages"][1]["content"], "see");
    let ids = |at: usize| requests[1].body["messages"][at]["tool_calls"][0]["id"].clone();
    assert_ne!(ids(1), ids(3));
    assert_eq!(requests[1].body["messages"][4]["tool_call_id"], ids(3));
}

#[tokio::test]
async fn a_turn_begins_with_the_calls_that_have_not_begun() {
    let server = Server::start([says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));
    let engine = engine(settings);
    let mut session = open(&engine).await;
    let made = ContextMessage::Assistant {
        text: String::new(),
        tool_calls: vec![called("a"), called("b")],
        opaque: None,
    };
    let context = vec![user("hello"), made, result("a", "r")];

    session
        .send(TurnInput { context, messages: vec![message("job", "hello")], ..TurnInput::default() })
        .await
        .unwrap();
    let events = rest(&mut *session).await;

    assert_eq!(events.last().unwrap(), "done after 1");
    let request = &server.requests()[0].body;
    assert_eq!(roles(request), ["user", "assistant", "tool", "tool"]);
    assert_eq!(request["messages"][2], json!({"role": "tool", "tool_call_id": "a", "content": "r"}));
    assert_eq!(request["messages"][3]["tool_call_id"], "b");
    assert_ne!(request["messages"][3]["content"], "[The result is no longer there.]");
}

#[tokio::test]
async fn a_turn_that_goes_on_takes_what_came_meanwhile_before_its_first_model_call() {
    let server = Server::start([says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));
    let engine = engine(settings);
    let mut session = open(&engine).await;
    let made = ContextMessage::Assistant { text: String::new(), tool_calls: vec![called("a")], opaque: None };
    let earlier = Some(Earlier { iterations: 1, ..Earlier::default() });
    let context = vec![user("hello"), made];
    session.send(TurnInput { context, messages: vec![message("job", "hello")], earlier }).await.unwrap();

    // The call that had not begun comes first.
    let mut events = vec![];
    while !matches!(events.last(), Some(EngineEvent::Boundary)) {
        events.push(next(&mut *session).await);
    }
    assert_eq!(server.requests().len(), 0);
    session.proceed(vec![message("later", "and this")]).await;
    rest(&mut *session).await;

    let request = &server.requests()[0].body;
    assert_eq!(roles(request), ["user", "assistant", "tool", "user"]);
    assert_eq!(request["messages"][3]["content"], "and this");
}

#[tokio::test]
async fn a_turn_whose_first_model_call_is_made_anew_begins_with_its_own_message_alone() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;

    session.send(TurnInput { earlier: Some(Earlier::default()), ..input(&["hello"]) }).await.unwrap();

    assert_eq!(rest(&mut *session).await, ["delta hi", "message \"hi\"", "done after 1"]);
}

#[tokio::test]
async fn calls_and_results_that_have_lost_each_other_are_mended() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    let made = ContextMessage::Assistant {
        text: String::new(),
        tool_calls: vec![called("a"), called("b")],
        opaque: None,
    };
    let context =
        vec![result("0", "lost"), user("one"), made, result("b", "r"), result("c", "lost"), assistant("two")];

    session.send(after(context, &["three"])).await.unwrap();
    rest(&mut *session).await;

    let request = &server.requests()[0].body;
    assert_eq!(roles(request), ["user", "assistant", "tool", "tool", "assistant", "user"]);
    assert_eq!(request["messages"][2]["content"], "[The result is no longer there.]");
    assert_eq!(request["messages"][3], json!({"role": "tool", "tool_call_id": "b", "content": "r"}));
}

#[tokio::test]
async fn a_turn_needs_a_context() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;

    let error = session.send(TurnInput { context: vec![], ..input(&["hello"]) }).await;

    assert_eq!(error, Err(EngineError::Unavailable("a turn needs a context to answer from".to_owned())));
}
