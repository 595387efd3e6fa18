//! Contexts that the server finds too long.

use roundhouse_engines::contract::TurnInput;

use crate::script::{Reply, Server, says, status, streamed};
use crate::turns::{after, answer_to, assistant, input, settings, user};

/// A short conversation, and a message to answer.
fn talk() -> TurnInput {
    after(vec![user("X = 5"), assistant("noted")], &["hello"])
}

/// How servers say that a context is too long.
const TOO_LONG: &[(&str, u16, &str)] = &[
    (
        "OpenAI",
        400,
        r#"{"error":{"message":"Your input is over the limit.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
    ),
    (
        "vLLM",
        400,
        r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","param":null,"code":400}}"#,
    ),
    (
        "older vLLM",
        400,
        r#"{"object":"error","message":"The decoder prompt (length 9000) is longer than the maximum model length of 8192.","type":"BadRequestError","code":400}"#,
    ),
    (
        "llama.cpp",
        400,
        r#"{"error":{"code":400,"message":"too much","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
    ),
    (
        "older llama.cpp",
        500,
        r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#,
    ),
    ("Ollama", 400, r#"{"error":"the input length exceeds the context length"}"#),
    (
        "LiteLLM",
        400,
        r#"{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: no","type":null,"param":null,"code":"400"}}"#,
    ),
    (
        "Anthropic",
        400,
        r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
    ),
    (
        "Gemini",
        400,
        r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}"#,
    ),
    (
        "Gemini, in a list",
        400,
        r#"[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}]"#,
    ),
    (
        "SGLang",
        400,
        r#"{"message":"The input (9000 tokens) is longer than the model's context length (8192 tokens)."}"#,
    ),
    ("a text", 413, "maximum context length exceeded"),
];

#[tokio::test]
async fn a_context_that_the_server_finds_too_long_is_summarised_and_sent_again() {
    for (case, code, body) in TOO_LONG {
        let server = Server::start([status(*code, "", body), says("they spoke"), says("hi")]).await;

        let events = answer_to(settings(&server.base_url), talk()).await;

        let summary = format!(
            "2 became {:?}",
            "Summary of the conversation before the messages that follow:\n\nthey spoke"
        );
        assert_eq!(events, [&*summary, "delta hi", "message \"hi\"", "done after 1"], "{case}");
        assert_eq!(server.requests()[2].body["messages"][1]["content"], "hello", "{case}");
    }
}

#[tokio::test]
async fn it_is_understood_in_a_stream_too_unless_the_answer_has_begun() {
    let error = format!("data: {}\n\n", TOO_LONG[0].2);
    let begun = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n".to_owned();
    let early = Server::start([streamed([error.clone()]), says("they spoke"), says("hi")]).await;
    let late = Server::start([streamed([begun, error])]).await;

    let before = answer_to(settings(&early.base_url), talk()).await;
    let after = answer_to(settings(&late.base_url), talk()).await;

    assert_eq!(before.last().unwrap(), "done after 1");
    assert_eq!(
        after,
        [
            "delta hi",
            "failed: the provider failed: the conversation is too long for the model: Your input is over the limit.",
        ]
    );
}

#[tokio::test]
async fn a_context_that_is_still_too_long_fails_the_turn_and_says_so() {
    let too_long = || status(400, "", TOO_LONG[0].2);
    let failed = "failed: the provider failed with HTTP 400: the conversation is too long for the model";

    let cases: [(Vec<Reply>, TurnInput, String); 3] = [
        (
            vec![too_long(), says("they spoke"), too_long()],
            talk(),
            format!("{failed}: Your input is over the limit."),
        ),
        (
            vec![too_long(), too_long()],
            talk(),
            format!("{failed}, and could not be summarised: Your input is over the limit."),
        ),
        (vec![too_long()], input(&["hello"]), format!("{failed}: Your input is over the limit.")),
    ];
    for (replies, input, expected) in cases {
        let server = Server::start(replies).await;

        let events = answer_to(settings(&server.base_url), input).await;

        assert_eq!(events.last().unwrap(), &expected);
    }
}

#[tokio::test]
async fn what_only_sounds_like_it_is_no_reason_to_summarise() {
    let cases = [
        (400, r#"{"error":{"message":"too long","code":"string_above_max_length"}}"#),
        (400, r#"{"error":{"message":"the context is invalid"}}"#),
        (422, r#"{"detail":[{"msg":"bad","input":"maximum context length exceeded"}]}"#),
        (403, r#"{"error":{"message":"This context length is not in your plan"}}"#),
    ];
    for (code, body) in cases {
        let server = Server::start([status(code, "", body)]).await;

        let events = answer_to(settings(&server.base_url), talk()).await;

        assert_eq!(events.len(), 1, "{events:?}");
        assert!(!events[0].contains("the conversation is too long"), "{events:?}");
    }
}
