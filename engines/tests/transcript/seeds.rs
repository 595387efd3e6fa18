//! Sessions that begin in the middle.

use roundhouse_engines::contract::{Attachment, ContextMessage, EngineError, ToolCall};
use roundhouse_oracle::Oracle;
use serde_json::Value;

use crate::cli::ask;
use crate::place::Place;

const MODEL: &str = "claude-opus-5-5";

/// One black pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc`\0\0\0\x02\0\x01H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82";

fn user(text: &str) -> ContextMessage {
    ContextMessage::User { text: text.to_owned(), attachments: vec![], opaque: None }
}

fn assistant(text: &str, calls: &[(&str, &str, &str)]) -> ContextMessage {
    let call = |(id, name, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    ContextMessage::Assistant {
        text: text.to_owned(),
        tool_calls: calls.iter().map(call).collect(),
        opaque: None,
    }
}

fn result(call: &str, text: &str) -> ContextMessage {
    ContextMessage::Tool { call: call.to_owned(), text: text.to_owned(), opaque: None }
}

/// The content blocks of the newest request, in order; a text alone is one. Without those of the CLI's own.
fn blocks(oracle: &Oracle) -> Vec<Value> {
    let request = oracle.requests().pop().unwrap().json();
    let messages =
        request["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system");
    let blocks = messages.flat_map(|message| match &message["content"] {
        Value::Array(blocks) => blocks.clone(),
        text => vec![serde_json::json!({"type": "text", "text": text})],
    });
    let is_own =
        |block: &Value| block["text"].as_str().is_none_or(|text| !text.starts_with("<system-reminder>"));
    blocks.filter(is_own).collect()
}

#[tokio::test]
async fn a_conversation_goes_on_in_a_session_that_was_written_for_it() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let native = place.session();
    let image = Attachment { name: "a.png".into(), media_type: "image/png".into(), data: PNG.into() };
    let notes = Attachment { name: "n.txt".into(), media_type: "text/plain".into(), data: "a note".into() };
    let with_files =
        ContextMessage::User { text: "add 2 to x".to_owned(), attachments: vec![image, notes], opaque: None };
    let context = [
        ContextMessage::System("What was said before: nothing.".to_owned()),
        user("X = 5"),
        assistant("X = 5", &[]),
        user("say twice"),
        user("say a"),
        assistant(
            "I look.",
            &[("toolu_1", "Bash", r#"{"command":"echo a"}"#), ("toolu_2", "other", r#"{"n":1}"#)],
        ),
        result("toolu_1", "a"),
        result("toolu_2", "b"),
        assistant("a", &[]),
        with_files,
        assistant("X = 7", &[]),
    ];

    let anchors = place.transcripts().seed(&native, &context, MODEL).unwrap();

    assert_eq!(anchors.len(), 4);
    assert_eq!(ask(&place, &native, &oracle.base_url(), "what is X").await, "X = 7");
    let sent: Vec<String> = blocks(&oracle).iter().map(show).collect();
    let expected = [
        "What was said before: nothing.",
        "X = 5",
        "X = 5",
        "say twice",
        "say a",
        "I look.",
        r#"calls Bash {"command":"echo a"}"#,
        r#"calls other {"n":1}"#,
        "toolu_1: \"a\"",
        "toolu_2: \"b\"",
        "a",
        "image/png",
        "File n.txt:\n\na note",
        "add 2 to x",
        "X = 7",
        "what is X",
    ];
    assert_eq!(sent, expected);
    // It can be cut at what was written for it, and at what was said since.
    for (at, remembered) in
        [(&anchors[0], "X = 5"), (&anchors[3], "X = 7"), (&place.last_anchor(&native), "X = 7")]
    {
        let (copy, _) = place.fork(&native, at);
        assert_eq!(ask(&place, &copy, &oracle.base_url(), "what is X").await, remembered);
    }
}

#[tokio::test]
async fn what_a_provider_would_refuse_is_made_valid() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let native = place.session();
    let long_name = "n".repeat(300);
    let context = [
        result("nobody", "a result of nothing"),
        user(" "),
        assistant("", &[("call:1/ä", "mcp tool!", "not json"), ("", "", ""), ("same", &long_name, "[1]")]),
        result("call:1/ä", ""),
        result("of another", "b"),
        user("X = 5"),
        assistant("", &[]),
        assistant("", &[("same", "Bash", "{}")]),
    ];

    let anchors = place.transcripts().seed(&native, &context, "").unwrap();

    assert_eq!(anchors.len(), 3);
    // Nobody has answered what came before, so that is answered as well.
    let said = ask(&place, &native, &oracle.base_url(), "what is X").await;
    assert_eq!(said.lines().last(), Some("X = 5"), "{said}");
    let blocks = blocks(&oracle);
    let is_valid = |text: &str| {
        (1..=128).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let calls: Vec<&Value> = blocks.iter().filter(|block| block["type"] == "tool_use").collect();
    assert_eq!(calls.len(), 4, "{blocks:?}");
    let mut ids: Vec<&str> = calls.iter().map(|call| call["id"].as_str().unwrap()).collect();
    for call in &calls {
        assert!(is_valid(call["id"].as_str().unwrap()) && is_valid(call["name"].as_str().unwrap()), "{call}");
        assert!(call["input"].is_object(), "{call}");
    }
    let results = blocks.iter().filter(|block| block["type"] == "tool_result");
    assert_eq!(results.map(|result| result["tool_use_id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    let is_empty = |block: &&Value| block["text"].as_str().is_some_and(|text| text.trim().is_empty());
    assert_eq!(blocks.iter().find(is_empty), None);
    assert!(!blocks.iter().any(|block| block.to_string().contains("a result of nothing")), "{blocks:?}");
}

#[test]
fn nothing_is_written_where_nothing_was_said() {
    let place = Place::new();
    let native = place.session();
    assert_eq!(place.transcripts().seed(&native, &[result("nobody", "of nothing")], MODEL), Ok(vec![]));
    assert!(!place.transcripts().path(&native).exists());
}

#[tokio::test]
async fn a_session_that_is_there_is_not_written_over() {
    let place = Place::new();
    let native = place.session();
    place.transcripts().seed(&native, &[user("X = 5")], MODEL).unwrap();
    let before = place.text(&native);
    let again = place.transcripts().seed(&native, &[user("X = 6")], MODEL);
    assert!(matches!(again, Err(EngineError::Unavailable(_))), "{again:?}");
    assert_eq!(place.text(&native), before);
    let escaped = place.transcripts().seed(&place.named("../a"), &[user("X = 6")], MODEL);
    assert!(matches!(escaped, Err(EngineError::Unavailable(_))), "{escaped:?}");
}

fn show(block: &Value) -> String {
    match block["type"].as_str().unwrap() {
        "text" => block["text"].as_str().unwrap().trim_end().to_owned(),
        "tool_use" => format!("calls {} {}", block["name"].as_str().unwrap(), block["input"]),
        "tool_result" => format!("{}: {}", block["tool_use_id"].as_str().unwrap(), block["content"]),
        _ => block["source"]["media_type"].as_str().unwrap().to_owned(),
    }
}
