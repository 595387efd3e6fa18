//! Files that come with messages.

use bytes::Bytes;
use roundhouse_engines::contract::{Attachment, ContextMessage, EngineEvent, InputMessage, TurnInput};
use serde_json::json;

use crate::script::{Server, calls, says};
use crate::tools::with_tools;
use crate::turns::{engine, input, message, next, open, rest, settings, show};

fn file(name: &str, media_type: &str, data: &'static [u8]) -> Attachment {
    Attachment { name: name.to_owned(), media_type: media_type.to_owned(), data: Bytes::from_static(data) }
}

fn with(files: Vec<Attachment>) -> TurnInput {
    let context =
        vec![ContextMessage::User { text: "look".to_owned(), attachments: files.clone(), opaque: None }];
    TurnInput {
        context,
        messages: vec![InputMessage { attachments: files, ..message("job", "look") }],
        ..TurnInput::default()
    }
}

#[tokio::test]
async fn images_are_data_and_texts_are_texts() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    let files = vec![
        file("a.png", "image/png", b"\xFB\xFF\xFE1"),
        file("b.JPG", "image/JPEG", b"12"),
        file("c.gif", "image/gif", b"123"),
        file("d.webp", "image/webp", b""),
        file("e.txt", "text/plain; charset=utf-8", b"one\0two\xFF"),
        file("f.json", "application/json", b"{}"),
        file("g", "application/ld+json", b"[]"),
    ];

    session.send(with(files)).await.unwrap();
    rest(&mut *session).await;

    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        server.requests()[0].body["messages"][0]["content"],
        json!([
            text("look"),
            image("data:image/png;base64,+//+MQ=="),
            image("data:image/jpeg;base64,MTI="),
            image("data:image/gif;base64,MTIz"),
            image("data:image/webp;base64,"),
            text("File e.txt:\n\none\u{FFFD}two\u{FFFD}"),
            text("File f.json:\n\n{}"),
            text("File g:\n\n[]"),
        ])
    );
}

#[tokio::test]
async fn other_files_are_refused_before_anything_is_sent() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    for media_type in ["application/pdf", "image/svg+xml", "video/mp4", ""] {
        let error = session.send(with(vec![file("f", media_type, b"")])).await.unwrap_err();

        assert_eq!(
            error.to_string(),
            format!(
                "the engine is unavailable: the file \"f\" is of the type {media_type:?}, \
                 and the engine takes only text, PNG, JPEG, GIF and WebP"
            )
        );
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn what_is_in_the_context_already_is_only_mentioned() {
    let server = Server::start([says("hi")]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    let mut input = with(vec![file("f.pdf", "application/pdf", b"")]);
    input.messages[0].attachments.clear();

    session.send(input).await.unwrap();
    rest(&mut *session).await;

    let sent = &server.requests()[0].body["messages"][0]["content"][1]["text"];
    assert_eq!(sent, "[The file f.pdf (application/pdf) cannot be shown to you.]");
}

#[tokio::test]
async fn files_that_come_at_a_boundary_are_checked_and_sent() {
    for (media_type, expected) in [("image/png", "done after 2"), ("application/pdf", "failed")] {
        let server = Server::start([calls(&[("a", "echo", "{}")]), says("hi")]).await;
        let (settings, _) = with_tools(settings(&server.base_url));
        let engine = engine(settings);
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();
        while !matches!(next(&mut *session).await, EngineEvent::Boundary) {}

        let files = vec![file("f", media_type, b"")];
        session.proceed(vec![InputMessage { attachments: files, ..message("job", "and") }]).await;

        let last = loop {
            let event = next(&mut *session).await;
            if event.ends_turn() {
                break show(&event);
            }
        };
        assert!(last.starts_with(expected), "{last}");
    }
}
