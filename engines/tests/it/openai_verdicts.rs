//! What a provider meant by what it sent: answers that are none, and answers that were cut short.

use roundhouse_engines::contract::{EngineEvent, Truncated};
use serde_json::{Value, json};

use crate::script::{Act, Reply, Server, calls, end, head, head_of, piece, says, streamed};
use crate::tools::with_tools;
use crate::turns::{engine, input, next, open, rest, settings, turn};

const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";

async fn seen(reply: Reply) -> Vec<String> {
    let server = Server::start([reply]).await;
    let mut settings = settings(&server.base_url);
    settings.max_tries = 1;
    turn(settings).await
}

fn ending(reason: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n")
}

#[tokio::test]
async fn an_error_within_an_answer_fails_the_turn_in_the_providers_words() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "llama.cpp's line that is no field",
            "error: {\"code\":500,\"message\":\"slot is gone\",\"type\":\"server_error\"}\n\n",
            "failed: the provider failed with HTTP 500: slot is gone",
        ),
        (
            "bare JSON",
            "{\"error\":{\"message\":\"slot is gone\"}}\n",
            "failed: the provider failed: slot is gone",
        ),
        (
            "bare JSON over several lines",
            "{\n  \"error\": {\n    \"message\": \"slot is gone\"\n  }\n}\n",
            "failed: the provider failed: slot is gone",
        ),
        (
            "within a choice",
            "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\",\"error\":{\"message\":\"slot is gone\",\"code\":502}}]}\n\n",
            "failed: the provider failed with HTTP 502: slot is gone",
        ),
        (
            "within a delta",
            "data: {\"choices\":[{\"delta\":{\"error\":\"slot is gone\"}}]}\n\n",
            "failed: the provider failed: slot is gone",
        ),
        (
            "without a member of that name",
            "data: {\"code\":\"InternalError\",\"message\":\"slot is gone\",\"request_id\":\"1\"}\n\n",
            "failed: the provider failed: slot is gone",
        ),
        (
            "passed on from another provider",
            "data: {\"error\":{\"message\":\"Provider returned error\",\"metadata\":{\"raw\":\"{\\\"error\\\":{\\\"message\\\":\\\"slot is gone\\\"}}\"}}}\n\n",
            "failed: the provider failed: Provider returned error: slot is gone",
        ),
        (
            "in Groq's own member",
            "data: {\"choices\":[],\"x_groq\":{\"error\":\"slot is gone\"}}\n\n",
            "failed: the provider failed: slot is gone",
        ),
    ];
    for (case, error, expected) in cases {
        let told = seen(streamed([HALF, error, "data: [DONE]\n\n"])).await;
        assert_eq!(told, ["delta hi", expected], "{case}");
    }
}

#[tokio::test]
async fn only_known_reasons_end_an_answer_well() {
    for reason in ["stop", "eos", "end_turn", "STOP", "function_call"] {
        assert_eq!(
            seen(streamed([HALF.to_owned(), ending(reason)])).await,
            ["delta hi", "message \"hi\"", "done after 1"],
            "{reason}"
        );
    }
    for reason in ["error", "network_error", "because", "abort"] {
        let failed = format!(
            "failed: the provider failed: the provider ended its answer with finish_reason \"{reason}\""
        );
        assert_eq!(
            seen(streamed([HALF.to_owned(), ending(reason)])).await,
            ["delta hi", &failed],
            "{reason}"
        );
    }
}

#[tokio::test]
async fn other_framings_are_read_or_said_to_be_unreadable() {
    let hi = ["delta hi", "message \"hi\"", "done after 1"];
    let chunk = "{\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}";
    let last = "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}";
    let whole = "{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}\n";
    let readable: &[(&str, &[&str])] = &[
        ("one value a line", &[chunk, "\n", last, "\n"]),
        ("no blank lines between events", &["data: ", chunk, "\ndata: ", last, "\ndata: [DONE]\n"]),
        ("a whole answer on one line", &[whole]),
        ("a whole answer as an event", &["data: ", whole, "\n"]),
        (
            "a whole answer over several lines",
            &["{\n\"choices\": [{\n\"message\": {\"content\": \"hi\"}}]\n}\n"],
        ),
    ];
    for (case, pieces) in readable {
        let reply = [head_of("application/json")].into_iter().chain(pieces.iter().map(piece)).chain([end()]);
        assert_eq!(seen(reply.collect()).await, hi, "{case}");
    }
    let unreadable: &[(&str, &str, &str)] = &[
        ("plain text", "upstream connect error\n", "the answer cannot be read: upstream connect error"),
        (
            "a page without a content type of its own",
            "<html>no</html>",
            "the answer is a web page: is base_url right?",
        ),
        ("another document", "{\"status\":\"ok\"}\n", "the answer cannot be read: {\"status\":\"ok\"}"),
    ];
    for (case, body, expected) in unreadable {
        let told = seen(streamed([body])).await;
        assert_eq!(told, [format!("failed: the provider failed: {expected}")], "{case}");
    }
    let told = seen(streamed([HALF, "upstream connect error\n"])).await;
    assert!(told[1].contains("was cut off") && told[1].ends_with("upstream connect error"), "{told:?}");
}

