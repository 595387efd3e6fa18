//! Anthropic Messages.

use serde_json::{Value, json};

use crate::support::{World, user};

const PATH: &str = "/v1/messages";

fn messages(messages: &[Value]) -> Value {
    json!({
        "model": "m", "max_tokens": 100, "messages": messages,
        "system": [{"type": "text", "text": "be an oracle", "cache_control": {"type": "ephemeral"}}],
        "tools": [
            {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {}, "description": {}, "timeout": {}}}},
            {"name": "AskUserQuestion", "input_schema": {"type": "object", "properties": {"questions": {"type": "array"}}}},
            {"name": "ExitPlanMode", "input_schema": {"type": "object", "properties": {}}},
        ],
    })
}

fn result(id: &str, content: &Value, more: &str) -> Value {
    json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": id, "content": content},
        {"type": "text", "text": more},
    ]})
}

#[tokio::test]
async fn a_whole_message_has_text_and_usage_without_the_cached_part() {
    let world = World::start().await;
    let answer = world.json(PATH, &messages(&[user("X = 5")])).await;
    assert_eq!(answer["content"], json!([{"type": "text", "text": "X = 5"}]));
    assert_eq!((&answer["stop_reason"], &answer["type"]), (&json!("end_turn"), &json!("message")));
    let said = json!({"role": "assistant", "content": answer["content"]});
    let answer = world.json(PATH, &messages(&[user("X = 5"), said, user("add 1 to x")])).await;
    assert_eq!(answer["content"][0]["text"], "X = 6");
    assert_eq!(
        answer["usage"],
        json!({"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 9, "output_tokens": 3})
    );
    world.stop().await;
}

#[tokio::test]
async fn a_stream_has_the_events_of_the_real_one() {
    let world = World::start().await;
    let events = world.typed(PATH, &messages(&[user("count to 2")])).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    assert_eq!((&events[2]["delta"]["text"], &events[3]["delta"]["text"]), (&json!("1"), &json!(" 2")));
    assert_eq!(events[5]["usage"]["output_tokens"], 2);
    world.stop().await;
}

#[tokio::test]
async fn a_turn_with_three_tools_calls_one_after_another_and_takes_in_a_message() {
    let world = World::start().await;
    let mut said = vec![user("sleep 1 then say a\nask: which?\nplan: go\n")];
    let steps = [
        (
            "Bash",
            json!({"command": "(sleep 1 && echo a)", "description": "Run a command"}),
            json!("a\n"),
            "<system-reminder>X = 1</system-reminder>",
        ),
        (
            "AskUserQuestion",
            json!({"questions": [{"question": "which?", "header": "Question", "multiSelect": false,
            "options": [{"label": "yes", "description": "Go on"}, {"label": "no", "description": "Stop"}]}]}),
            json!([{"type": "text", "text": "yes"}]),
            "The user sent a new message while you were working:\nwhat is x",
        ),
        (
            "ExitPlanMode",
            json!({"plan": "go"}),
            json!("approved\n\n<system-reminder>none</system-reminder>"),
            "  ",
        ),
    ];
    for (name, input, returned, more) in steps {
        let whole = world.json(PATH, &messages(&said)).await;
        let call = &whole["content"][0];
        assert_eq!(
            (&call["name"], &call["input"], &whole["stop_reason"]),
            (&json!(name), &input, &json!("tool_use"))
        );
        let events = world.typed(PATH, &messages(&said)).await;
        let parts: String =
            events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
        assert_eq!(serde_json::from_str::<Value>(&parts).unwrap(), input);
        said.push(json!({"role": "assistant", "content": whole["content"]}));
        said.push(result(call["id"].as_str().unwrap(), &returned, more));
    }
    let answer = world.json(PATH, &messages(&said)).await;
    assert_eq!(answer["content"][0]["text"], "a\nyes\napproved\nI don't know X");
    world.stop().await;
}

#[tokio::test]
async fn what_the_system_quotes_of_the_user_is_heard_and_nothing_else_of_it() {
    let world = World::start().await;
    let system = |text: &str| json!({"role": "system", "content": [{"type": "text", "text": text}]});
    let said = [
        user("X = 5"),
        system("say no"),
        system("The user sent a new message while you were working:\nadd 1 to x\n\nIMPORTANT: say no."),
    ];
    let answer = world.json(PATH, &messages(&said)).await;
    assert_eq!(answer["content"][0]["text"], "X = 5\nX = 6");
    world.stop().await;
}

#[tokio::test]
async fn errors_and_token_counts_have_the_shape_of_the_protocol() {
    let world = World::start().await;
    let response = world.post(PATH, &messages(&[user("fail 529")])).await;
    assert_eq!(response.status(), 529);
    let error: Value = response.json().await.unwrap();
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("overloaded_error")));
    let path = "/v1/messages/count_tokens?beta=true";
    assert_eq!(world.json(path, &messages(&[user("fail 529")])).await, json!({"input_tokens": 5}));
    world.stop().await;
}
