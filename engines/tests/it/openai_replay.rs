//! What goes back to a provider, and how a conversation is written for one that does not take all.

use roundhouse_engines::contract::{ContextMessage, EngineEvent, ToolCall, TurnInput};
use roundhouse_engines::openai::{CallIds, Compat, ReasoningReplay, RoleOrder, Settings, SystemPlace};
use serde_json::{Value, json};

use crate::script::{Reply, Server, roles, says, status, streamed};
use crate::tools::with_tools;
use crate::turns::{after, assistant, engine, message, next, open, rest, settings, turn, user};

fn chunks(chunks: &[Value]) -> Reply {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    streamed(events.chain(["data: [DONE]\n\n".to_owned()]))
}

/// A call with all that providers put beside it.
fn thoughtful() -> Reply {
    let call = json!({"index": 0, "id": "a", "function": {"name": "echo", "arguments": "{}"},
                      "extra_content": {"google": {"thought_signature": "sig"}}});
    chunks(&[
        json!({"choices": [{"delta": {"role": "assistant", "reasoning_content": "first "}}]}),
        json!({"choices": [{"delta": {"reasoning_content": "then", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "first "}]}}]}),
        json!({"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "then", "signature": "s"}], "tool_calls": [call]}}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
    ])
}

/// What is to be stored of that message.
async fn opaque(settings: Settings) -> Value {
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(after(vec![], &["hello"])).await.unwrap();
    loop {
        if let EngineEvent::MessageDone(message) = next(&mut *session).await {
            return message.opaque.unwrap();
        }
    }
}

fn called(id: &str, opaque: Option<Value>) -> ContextMessage {
    let call = ToolCall { id: id.to_owned(), name: "echo".to_owned(), arguments: "{}".to_owned() };
    ContextMessage::Assistant { text: String::new(), tool_calls: vec![call], opaque }
}

fn result(call: &str, text: &str) -> ContextMessage {
    ContextMessage::Tool { call: call.to_owned(), text: text.to_owned(), opaque: None }
}

/// A turn that ends well, behind this context; the last request's messages.
async fn sent(server: &Server, settings: Settings, context: Vec<ContextMessage>) -> Value {
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(after(context, &["now"])).await.unwrap();
    let told = rest(&mut *session).await;
    assert!(told.last().unwrap().starts_with("done"), "{told:?}");
    server.requests().last().unwrap().body["messages"].clone()
}