#[tokio::test]
async fn an_empty_answer_is_made_once_more_and_then_fails() {
    let thought = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let blank = "data: {\"choices\":[{\"delta\":{\"content\":\" \\n\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let server = Server::start([streamed([thought]), says("hi")]).await;
    let told = turn(settings(&server.base_url)).await;
    assert_eq!(told, ["thinking hm", "retry after try 1", "delta hi", "message \"hi\"", "done after 1"]);

    for empty in [thought, blank] {
        let server = Server::start([streamed([empty])]).await;
        let told = turn(settings(&server.base_url)).await;
        let failed =
            "failed: the provider failed: the answer was empty: the model gave neither text nor a call";
        assert_eq!(told.last().unwrap(), failed);
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn text_that_was_cut_short_is_an_answer_that_says_so() {
    for (reason, truncated) in [
        ("length", Some(Truncated::Length)),
        ("MAX_TOKENS", Some(Truncated::Length)),
        ("content_filter", Some(Truncated::ContentFilter)),
        ("stop", None),
    ] {
        let server = Server::start([streamed([HALF.to_owned(), ending(reason)])]).await;
        let engine = engine(settings(&server.base_url));
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();
        let message = loop {
            match next(&mut *session).await {
                EngineEvent::MessageDone(message) => break message,
                EngineEvent::Delta(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((message.content.as_str(), message.truncated), ("hi", truncated), "{reason}");
    }
    for (reason, said) in [("length", "length limit"), ("content_filter", "content filter has withheld")] {
        let told = seen(streamed([ending(reason)])).await;
        assert!(told.len() == 1 && told[0].contains(said), "{told:?}");
    }
}

/// A call whose arguments happen to be whole, in a message that was cut off.
fn cut_call() -> Reply {
    let delta = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "echo", "arguments": "{}"}}]}, "finish_reason": "length"}]});
    streamed([format!("data: {delta}\n\ndata: [DONE]\n\n")])
}

#[tokio::test]
async fn a_call_in_a_message_that_was_cut_off_never_runs() {
    let server = Server::start([cut_call(), cut_call(), calls(&[("b", "echo", "{}")]), says("hi")]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));

    let told = turn(settings).await;

    assert_eq!(told.last().unwrap(), "done after 4");
    assert_eq!(*fake.ran.lock().unwrap(), ["echo {}"], "{told:?}");
    assert!(
        told[1].starts_with("echo failed a: This call was not run: your message was cut off"),
        "{told:?}"
    );
    let request = &server.requests()[1].body;
    assert_eq!(request["messages"][2]["role"], "tool");
    assert!(request["messages"][2]["content"].as_str().unwrap().contains("cut off"));
}

#[tokio::test]
async fn a_model_whose_messages_are_cut_off_again_and_again_is_told_twice() {
    let server = Server::start([cut_call()]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));

    let told = turn(settings).await;

    assert_eq!(server.requests().len(), 3);
    assert!(fake.ran.lock().unwrap().is_empty());
    let failed = told.last().unwrap();
    assert!(failed.contains("was cut off by its length limit (max_tokens) 3 times in a row"), "{failed}");
}

#[tokio::test]
async fn signs_of_life_are_no_progress() {
    let signs: [&str; 4] = [
        ": keep-alive\n\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[]}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    ];
    for sign in signs {
        let waits = (0..200).flat_map(|_| [Act::Sleep(std::time::Duration::from_millis(20)), piece(sign)]);
        let server = Server::start([[head()].into_iter().chain(waits).collect::<Reply>()]).await;
        let mut impatient = settings(&server.base_url);
        impatient.idle_timeout = std::time::Duration::from_millis(400);

        let told = turn(impatient).await;

        assert_eq!(
            told,
            [
                "failed: no progress for 400ms; the last that was heard: only signs of life, and nothing of an answer"
            ],
            "{sign}"
        );
    }
}

#[tokio::test]
async fn usage_that_comes_in_parts_is_put_together() {
    let chunks: [Value; 4] = [
        json!({"choices": [{"delta": {"content": "hi"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 0}}),
        json!({"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"completion_tokens": 3}}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 2}}}),
        json!({"choices": [], "usage": null}),
    ];
    let events =
        chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]);
    let told = seen(streamed(events)).await;
    assert_eq!(told[1], "message \"hi\" used 5+2 in, 3 out, 0 thinking");
}

#[tokio::test]
async fn an_overflow_within_a_stream_is_summarised_like_any() {
    let too_long = "error: {\"code\":400,\"message\":\"the request exceeds the available context size, try increasing it\"}\n\n";
    let server = Server::start([streamed([too_long]), says("in short"), says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    let before = vec![crate::turns::user("one"), crate::turns::assistant("two")];
    session.send(crate::turns::after(before, &["three"])).await.unwrap();

    let told = rest(&mut *session).await;

    assert!(told[0].starts_with("2 became"), "{told:?}");
    assert_eq!(told.last().unwrap(), "done after 1");
}
