//! Chat Completions.

use std::time::{Duration, Instant};

use roundhouse_oracle::{Protocol, usage_of};
use serde_json::{Value, json};

use crate::support::{World, user};

const PATH: &str = "/v1/chat/completions";

fn chat(messages: &[Value]) -> Value {
    json!({"model": "m", "messages": messages})
}

fn with_shell(messages: &[Value]) -> Value {
    let mut body = chat(messages);
    body["tools"] = json!([{"type": "function", "function": {"name": "shell", "parameters": {
        "type": "object", "properties": {"command": {"type": "string"}}}}}]);
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[tokio::test]
async fn it_knows_only_what_it_is_sent() {
    let world = World::start().await;
    let five = [user("X = 5"), json!({"role": "assistant", "content": "X = 5"})];
    let cases = [
        (vec![user("X = 5")], "X = 5"),
        (vec![five[0].clone(), five[1].clone(), user("add 1 to x")], "X = 6"),
        (vec![user("what is X")], "I don't know X"),
        (vec![user("say a"), user("say b"), user("hello")], "a\nb\nI heard: hello"),
        (
            vec![json!({"role": "user", "content": [
                {"type": "text", "text": "say a"}, {"type": "image_url", "image_url": {"url": "x"}}]})],
            "a",
        ),
        (vec![user("sleep 0 then say a")], "I have no shell"),
        (vec![user("ask: a\nplan: b")], "I have no question tool\nI have no plan tool"),
    ];
    for (messages, expected) in cases {
        let answer = world.json(PATH, &chat(&messages)).await;
        assert_eq!(content(&answer), expected);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_stream_joins_to_the_reply_and_tells_usage_only_when_asked() {
    let world = World::start().await;
    let mut body = chat(&[user("count to 3")]);
    body["stream_options"] = json!({"include_usage": true});
    let mut events = world.events(PATH, &body).await;
    assert_eq!(events.pop().unwrap().1, "[DONE]");
    let events: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    let delta = |n: usize| &events[n]["choices"][0]["delta"];
    assert_eq!(delta(0)["role"], "assistant");
    let words: Vec<_> = (1..4).map(|n| delta(n)["content"].as_str().unwrap()).collect();
    assert_eq!(words, ["1", " 2", " 3"]);
    assert_eq!(events[4]["choices"][0]["finish_reason"], "stop");
    assert_eq!(events[5]["choices"], json!([]));
    assert_eq!(events[5]["usage"]["prompt_tokens"], 3);
    assert_eq!(events[5]["usage"]["completion_tokens"], 3);
    assert_eq!(events.len(), 6);

    body["stream_options"] = Value::Null;
    assert_eq!(world.events(PATH, &body).await.len(), 6);
    world.stop().await;
}

#[tokio::test]
async fn a_sleep_is_a_shell_call_and_then_what_it_returned() {
    let world = World::start().await;
    let ask = user("X = 5, sleep 1 then say a; b");
    let answer = world.json(PATH, &with_shell(std::slice::from_ref(&ask))).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let message = &answer["choices"][0]["message"];
    let call = &message["tool_calls"][0];
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&call["function"]["name"], arguments),
        (&json!("shell"), json!({"command": "sleep 1 && echo 'a; b'"}))
    );

    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "a; b\n"});
    let answer = world.json(PATH, &with_shell(&[ask, message.clone(), result, user("add 1 to x")])).await;
    assert_eq!(content(&answer), "X = 5\na; b\nX = 6");
    world.stop().await;
}