#[tokio::test]
async fn what_a_provider_gives_with_a_call_goes_back_with_it() {
    let server = Server::start([thoughtful(), says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));

    let told = turn(settings).await;

    assert!(told.contains(&"done after 2".to_owned()), "{told:?}");
    let message = &server.requests()[1].body["messages"][1];
    assert_eq!(message["reasoning_content"], "first then");
    assert_eq!(
        message["reasoning_details"],
        json!([{"type": "reasoning.text", "index": 0, "text": "first then", "signature": "s"}])
    );
    assert_eq!(message["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "sig");
    assert_eq!(message["content"], Value::Null);
}

#[tokio::test]
async fn what_was_stored_goes_back_to_its_maker_alone() {
    let server = Server::start([thoughtful(), says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));
    let opaque = opaque(settings.clone()).await;
    let context =
        || vec![user("hello"), called("a", Some(opaque.clone())), result("a", "r"), assistant("well")];

    let same = sent(&server, settings.clone(), context()).await;
    let other = sent(&server, Settings { model: "other".to_owned(), ..settings }, context()).await;

    assert_eq!(same[1]["reasoning_content"], "first then");
    assert_eq!(same[1]["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "sig");
    assert_eq!(
        other[1],
        json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{}"}}]})
    );
}

#[tokio::test]
async fn a_member_that_is_refused_is_left_out_from_then_on() {
    let refusal = r#"{"detail":[{"loc":["body","messages",1,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted"}]}"#;
    let server = Server::start([thoughtful(), status(422, "", refusal), says("hi"), says("hi")]).await;
    let (settings, _) = with_tools(settings(&server.base_url));
    let opaque = opaque(settings.clone()).await;
    let context =
        || vec![user("hello"), called("a", Some(opaque.clone())), result("a", "r"), assistant("well")];
    let engine = engine(settings);
    for _ in 0..2 {
        let mut session = open(&engine).await;
        session.send(after(context(), &["now"])).await.unwrap();
        assert_eq!(rest(&mut *session).await.last().unwrap(), "done after 1");
    }

    let requests = server.requests();
    let has: Vec<_> = requests[1..]
        .iter()
        .map(|request| request.body["messages"][1].get("reasoning_content").is_some())
        .collect();
    assert_eq!(has, [true, false, false]);
    assert!(requests[2].body["messages"][1].get("reasoning_details").is_some());
}

#[tokio::test]
async fn reasoning_that_is_demanded_is_filled_in_where_another_model_gave_none() {
    let demand = r#"{"error":{"message":"thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"}}"#;
    let server = Server::start([status(400, "", demand), says("hi")]).await;

    let messages =
        sent(&server, settings(&server.base_url), vec![user("hello"), called("a", None), result("a", "r")])
            .await;

    assert_eq!(messages[1]["reasoning_content"], " ");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_signature_that_is_demanded_is_filled_in() {
    let demand = r#"[{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts."}}]"#;
    let server = Server::start([status(400, "", demand), says("hi")]).await;

    let messages =
        sent(&server, settings(&server.base_url), vec![user("hello"), called("a", None), result("a", "r")])
            .await;

    assert!(messages[1]["tool_calls"][0]["extra_content"]["google"]["thought_signature"].is_string());
}

#[tokio::test]
async fn nothing_empty_is_sent() {
    let server = Server::start([says("hi")]).await;
    let blank = ContextMessage::Assistant { text: " \n".to_owned(), tool_calls: vec![], opaque: None };
    let mut beside = called("a", None);
    if let ContextMessage::Assistant { text, .. } = &mut beside {
        "\n".clone_into(text);
    }

    let messages = sent(
        &server,
        settings(&server.base_url),
        vec![user("hello"), blank, user("and"), beside, result("a", "")],
    )
    .await;

    assert_eq!(messages[1]["content"], "(I gave no answer.)");
    assert_eq!(messages[3]["content"], Value::Null);
    assert_eq!(messages[4]["content"], "(no output)");
}

#[tokio::test]
async fn roles_that_must_alternate_do_once_the_server_has_said_so() {
    let refusals = [
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (500, "Jinja Exception: After the optional system message, conversation roles must alternate"),
        (400, "Expected last role User or Tool, got unexpected role 'user' after role 'tool'"),
    ];
    for (code, refusal) in refusals {
        let refusal = json!({"error": {"message": refusal}}).to_string();
        let server = Server::start([status(code, "", &refusal), says("hi")]).await;
        let context = vec![user("one"), user("two"), called("a", None), result("a", "r"), user("three")];

        let messages = sent(&server, settings(&server.base_url), context).await;

        let request = json!({ "messages": messages });
        assert_eq!(roles(&request), ["user", "assistant", "tool", "assistant", "user"], "{refusal}");
        assert_eq!(messages[0]["content"], "one\n\ntwo");
        assert_eq!(messages[4]["content"], "three\n\nnow");
    }
}

#[tokio::test]
async fn system_messages_stand_where_the_server_takes_them() {
    let summary = || vec![ContextMessage::System("in short".to_owned()), user("one"), assistant("two")];
    for (place, expected) in [
        (SystemPlace::First, vec!["system", "user", "assistant", "user"]),
        (SystemPlace::None, vec!["user", "assistant", "user"]),
    ] {
        let server = Server::start([says("hi")]).await;
        let compat = Compat { system: Some(place), ..Compat::default() };
        let settings = Settings { instructions: "be brief".to_owned(), compat, ..settings(&server.base_url) };

        let messages = sent(&server, settings, summary()).await;

        assert_eq!(roles(&json!({ "messages": messages })), expected);
        assert!(messages[0]["content"].as_str().unwrap().starts_with("be brief\n\nin short"));
    }
    let refusal = r#"{"error":{"message":"System message must be at the beginning."}}"#;
    let server = Server::start([status(400, "", refusal), says("hi")]).await;
    let settings = Settings { instructions: "be brief".to_owned(), ..settings(&server.base_url) };
    let messages = sent(&server, settings, summary()).await;
    assert_eq!(roles(&json!({ "messages": messages })), ["system", "user", "assistant", "user"]);
}

#[tokio::test]
async fn ids_that_another_model_refuses_are_made_anew() {
    let refusal = r#"{"message":"Tool call id was call_0123456789 but must be a-z, A-Z, 0-9, with a length of 9.","code":"3280"}"#;
    let server = Server::start([status(400, "", refusal), says("hi")]).await;
    let context =
        vec![user("one"), called("call_0123456789", None), result("call_0123456789", "r"), assistant("two")];

    let messages = sent(&server, settings(&server.base_url), context).await;

    let id = messages[1]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(messages[2]["tool_call_id"], id);
}

#[tokio::test]
async fn what_is_configured_needs_no_refusal() {
    let server = Server::start([says("hi")]).await;
    let compat = Compat {
        roles: Some(RoleOrder::Alternate),
        call_ids: Some(CallIds::Short),
        reasoning: Some(ReasoningReplay::Required),
        ..Compat::default()
    };
    let settings = Settings { compat, ..settings(&server.base_url) };

    let messages = sent(
        &server,
        settings,
        vec![user("one"), called("long-id-of-a-call", None), result("long-id-of-a-call", "r")],
    )
    .await;

    assert_eq!(server.requests().len(), 1);
    assert_eq!(roles(&json!({ "messages": messages })), ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(messages[1]["tool_calls"][0]["id"].as_str().unwrap().len(), 9);
    assert_eq!(messages[1]["reasoning_content"], " ");
}

#[tokio::test]
async fn a_call_that_was_cut_off_does_not_run_after_a_crash() {
    let server = Server::start([says("hi")]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));
    let engine = engine(settings);
    let mut session = open(&engine).await;
    let cut = called("a", Some(json!({"provider": "", "model": "", "is_cut": true})));

    let context = vec![user("hello"), cut];
    session
        .send(TurnInput { context, messages: vec![message("job", "hello")], ..TurnInput::default() })
        .await
        .unwrap();
    rest(&mut *session).await;

    assert!(fake.ran.lock().unwrap().is_empty());
    assert!(server.requests()[0].body["messages"][2]["content"].as_str().unwrap().contains("not run"));
}
