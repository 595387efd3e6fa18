//! OpenAI Responses.

use serde_json::{Value, json};

use crate::support::World;

const PATH: &str = "/v1/responses";

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn request(input: &[Value], tools: &Value) -> Value {
    json!({"model": "m", "instructions": "be an oracle", "input": input, "tools": tools})
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_text_or_items_are_answered_whole_and_streamed() {
    let world = World::start().await;
    let answer = world.json(PATH, &json!({"model": "m", "input": "say a"})).await;
    assert_eq!((text(&answer), &answer["status"]), ("a", &json!("completed")));

    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "X = 5"}]});
    let context = user("<environment_context>\nX = 9\n</environment_context>");
    let body = request(&[context, user("X = 5"), said, user("add 1 to x\ncount to 2")], &Value::Null);
    let events = world.typed(PATH, &body).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let joined: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    let whole = &events[10]["response"];
    assert_eq!((joined.as_str(), text(whole)), ("X = 6\n1 2", "X = 6\n1 2"));
    assert!(events.iter().enumerate().all(|(n, event)| event["sequence_number"] == n));
    let usage = &whole["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["input_tokens_details"]["cached_tokens"]),
        (&json!(21), &json!(14))
    );
    assert_eq!(usage["output_tokens"], 5);
    world.stop().await;
}

#[tokio::test]
async fn each_form_of_shell_is_called_as_it_wants() {
    let world = World::start().await;
    let function = |name: &str, properties: Value| json!({"type": "function", "name": name, "parameters": {"type": "object", "properties": properties}});
    let cases = [
        (
            function("exec_command", json!({"cmd": {}, "yield_time_ms": {}})),
            json!({"cmd": "sleep 1 && echo a", "yield_time_ms": 30000}),
        ),
        (
            function("shell_command", json!({"command": {"type": "string"}})),
            json!({"command": "sleep 1 && echo a"}),
        ),
        (
            function("shell", json!({"command": {"type": "array"}})),
            json!({"command": ["bash", "-lc", "sleep 1 && echo a"]}),
        ),
    ];
    for (tool, expected) in cases {
        let ask = user("sleep 1 then say a");
        let tools = json!([{"type": "web_search"}, {"type": "namespace", "name": "x", "tools": []}, tool]);
        let answer = world.json(PATH, &request(std::slice::from_ref(&ask), &tools)).await;
        let call = &answer["output"][0];
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(
            (&call["type"], &call["name"], arguments),
            (&json!("function_call"), &tool["name"], expected)
        );

        let output = "Chunk ID: 1\nWall time: 1.0 seconds\nProcess exited with code 0\nOutput:\na\n";
        let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": output});
        let reasoning = json!({"type": "reasoning", "summary": [], "content": null});
        let input = [ask, reasoning, call.clone(), result];
        assert_eq!(text(&world.json(PATH, &request(&input, &tools)).await), "a");
    }
    world.stop().await;
}

#[tokio::test]
async fn code_mode_calls_through_its_one_tool() {
    let world = World::start().await;
    let tools = json!({"type": "additional_tools", "tools": [{"type": "custom", "name": "exec", "format": {"type": "text"}}]});
    let ask = user("sleep 1 then say a");
    let events = world.typed(PATH, &request(&[tools.clone(), ask.clone()], &json!([]))).await;
    let call =
        events.iter().find(|event| event["type"] == "response.output_item.done").unwrap()["item"].clone();
    assert_eq!((&call["type"], &call["name"]), (&json!("custom_tool_call"), &json!("exec")));
    assert!(call["input"].as_str().unwrap().contains(r#"tools.exec_command({"cmd":"sleep 1 && echo a""#));
    let output = json!([{"type": "input_text", "text": "Script completed\nWall time 1.0 seconds\nOutput:\n"}, {"type": "input_text", "text": "a\n"}]);
    let result = json!({"type": "custom_tool_call_output", "call_id": call["call_id"], "output": output});
    assert_eq!(text(&world.json(PATH, &request(&[tools, ask, call, result], &json!([]))).await), "a");
    world.stop().await;
}

#[tokio::test]
async fn a_question_and_an_error_have_the_shape_of_the_protocol() {
    let world = World::start().await;
    let tools = json!([{"type": "function", "name": "request_user_input", "parameters": {"properties": {"questions": {}}}}]);
    let answer = world.json(PATH, &request(&[user("ask: which?")], &tools)).await;
    let arguments: Value = serde_json::from_str(answer["output"][0]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&arguments["questions"][0]["id"], &arguments["questions"][0]["question"]),
        (&json!("q1"), &json!("which?"))
    );
    let response = world.post(PATH, &request(&[user("fail 500")], &tools)).await;
    assert_eq!(response.status(), 500);
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["type"], "server_error");
    world.stop().await;
}
