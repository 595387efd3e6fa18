//! What servers stream that is not quite what it ought to be, and what a client sees of it.

use serde_json::{Value, json};

use crate::script::{Reply, Server, calls, head, piece, says, status, streamed, using};
use crate::support::{Client, Deployment, Kind, Options, SseEvent, agent, on, text};

const TOOLS: &str = "tools = [\"shell\"]\nmax_tries = 1\nprices = { input = 1.0, output = 10.0 }\n";
const DONE: &str = "data: [DONE]\n\n";

/// What is not known.
fn nothing() -> Value {
    json!({"input": null, "output": null, "cache": null, "cost": null})
}

/// A server with a quirk, and what comes of it.
struct Case {
    quirk: &'static str,
    replies: Vec<Reply>,
    /// Thinking, tools, and how the turn ended, as the stream tells them.
    told: Vec<&'static str>,
    usage: Value,
}

/// Chunks of an answer.
fn chunks(chunks: &[Value]) -> Reply {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    streamed(events.chain([DONE.to_owned()]))
}

fn delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

/// A piece of a call.
fn call(piece: &Value) -> Value {
    delta(&json!({"tool_calls": [piece]}))
}

/// The arguments with which a shell says a word.
fn echo(word: &str) -> String {
    json!({ "command": format!("echo {word}") }).to_string()
}

/// What a client sees of such calls.
const ONE: &str = "echo one: true one";
const TWO: &str = "echo two: true two";

