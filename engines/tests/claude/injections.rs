//! Messages while a turn runs.

use roundhouse_engines::contract::{EngineEvent, Injected, TurnInput};

use crate::host::{Host, Session, answer, done, message};

fn is_tool_started(event: &EngineEvent) -> bool {
    matches!(event, EngineEvent::ToolStarted(_))
}

fn delivered(events: &[EngineEvent]) -> Vec<String> {
    let ids = events.iter().filter_map(|event| match event {
        EngineEvent::Delivered(ids) => Some(ids.clone()),
        _ => None,
    });
    ids.flatten().collect()
}

async fn inject(session: &mut Session, text: &str) -> roundhouse_engines::contract::InputMessage {
    let message = message(text);
    assert_eq!(session.0.inject(message.clone()).await, Injected::Accepted);
    message
}

#[tokio::test]
async fn a_message_during_a_tool_is_folded_in_and_one_result_answers_both() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let first = session.send("X = 5\nsleep 3 then say slept").await;
    let begun = session.until(is_tool_started).await;
    let second = inject(&mut session, "add 1 to x").await;
    let events = session.rest().await;

    let tool = events.iter().find_map(|event| match event {
        EngineEvent::ToolDone { success, result, .. } => Some((*success, result.clone())),
        _ => None,
    });
    assert_eq!(tool, Some((true, "slept".to_owned())), "the tool ran to its end");
    assert_eq!(answer(&events), "X = 5\nslept\nX = 6");
    assert_eq!(delivered(&begun), [&*first.id]);
    assert_eq!(delivered(&events), [&*second.id]);
    assert_eq!(done(&events).answered, [first.id, second.id]);
    assert_eq!(session.chat("what is X").await, "X = 6");
}

#[tokio::test]
async fn a_message_while_text_streams_is_a_turn_of_its_own() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let first = session.send("slow 3\ncount to 20").await;
    session.until(|event| matches!(event, EngineEvent::Delta(_))).await;
    let second = inject(&mut session, "say second").await;
    let third = inject(&mut session, "say third").await;
    let events = session.rest().await;
    assert!(answer(&events).ends_with("19 20"), "{events:?}");
    assert_eq!(done(&events).answered, [first.id]);

    // Sent again, with one that is new.
    let fourth = message("say fourth");
    let ids = [&second, &third, &fourth].map(|message| message.id.clone());
    let messages = vec![second, third, fourth];
    session.0.send(TurnInput { messages, ..TurnInput::default() }).await.unwrap();
    let mut answered = vec![];
    let mut told = vec![];
    let mut texts = vec![];
    loop {
        let events = session.rest().await;
        texts.push(answer(&events));
        told.extend(delivered(&events));
        answered.extend(done(&events).answered);
        let left: Vec<_> = ids.iter().filter(|id| !answered.contains(id)).cloned().collect();
        if left.is_empty() {
            break;
        }
        let messages = left
            .into_iter()
            .map(|id| roundhouse_engines::contract::InputMessage { id, ..message("say fourth") });
        session.0.send(TurnInput { messages: messages.collect(), ..TurnInput::default() }).await.unwrap();
    }
    assert_eq!(answered, ids, "each once, in order");
    assert_eq!(told, ids, "each once, in order");
    assert_eq!(texts.join("\n"), "second\nthird\nfourth");
    assert_eq!(host.requests().len(), 1 + texts.len(), "nothing was asked twice");
}

#[tokio::test]
async fn there_is_nothing_to_inject_into_between_turns() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.chat("say a").await;
    assert_eq!(session.0.inject(message("say b")).await, Injected::NotNow);
    assert_eq!(session.chat("say c").await, "c");
}
