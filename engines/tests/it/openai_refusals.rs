//! What a provider refuses to read is named, and left out from the next turn on.

use bytes::Bytes;
use roundhouse_engines::contract::{Attachment, ContextMessage, EngineEvent, TurnInput};
use serde_json::{Value, json};

use crate::script::{Server, says, status};
use crate::turns::{assistant, engine, message, next, open, rest, settings, show, user};

fn with_image(text: &str, opaque: Option<Value>) -> ContextMessage {
    let image = Attachment {
        name: "a.png".to_owned(),
        media_type: "image/png".to_owned(),
        data: Bytes::from_static(b"\x89PNG\r\n\x1a\n"),
    };
    ContextMessage::User { text: text.to_owned(), attachments: vec![image], opaque }
}

/// What is recorded of which messages, and how the turn fails.
async fn refused(code: u16, body: &str, context: Vec<ContextMessage>) -> (Vec<(usize, Value)>, String) {
    let server = Server::start([status(code, "", body)]).await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    session
        .send(TurnInput { context, messages: vec![message("job", "hello")], ..TurnInput::default() })
        .await
        .unwrap();
    let mut records = vec![];
    loop {
        match next(&mut *session).await {
            EngineEvent::Refused { at, opaque } => records.push((at, opaque)),
            event if event.ends_turn() => {
                assert_eq!(server.requests().len(), 1, "it is not tried again");
                return (records, show(&event));
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_refusal_names_the_message_and_is_recorded_with_it() {
    let look = || {
        vec![
            with_image("look at this", None),
            assistant("I see"),
            with_image("and this", None),
            assistant("yes"),
            user("why?"),
        ]
    };
    let cases = [
        (
            "no images at all",
            400,
            r#"{"error":{"message":"this model does not support image input"}}"#,
            vec![0, 2],
            "and this",
        ),
        ("the newest", 400, r#"{"error":{"message":"Could not process image"}}"#, vec![2], "and this"),
        (
            "one by its place",
            400,
            r#"{"error":{"message":"Invalid image data in messages[0].content[1]"}}"#,
            vec![0],
            "look at this",
        ),
        (
            "words",
            400,
            r#"{"error":{"code":"content_filter","message":"The response was filtered due to the prompt"}}"#,
            vec![4],
            "why?",
        ),
    ];
    for (case, code, body, places, named) in cases {
        let (records, failed) = refused(code, body, look()).await;

        assert_eq!(records.iter().map(|(at, _)| *at).collect::<Vec<_>>(), places, "{case}");
        assert!(failed.contains(&format!("the message \"{named}\"")), "{case}: {failed}");
    }
}

#[tokio::test]
async fn the_next_turn_goes_without_what_was_refused() {
    let server = Server::start([
        status(400, "", r#"{"error":{"message":"image input is not supported"}}"#),
        says("hi"),
    ])
    .await;
    let engine = engine(settings(&server.base_url));
    let mut session = open(&engine).await;
    let input = |opaque, rest: Vec<ContextMessage>| TurnInput {
        context: [with_image("look", opaque)].into_iter().chain(rest).collect(),
        messages: vec![message("job", "hello")],
        ..TurnInput::default()
    };
    session.send(input(None, vec![])).await.unwrap();
    let EngineEvent::Refused { opaque, .. } = next(&mut *session).await else { panic!("a refusal") };
    rest(&mut *session).await;

    session.send(input(Some(opaque), vec![assistant("(failed)"), user("now")])).await.unwrap();
    assert_eq!(rest(&mut *session).await.last().unwrap(), "done after 1");

    let request = &server.requests()[1].body;
    assert_eq!(
        request["messages"][0],
        json!({"role": "user", "content": "look\n\n[An attachment that the provider refused is left out.]"})
    );
}
