//! How servers write tool calls, and what a caller sees of them.

use crate::script::{Server, head_of, piece, says, streamed};
use crate::tools::with_tools;
use crate::turns::{settings, turn};

/// What the pieces of `tool_calls` are, and the calls that come of them.
type Case = (&'static str, &'static [&'static str], &'static str);

const CASES: &[Case] = &[
    (
        "as OpenAI splits them",
        &[
            r#"[{"index":0,"id":"a","type":"function","function":{"name":"echo","arguments":""}}]"#,
            r#"[{"index":0,"function":{"arguments":"{\"x\""}}]"#,
            r#"[{"index":0,"function":{"arguments":": \"é"}}]"#,
            r#"[{"index":0,"function":{"arguments":"\"}"}}]"#,
        ],
        r#" calls echo {"x": "é"} as a"#,
    ),
    (
        "two calls, their pieces in turns",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo"}},{"index":1,"id":"b","function":{"name":"fail"}}]"#,
            r#"[{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":"{\"x\":1}"}}]"#,
        ],
        r#" calls echo {"x":1} as a calls fail {} as b"#,
    ),
    (
        "a name in pieces",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"ec"}}]"#,
            r#"[{"index":0,"function":{"name":"ho","arguments":"{}"}}]"#,
        ],
        " calls echo {} as a",
    ),
    (
        "a name and an id that come with each piece",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\""}}]"#,
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":":1}"}}]"#,
        ],
        r#" calls echo {"x":1} as a"#,
    ),
    (
        "a new id with each piece, as older vLLM",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo"}}]"#,
            r#"[{"index":0,"id":"b","function":{"arguments":"{}"}}]"#,
        ],
        " calls echo {} as a",
    ),
    (
        "each call counted as the first",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{}"}}]"#,
            r#"[{"index":0,"id":"b","function":{"name":"echo","arguments":"{\"x\":1}"}}]"#,
        ],
        r#" calls echo {} as a calls echo {"x":1} as b"#,
    ),
    (
        "each call counted as the first, without ids",
        &[
            r#"[{"index":0,"id":"","function":{"name":"echo","arguments":"{}"}},{"index":0,"function":{"name":"fail","arguments":"{}"}}]"#,
        ],
        " calls echo {} as ours calls fail {} as ours",
    ),
    (
        "no index: told apart by ids",
        &[
            r#"[{"id":"a","function":{"name":"echo","arguments":"{\"x\""}}]"#,
            r#"[{"id":"b","function":{"name":"echo","arguments":"{}"}}]"#,
            r#"[{"id":"a","function":{"arguments":":1}"}}]"#,
        ],
        r#" calls echo {"x":1} as a calls echo {} as b"#,
    ),
    (
        "no index and no ids: told apart by names",
        &[
            r#"[{"function":{"name":"echo","arguments":"{\"x\""}}]"#,
            r#"[{"function":{"arguments":":1}"}}]"#,
            r#"[{"function":{"name":"echo","arguments":"{}"}}]"#,
        ],
        r#" calls echo {"x":1} as ours calls echo {} as ours"#,
    ),
    (
        "arguments as an object, an index as a text",
        &[r#"[{"index":"0","id":"a","function":{"name":"echo","arguments":{"x":[1,null]}}}]"#],
        r#" calls echo {"x":[1,null]} as a"#,
    ),
    (
        "arguments that are missing or null",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo"}},{"index":1,"id":"b","function":{"name":"echo","arguments":null}}]"#,
        ],
        " calls echo  as a calls echo  as b",
    ),
    (
        "the same id twice",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"fail","arguments":"{}"}}]"#,
        ],
        " calls echo {} as a calls fail {} as ours",
    ),
    (
        "a placeholder before the real arguments",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{}"}}]"#,
            r#"[{"index":0,"function":{"arguments":"{\"x\""}}]"#,
            r#"[{"index":0,"function":{"arguments":":1}"}}]"#,
        ],
        r#" calls echo {"x":1} as a"#,
    ),
    (
        "the whole again behind its pieces",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\""}}]"#,
            r#"[{"index":0,"function":{"arguments":":1}"}}]"#,
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\": 1}"}}]"#,
        ],
        r#" calls echo {"x":1} as a"#,
    ),
    (
        "each piece with all before it",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x"}}]"#,
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\":1"}}]"#,
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\":1}"}}]"#,
        ],
        r#" calls echo {"x":1} as a"#,
    ),
    (
        "two calls of one tool in one entry, with empty ids",
        &[
            r#"[{"index":0,"id":"","function":{"name":"echo","arguments":"{\"x\":1}"}}]"#,
            r#"[{"index":0,"id":"","function":{"name":"echo","arguments":"{\"x\":2}"}}]"#,
        ],
        r#" calls echo {"x":1} as ours calls echo {"x":2} as ours"#,
    ),
    (
        "two calls in the arguments of one",
        &[r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\":1}{\"x\":2}"}}]"#],
        r#" calls echo {"x":1} as a calls echo {"x":2} as ours"#,
    ),
    (
        "a name and another id with each piece",
        &[
            r#"[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\""}}]"#,
            r#"[{"index":0,"id":"b","function":{"name":"echo","arguments":":1}"}}]"#,
        ],
        r#" calls echo {"x":1} as a"#,
    ),
    (
        "no function around its members, and pieces of nothing",
        &[r#"[null,{},{"index":0,"id":"a","name":"echo","arguments":"{}"}]"#],
        " calls echo {} as a",
    ),
];

