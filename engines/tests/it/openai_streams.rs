//! What servers send, and what a caller sees of it.

use std::time::Duration;

use crate::script::{Act, Reply, Server, end, head, head_of, piece, says, status, streamed};
use crate::turns::{settings, turn};

async fn seen(reply: Reply) -> Vec<String> {
    let server = Server::start([reply]).await;
    let mut settings = settings(&server.base_url);
    settings.max_tries = 1;
    turn(settings).await
}

const HI: &[&str] = &["delta hi", "message \"hi\"", "done after 1"];

/// An answer, the pieces in which it is sent, and the events of the turn.
type Case = (&'static str, &'static [&'static [u8]], &'static [&'static str]);

const WELL: &[Case] = &[
        (
            "all fields, as OpenAI sends them",
            &[
                br#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
                b"\n\n",
                b"data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\"}}]}\n\n",
                b"data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"y\"}}]}\n\n",
                b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
                b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":2}}}\n\n",
                b"data: [DONE]\n\n",
            ],
            &[
                "delta he",
                "delta y",
                "message \"hey\" by m-1 used 6+4 in, 5 out, 2 thinking",
                "done after 1 used 6+4 in, 5 out, 2 thinking",
            ],
        ),
        (
            "no id, object, created, index, model",
            &[b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"],
            HI,
        ),
        (
            "comments, other fields and CRLF",
            &[
                b": keep-alive\r\n\r\nevent: message\r\nid: 1\r\nretry: 5\r",
                b"\ndata:{\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\r\n\r\n: x\r\n\r\n",
            ],
            HI,
        ),
        (
            "an event of two data lines, cut in the middle",
            &[b"\xEF\xBB\xBFdata: {\"choices\":[{\"delta\":\nda", b"ta: {\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n", b"\n"],
            HI,
        ),
        (
            "a character cut in the middle",
            &[b"data: {\"choices\":[{\"delta\":{\"content\":\"\xF0\x9F", b"\x9A\x82\"},\"finish_reason\":\"stop\"}]}\n\n"],
            &["delta \u{1F682}", "message \"\u{1F682}\"", "done after 1"],
        ),
        (
            "NUL, lone surrogates and broken UTF-8",
            &[
                br#"data: {"choices":[{"delta":{"content":"a\u0000b\ud83d\\\uDE82\ud83d\ude82 "#,
                b"\xFF\"},\"finish_reason\":\"stop\"}]}\n\n",
            ],
            &[
                "delta a\u{FFFD}b\u{FFFD}\\\u{FFFD}\u{1F682} \u{FFFD}",
                "message \"a\u{FFFD}b\u{FFFD}\\\\\u{FFFD}\u{1F682} \u{FFFD}\"",
                "done after 1",
            ],
        ),
        (
            "a finish_reason in another spelling, and no [DONE]",
            &[b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"STOP\"}]}\n\n"],
            HI,
        ),
        (
            "[DONE] without a finish_reason or a last line end",
            &[b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]"],
            HI,
        ),
        (
            "reasoning under both names",
            &[
                b"data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\",\"reasoning\":\"a\"}}]}\n\n",
                b"data: {\"choices\":[{\"delta\":{\"reasoning\":\"b\",\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n",
            ],
            &["thinking a", "thinking b", "delta hi", "message \"hi\" thought \"ab\"", "done after 1"],
        ),
        (
            "content in parts, other choices, and values of other kinds",
            &[br#"data: {"error":null,"model":7,"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":[{"type":"text","text":"h"},{"text":"i"}],"reasoning":{},"tool_calls":[]},"finish_reason":"stop"}]}"#, b"\n\n"],
            HI,
        ),
        (
            "usage that grows with each chunk: the last one counts",
            &[
                b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
                b"data: {\"choices\":[{\"delta\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3.0,\"completion_tokens\":\"2\"}}\n\n",
                b"data: {\"choices\":[],\"usage\":null}\n\ndata: [DONE]\n\n",
            ],
            &[
                "delta hi",
                "message \"hi\" used 3+0 in, 2 out, 0 thinking",
                "done after 1 used 3+0 in, 2 out, 0 thinking",
            ],
        ),
        (
            "an answer of nothing",
            &[b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"],
            &["failed: the provider failed: the answer was empty: the model gave neither text nor a call"],
        ),
        (
            "a refusal",
            &[b"data: {\"choices\":[{\"delta\":{\"content\":null,\"refusal\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n"],
            HI,
        ),
        (
            "a tool call, though no tool was offered",
            &[b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\"}}]},\"finish_reason\":\"stop\"}]}\n\n"],
            &["failed: the provider failed: the model called a tool, although it was offered none"],
        ),
];

#[tokio::test]
async fn what_servers_stream_becomes_the_same_events() {
    for (case, pieces, expected) in WELL {
        assert_eq!(seen(streamed(*pieces)).await, *expected, "{case}");
    }
}

#[tokio::test]
async fn what_goes_wrong_in_a_stream_is_said() {
    const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    let cut_off = "failed: the provider failed: the answer was cut off: \
                   the stream ended without [DONE] and without a finish_reason";
    let cases: &[(&str, &[&str], &str)] = &[
        ("an orderly end too early", &[HALF], cut_off),
        ("an end within an event", &[HALF, "data: {\"choices\":[{\"del"], cut_off),
        (
            "an error in the stream",
            &[HALF, "data: {\"error\":{\"message\":\"no memory\",\"code\":503}}\n\n"],
            "failed: the provider failed with HTTP 503: no memory",
        ),
        (
            "an error that is a text",
            &[HALF, "data: {\"error\":\"no \\ud83dmemory\"}\n\n"],
            "failed: the provider failed: no \u{FFFD}memory",
        ),
        (
            "an error by the event's name",
            &[HALF, "event: error\ndata: {\"message\":\"no memory\"}\n\n"],
            "failed: the provider failed: no memory",
        ),
        (
            "an error of the older vLLM",
            &[HALF, "data: {\"object\":\"error\",\"message\":\"no memory\",\"code\":400}\n\n"],
            "failed: the provider failed with HTTP 400: no memory",
        ),
        (
            "an error behind the last chunk, without its end",
            &[HALF, "data: {\"error\":{\"message\":\"no memory\",\"code\":\"503\"}}"],
            "failed: the provider failed with HTTP 503: no memory",
        ),
        (
            "what is no JSON",
            &[HALF, "data: oops\n\n"],
            "failed: the provider failed: the answer cannot be read: oops",
        ),
    ];

    for (case, pieces, expected) in cases {
        assert_eq!(seen(streamed(*pieces)).await, ["delta hi", expected], "{case}");
    }
}

#[tokio::test]
async fn a_stream_that_says_nothing_is_no_answer() {
    let empty =
        "failed: the provider failed: the answer was empty: the stream ended with [DONE] before any choice";
    let usage = "data: {\"choices\":[],\"usage\":null}\n\n";

    assert_eq!(seen(streamed(["data: [DONE]\n\n"])).await, [empty]);
    assert_eq!(seen(streamed([usage, "data: [DONE]\n\n"])).await, [empty]);
}

#[tokio::test]
async fn a_connection_that_is_cut_fails_the_turn_unless_the_answer_was_complete() {
    let half = piece("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n");
    let whole =
        piece("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n");

    let cut_early = seen(vec![head(), half, Act::Close]).await;
    let cut_late = seen(vec![head(), whole, Act::Close]).await;

    assert_eq!(cut_early[0], "delta hi");
    assert!(
        cut_early[1].starts_with("failed: the provider failed: the connection was lost in the answer"),
        "{cut_early:?}"
    );
    assert_eq!(cut_late, HI);
}

#[tokio::test]
async fn a_body_that_is_json_is_an_answer_or_an_error() {
    let body = |json: &str| vec![head_of("application/json"), piece(json), end()];
    let plain = r#" {"object":"chat.completion","model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;

    let answer = seen(body(plain)).await;
    let error = seen(body(r#"{"error":{"message":"no such model","code":"404"}}"#)).await;
    let other = seen(body(r#"{"status":"ok"}"#)).await;

    assert_eq!(
        answer,
        [
            "thinking hm",
            "delta hi",
            "message \"hi\" thought \"hm\" by m-1 used 1+0 in, 2 out, 0 thinking",
            "done after 1 used 1+0 in, 2 out, 0 thinking",
        ]
    );
    assert_eq!(error, ["failed: the provider failed with HTTP 404: no such model"]);
    assert_eq!(other, [r#"failed: the provider failed: the answer cannot be read: {"status":"ok"}"#]);
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    let server =
        Server::start([vec![head_of("text/html; charset=utf-8"), piece("<html>Welcome"), end()]]).await;

    let events = turn(settings(&server.base_url)).await;

    assert_eq!(events, ["failed: the provider failed: the answer is a web page: is base_url right?"]);
}

#[tokio::test]
async fn an_event_without_end_is_given_up() {
    let megabyte = "x".repeat(1024 * 1024);
    let reply = [head(), piece("data: ")].into_iter().chain((0..33).map(|_| piece(&megabyte)));

    let events = seen(reply.collect()).await;

    assert_eq!(events, ["failed: the provider failed: an event of the answer is longer than 33554432 bytes"]);
}

#[tokio::test]
async fn a_rejection_is_shown_in_its_own_words() {
    let long = "y".repeat(5000);
    let cases: &[(u16, &str, &str)] = &[
        (404, r#"{"error":{"message":"no such model","type":"x"}}"#, "no such model"),
        (404, r#"{"error":"no such model"}"#, "no such model"),
        (400, r#"{"object":"error","message":"too long","code":400}"#, "too long"),
        (422, r#"{"detail":"bad field"}"#, "bad field"),
        (404, r#"[{"error":{"message":"no such model"}}]"#, "no such model"),
        (404, "<h1>Not here</h1>", "<h1>Not here</h1>"),
        (404, "", "without a reason"),
        (400, &long, &format!("{}…", "y".repeat(2048))),
    ];

    for (code, body, detail) in cases {
        let events = seen(status(*code, "", body)).await;
        assert_eq!(events, [format!("failed: the provider failed with HTTP {code}: {detail}")]);
    }
}

#[tokio::test]
async fn silence_fails_the_turn() {
    let server = Server::start([
        vec![Act::Hold],
        vec![head(), Act::Hold],
        vec![head(), piece("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n"), Act::Hold],
    ])
    .await;
    let mut impatient = settings(&server.base_url);
    impatient.first_byte_timeout = Duration::from_millis(300);
    impatient.idle_timeout = Duration::from_millis(200);

    assert_eq!(turn(impatient.clone()).await, ["failed: no progress for 300ms"]);
    assert_eq!(turn(impatient.clone()).await, ["failed: no progress for 200ms"]);
    assert_eq!(turn(impatient).await, ["delta hi", "failed: no progress for 200ms"]);
}

#[tokio::test]
async fn an_answer_that_is_complete_does_not_wait_for_a_stream_that_stays_open() {
    let whole =
        piece("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n");
    let server = Server::start([vec![head(), whole, Act::Hold]]).await;
    let mut settings = settings(&server.base_url);
    settings.idle_timeout = Duration::from_millis(200);

    assert_eq!(turn(settings).await, HI);
}

#[tokio::test]
async fn an_answer_that_gets_further_has_time() {
    let text = piece("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n");
    let texts = (0..10).flat_map(|_| [Act::Sleep(Duration::from_millis(200)), text.clone()]);
    let reply = [head()].into_iter().chain(texts).chain(says("hi").into_iter().skip(1));
    let server = Server::start([reply.collect()]).await;
    let mut patient = settings(&server.base_url);
    patient.idle_timeout = Duration::from_millis(1500);

    assert_eq!(turn(patient).await.last().unwrap(), "done after 1");
}