#[tokio::test]
async fn a_streamed_call_joins_to_the_whole_one() {
    let world = World::start().await;
    let mut events = world.events(PATH, &with_shell(&[user("sleep 1 then say a")])).await;
    events.pop();
    let (mut name, mut arguments, mut finish) = (String::new(), String::new(), Value::Null);
    for (_, data) in events {
        let choice = serde_json::from_str::<Value>(&data).unwrap()["choices"][0].clone();
        let function = &choice["delta"]["tool_calls"][0]["function"];
        name.push_str(function["name"].as_str().unwrap_or(""));
        arguments.push_str(function["arguments"].as_str().unwrap_or(""));
        finish = choice["finish_reason"].clone();
    }
    assert_eq!((name.as_str(), arguments.as_str()), ("shell", r#"{"command":"sleep 1 && echo a"}"#));
    assert_eq!(finish, "tool_calls");
    world.stop().await;
}

#[tokio::test]
async fn fail_is_an_http_error_and_once_is_once() {
    let world = World::start().await;
    let always = chat(&[user("fail 429")]);
    for _ in 0..2 {
        let response = world.post(PATH, &always).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &"1".parse().unwrap())
        );
        assert_eq!(response.json::<Value>().await.unwrap()["error"]["type"], "rate_limit_error");
    }
    let once = chat(&[user("fail 500 once, say a")]);
    assert_eq!(world.post(PATH, &once).await.status(), 500);
    assert_eq!(content(&world.json(PATH, &once).await), "a");
    let later = chat(&[user("say b"), user("fail 500 once, say a")]);
    assert_eq!(world.post(PATH, &later).await.status(), 500);
    world.stop().await;
}

#[tokio::test]
async fn slow_spreads_the_reply() {
    let world = World::start().await;
    for stream in [false, true] {
        let mut body = chat(&[user("slow 0.4, count to 4")]);
        body["stream"] = json!(stream);
        let begun = Instant::now();
        let mut response = world.post(PATH, &body).await;
        let mut pieces = 0;
        while response.chunk().await.unwrap().is_some() {
            pieces += 1;
        }
        assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
        assert!(!stream || pieces >= 4, "{pieces}");
    }
    world.stop().await;
}

#[tokio::test]
async fn usage_can_be_computed_from_what_was_recorded() {
    let world = World::start().await;
    let system = json!({"role": "system", "content": "be an oracle"});
    let first = world.json(PATH, &chat(&[system.clone(), user("X = 5")])).await;
    assert_eq!(
        first["usage"],
        json!({"prompt_tokens": 6, "completion_tokens": 3, "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0}})
    );
    let said = first["choices"][0]["message"].clone();
    let second = world.json(PATH, &chat(&[system, user("X = 5"), said, user("what is X")])).await;
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], 9);
    let recorded = &world.oracle.requests()[1];
    let usage = usage_of(Protocol::Chat, &recorded.body, content(&second)).unwrap();
    assert_eq!(recorded.usage, Some(usage));
    assert_eq!(second["usage"]["prompt_tokens"], usage.input_tokens);
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_nothing_panics() {
    let world = World::start().await;
    let deep = vec![b'['; 100_000];
    let bodies: [&[u8]; 9] = [
        b"",
        b"nonsense",
        b"{}",
        b"[]",
        br#"{"messages": 1}"#,
        br#"{"messages": [1]}"#,
        br#"{"messages": [{"role": "user", "content": "\ud800"}]}"#,
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}",
        &deep,
    ];
    for path in [PATH, "/v1/messages", "/v1/responses", "/v1/messages/count_tokens"] {
        for body in bodies {
            let response = world.client.post(world.url(path)).body(body.to_vec()).send().await.unwrap();
            assert_eq!(response.status(), 400);
            let error: Value = response.json().await.unwrap();
            assert!(error["error"]["message"].is_string(), "{error}");
        }
    }
    for odd in [
        json!({"messages": []}),
        json!({"messages": [{"role": "user"}, {"role": "tool"}, {"role": "x", "content": {"a": 1}}]}),
        json!({"messages": [{"role": "assistant", "tool_calls": [{}]}], "tools": [{}], "tool_choice": {}}),
        json!({"model": null, "messages": [user("what is \u{0} = <"), user("<system-reminder><")]}),
    ] {
        assert_eq!(world.post(PATH, &odd).await.status(), 200, "{odd}");
    }
    assert_eq!(world.client.get(world.url("/nowhere")).send().await.unwrap().status(), 404);
    let models: Value = world.client.get(world.url("/v1/models")).send().await.unwrap().json().await.unwrap();
    assert_eq!(models["data"][0]["id"], "oracle");
    world.stop().await;
}