/// Calls.
fn calling() -> Vec<Case> {
    let (one, two) = (echo("one"), echo("two"));
    let split = chunks(&[
        call(
            &json!({"index": 0, "id": "a", "type": "function", "function": {"name": "shell", "arguments": ""}}),
        ),
        call(&json!({"index": 0, "function": {"arguments": "{\"comm"}})),
        call(&json!({"index": 0, "function": {"arguments": "and\":\"echo gr\\u00"}})),
        call(&json!({"index": 0, "function": {"arguments": "fcn\"}"}})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]);
    let several = chunks(&[
        call(&json!({"index": 0, "id": "a", "function": {"name": "shell", "arguments": one[..9]}})),
        call(&json!({"index": 1, "id": "b", "function": {"name": "shell", "arguments": two[..12]}})),
        call(&json!({"index": 0, "function": {"arguments": one[9..]}})),
        call(&json!({"index": 1, "function": {"arguments": two[12..]}})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]);
    let without_ids = chunks(&[
        call(&json!({"function": {"name": "shell", "arguments": one}})),
        call(&json!({"function": {"name": "shell", "arguments": two}})),
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    ]);
    vec![
        Case {
            quirk: "a call in pieces, cut within an escape",
            replies: vec![split, says("well")],
            told: vec!["echo grün: true grün", "done well"],
            usage: nothing(),
        },
        Case {
            quirk: "two calls in one message, their pieces mixed",
            replies: vec![several, says("well")],
            told: vec![ONE, TWO, "done well"],
            usage: nothing(),
        },
        Case {
            quirk: "calls without ids and numbers, ended as if there were none",
            replies: vec![without_ids, says("well")],
            told: vec![ONE, TWO, "done well"],
            usage: nothing(),
        },
        Case {
            quirk: "arguments that are no JSON",
            replies: vec![calls(&[("a", "shell", "{\"command\": echo}")]), says("well")],
            told: vec!["a call: false The arguments are no valid JSON", "done well"],
            usage: nothing(),
        },
    ]
}

/// Answers, and what they cost.
fn answering() -> Vec<Case> {
    let one = echo("one");
    vec![
        Case {
            quirk: "usage behind the answer, in numbers",
            replies: vec![using(calls(&[("a", "shell", &one)]), 10, 2), using(says("well"), 20, 3)],
            told: vec![ONE, "done well"],
            usage: json!({"input": 30, "output": 5, "cache": 0, "cost": 8e-5}),
        },
        Case {
            quirk: "usage that is null, and choices that are empty",
            replies: vec![chunks(&[
                json!({"choices": [], "usage": null}),
                json!({"choices": [{"delta": {"content": "well"}}], "usage": null}),
                json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": null}),
                json!({"choices": [], "usage": null}),
            ])],
            told: vec!["done well"],
            usage: nothing(),
        },
        Case {
            quirk: "reasoning under one name",
            replies: vec![chunks(&[
                delta(&json!({"reasoning_content": "hm, "})),
                delta(&json!({"reasoning_content": "so"})),
                json!({"choices": [{"delta": {"content": "well"}, "finish_reason": "stop"}]}),
            ])],
            told: vec!["thought hm, so", "done well"],
            usage: nothing(),
        },
        Case {
            quirk: "reasoning under another name",
            replies: vec![chunks(&[
                delta(&json!({"reasoning": "hm"})),
                json!({"choices": [{"delta": {"content": "well"}, "finish_reason": "stop"}]}),
            ])],
            told: vec!["thought hm", "done well"],
            usage: nothing(),
        },
        Case {
            quirk: "an end that is said by [DONE] alone",
            replies: vec![chunks(&[delta(&json!({"content": "well"}))])],
            told: vec!["done well"],
            usage: nothing(),
        },
    ]
}

on!(what_servers_stream_becomes_the_same_answer: Embedded, Distributed);
async fn what_servers_stream_becomes_the_same_answer(kind: Kind) {
    let cases: Vec<_> = calling().into_iter().chain(answering()).collect();
    let (deployment, servers) = with_servers(kind, cases.iter().map(|case| case.replies.clone())).await;
    let client = deployment.client();
    for (index, (case, server)) in cases.iter().zip(&servers).enumerate() {
        let events = client.stream_with(&format!("s{index}"), None, "go").await.all().await;

        assert_eq!(told(&events), case.told, "{}", case.quirk);
        let done = &events.last().unwrap().data;
        assert_eq!(done["tokenUsage"], case.usage, "{}", case.quirk);
        assert_eq!(done["iterations"], case.replies.len(), "{}", case.quirk);
        assert_eq!(server.requests().len(), case.replies.len(), "{}", case.quirk);
        is_kept(deployment.other(), &events, server, case.quirk).await;
    }
    deployment.end().await;
}

on!(what_breaks_off_in_a_stream_is_told_and_the_session_goes_on: Embedded, Distributed);
async fn what_breaks_off_in_a_stream_is_told_and_the_session_goes_on(kind: Kind) {
    let half = || format!("data: {}\n\n", delta(&json!({"content": "hal"})));
    let cases = [
        ("an end without a reason", streamed([half()]), "the answer was cut off"),
        (
            "an error in mid-stream",
            streamed([half(), "data: {\"error\":{\"message\":\"no memory\",\"code\":503}}\n\n".to_owned()]),
            "HTTP 503: no memory",
        ),
        (
            "a connection that is cut",
            vec![head(), piece(half()), crate::script::Act::Close],
            "the connection was lost",
        ),
    ];
    let scripts = cases.iter().map(|(_, reply, _)| vec![reply.clone(), using(says("well"), 1, 1)]);
    let (deployment, servers) = with_servers(kind, scripts).await;
    let client = deployment.client();
    for (index, ((quirk, _, detail), server)) in cases.iter().zip(&servers).enumerate() {
        let agent = format!("s{index}");
        let session = client.session_with(&agent).await;

        let events = client.stream_with(&agent, Some(&session), "go").await.all().await;

        let last = events.last().unwrap();
        assert_eq!(last.name, "error", "{quirk}");
        assert!(text(&last.data["detail"]).contains(detail), "{quirk}: {}", last.data);
        assert_eq!(last.data["code"], "ENGINE_FAILED", "{quirk}");
        let next = deployment.other().chat_with(&agent, Some(&session), "on").await.json();
        assert_eq!((&next["content"], &next["tokenUsage"]["input"]), (&json!("well"), &json!(1)), "{quirk}");
        assert_eq!(server.requests().len(), 2, "{quirk}: nothing is tried again once there were words");
    }
    deployment.end().await;
}

on!(a_context_that_is_too_long_is_summarised_and_tried_once_more: Embedded, Distributed);
async fn a_context_that_is_too_long_is_summarised_and_tried_once_more(kind: Kind) {
    let refusal = r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#;
    let too_long = || status(400, "", refusal);
    // The second session's server never finds it short enough.
    let scripts = [
        vec![says("noted"), too_long(), using(says("the summary"), 5, 1), using(says("well"), 7, 1)],
        vec![says("noted"), too_long(), says("the summary"), too_long()],
    ];
    let (deployment, servers) = with_servers(kind, scripts).await;
    let client = deployment.client();
    let session = text(&client.chat_with("s0", None, "X = 5").await.json()["sessionId"]);

    let events = client.stream_with("s0", Some(&session), "go").await.all().await;

    let compacted = events.iter().find(|event| event.name == "context.compacted").expect("context.compacted");
    assert_eq!(compacted.data["compactSize"], 2);
    let done = &events.last().unwrap().data;
    // The summary has its price, too.
    let usage = json!({"input": 12, "output": 2, "cache": 0, "cost": 32e-6});
    assert_eq!((&done["content"], &done["tokenUsage"]), (&json!("well"), &usage));
    let requests = servers[0].requests();
    assert_eq!(requests.len(), 4);
    let last = requests[3].body["messages"].to_string();
    assert!(last.contains("the summary") && last.contains("go") && !last.contains("X = 5"), "{last}");
    let messages = deployment.other().messages(&session).await;
    assert!(messages.contains(&"user: X = 5".to_owned()), "all of it is displayed: {messages:?}");

    let session = text(&client.chat_with("s1", None, "X = 5").await.json()["sessionId"]);
    let failed = client.chat_with("s1", Some(&session), "go").await;
    assert_eq!(failed.code(), "502 ENGINE_FAILED");
    assert!(failed.body.contains("too long for the model"), "{}", failed.body);
    assert_eq!(servers[1].requests().len(), 4);
    deployment.end().await;
}

/// A deployment with an agent for each script: `s0`, `s1` and so on.
async fn with_servers(
    kind: Kind,
    scripts: impl IntoIterator<Item = Vec<Reply>>,
) -> (Deployment, Vec<Server>) {
    let (mut servers, mut agents) = (Vec::new(), String::new());
    for (index, replies) in scripts.into_iter().enumerate() {
        let server = Server::start(replies).await;
        agents += &agent(&format!("s{index}"), &server.base_url, TOOLS);
        servers.push(server);
    }
    (Deployment::with(kind, Options { agents, ..Options::default() }).await, servers)
}

/// What a stream tells of thinking, tools and the end, in lines.
fn told(events: &[SseEvent]) -> Vec<String> {
    let (mut told, mut thought, mut command) = (Vec::new(), String::new(), "a call".to_owned());
    for SseEvent { name, data, .. } in events {
        match name.as_str() {
            "thinking.delta" => thought += &text(&data["text"]),
            "tool.started" => command = text(&data["input"]["command"]),
            "tool.completed" => {
                let result = text(&data["result"]);
                let result = result.split([':', '\n']).next().unwrap_or_default();
                told.push(format!("{command}: {} {result}", data["success"]));
            }
            "message.completed" if !thought.is_empty() => {
                assert_eq!(data["message"]["thinkingContent"], thought);
                told.push(format!("thought {}", std::mem::take(&mut thought)));
            }
            "done" => told.push(format!("done {}", text(&data["content"]))),
            "error" => told.push(format!("error {}", text(&data["detail"]))),
            _ => {}
        }
    }
    told
}

/// Calls and results are told, stored and sent on under the same ids, each its own.
async fn is_kept(client: &Client, events: &[SseEvent], server: &Server, quirk: &str) {
    let done = &events.last().unwrap().data;
    let rows = client.items(&format!("/sessions/{}/messages", text(&done["sessionId"]))).await;
    let stored: Vec<_> =
        rows.iter().filter(|row| row["role"] == "tool").map(|row| text(&row["toolCallId"])).collect();
    let completed: Vec<_> = events
        .iter()
        .filter(|event| event.name == "tool.completed")
        .map(|event| text(&event.data["toolCallId"]))
        .collect();
    let requests = server.requests();
    let sent: Vec<_> = requests.last().unwrap().body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| text(&message["tool_call_id"]))
        .collect();
    assert_eq!((&stored, &completed), (&sent, &sent), "{quirk}");
    let mut different = sent.clone();
    different.dedup();
    assert!(different.len() == sent.len() && sent.iter().all(|id| !id.is_empty()), "{quirk}: {sent:?}");
    assert_eq!(rows.last().unwrap()["content"], done["content"], "{quirk}");
}