#[tokio::test]
async fn tool_calls_are_put_together_however_they_come() {
    for (case, pieces, expected) in CASES {
        let chunk =
            |calls: &&str| format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":{calls}}}}}]}}\n\n");
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"
            .to_owned();
        let server = Server::start([streamed(pieces.iter().map(chunk).chain([end])), says("hi")]).await;
        let (settings, _) = with_tools(settings(&server.base_url));

        let events = turn(settings).await;

        assert_eq!(events[0], format!("message \"\"{expected}"), "{case}");
        assert_eq!(events.last().unwrap(), "done after 2", "{case}");
    }
}

const WHOLE: &str = r#"{"index":0,"id":"a","function":{"name":"echo","arguments":"{}"}}"#;

#[tokio::test]
async fn what_comes_beside_tool_calls_does_not_matter() {
    let cases = [
        (
            "finish_reason stop, as Ollama",
            format!(
                r#"{{"choices":[{{"delta":{{"content":"","tool_calls":[{WHOLE}]}},"finish_reason":"stop"}}],"usage":null}}"#
            ),
            "message \"\" calls echo {} as a",
        ),
        (
            "text and reasoning",
            format!(
                r#"{{"choices":[{{"delta":{{"content":"see","reasoning":"hm","tool_calls":[{WHOLE}]}},"finish_reason":"tool_calls"}}]}}"#
            ),
            "message \"see\" thought \"hm\" calls echo {} as a",
        ),
        (
            "usage without choices",
            format!(
                "{{\"choices\":[{{\"delta\":{{\"tool_calls\":[{WHOLE}]}},\"finish_reason\":\"tool_calls\"}}]}}\n\ndata: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":2}}}}"
            ),
            "message \"\" calls echo {} as a used 3+0 in, 2 out, 0 thinking",
        ),
    ];
    for (case, chunk, expected) in cases {
        let reply = streamed([format!("data: {chunk}\n\ndata: [DONE]\n\n")]);
        let server = Server::start([reply, says("hi")]).await;
        let (settings, _) = with_tools(settings(&server.base_url));

        let events = turn(settings).await;

        assert!(events.iter().any(|event| event == expected), "{case}: {events:?}");
        assert!(events.iter().any(|event| event == "echo did a: {}"), "{case}: {events:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_can_call_tools() {
    let body = format!(
        r#"{{"choices":[{{"message":{{"content":null,"tool_calls":[{WHOLE}]}},"finish_reason":"tool_calls"}}]}}"#
    );
    let server =
        Server::start([vec![head_of("application/json"), piece(body), crate::script::end()], says("hi")])
            .await;
    let (settings, _) = with_tools(settings(&server.base_url));

    assert_eq!(turn(settings).await[2], "echo did a: {}");
}

#[tokio::test]
async fn a_stream_that_is_cut_in_a_tool_call_is_tried_again() {
    let half = r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\""}}]}}]}"#;
    let cut = streamed([format!("{half}\n\n")]);
    let server = Server::start([cut, crate::script::calls(&[("b", "echo", "{}")]), says("hi")]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));

    let events = turn(settings).await;

    assert_eq!(events[..2], ["retry after try 1", "message \"\" calls echo {} as b"]);
    assert_eq!(*fake.ran.lock().unwrap(), ["echo {}"]);
}

#[tokio::test]
async fn calls_are_found_wherever_servers_put_them() {
    let cases = [
        (
            "in another choice than the text",
            r#"{"choices":[{"index":0,"delta":{"content":"see"},"finish_reason":"stop"},{"index":1,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"echo","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        ),
        (
            "as the one call of older servers",
            r#"{"choices":[{"delta":{"function_call":{"name":"echo","arguments":"{"}}}]}

data: {"choices":[{"delta":{"function_call":{"arguments":"}"}},"finish_reason":"function_call"}]}"#,
        ),
        (
            "not in a list",
            r#"{"choices":[{"delta":{"tool_calls":{"id":"a","function":{"name":"echo","arguments":"{}"}}},"finish_reason":"stop"}]}"#,
        ),
    ];
    for (case, chunk) in cases {
        let server =
            Server::start([streamed([format!("data: {chunk}\n\ndata: [DONE]\n\n")]), says("hi")]).await;
        let (settings, fake) = with_tools(settings(&server.base_url));

        let events = turn(settings).await;

        assert_eq!(*fake.ran.lock().unwrap(), ["echo {}"], "{case}: {events:?}");
        assert_eq!(events.last().unwrap(), "done after 2", "{case}");
    }
}
