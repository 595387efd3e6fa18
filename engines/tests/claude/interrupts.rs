//! Interrupts, at each moment of a turn.

use roundhouse_engines::contract::{Answer, EngineEvent, Injected};
use serde_json::json;

use crate::host::{Host, Session, deltas, forever, message, permissions, until_none_asleep};

async fn interrupted(session: &mut Session) -> Vec<EngineEvent> {
    session.0.interrupt().await;
    let events = session.rest().await;
    assert!(matches!(events.last(), Some(EngineEvent::Interrupted)), "{events:?}");
    events
}

#[tokio::test]
async fn right_after_the_message_on_a_cold_and_on_a_warm_process() {
    let host = Host::new().await;
    let mut session = host.open().await;
    for _ in 0..4 {
        session.send("sleep 60 then say never").await;
        interrupted(&mut session).await;
    }
    assert_eq!(session.chat("say after").await, "after");
}

#[tokio::test]
async fn while_text_streams_and_what_waits_is_dropped() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.send("X = 5").await;
    session.rest().await;
    session.send("slow 60\ncount to 100").await;
    let begun = session.until(|event| matches!(event, EngineEvent::Delta(_))).await;
    assert_eq!(session.0.inject(message("say dropped")).await, Injected::Accepted);
    interrupted(&mut session).await;
    assert!(deltas(&begun).starts_with('1'));

    assert_eq!(session.chat("what is X").await, "X = 5");
    assert!(!host.last_heard().contains("say dropped"));
}

#[tokio::test]
async fn in_a_tool_which_is_killed() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.send(&format!("sleep {} then say never", forever())).await;
    session.until_asleep().await;
    interrupted(&mut session).await;
    assert_eq!(session.chat("say after").await, "after");
    until_none_asleep().await;
}

#[tokio::test]
async fn in_a_tool_that_has_put_something_into_the_background_which_ends_with_the_session() {
    let host = Host::new().await;
    let mut settings = host.settings();
    settings.permissions = permissions(json!({"ask": ["Bash"]}));
    let mut session = host.open_with(settings, None).await;
    session.send("sleep 0 then say never").await;
    let asked = session.until(|event| matches!(event, EngineEvent::Asked { .. })).await;
    let Some(EngineEvent::Asked { id, .. }) = asked.last() else { unreachable!() };
    let command = format!("setsid sleep {} & sleep 600", forever());
    session.0.answer(id, Answer::Allow { input: Some(json!({"command": command})) }).await;
    session.until_asleep().await;
    interrupted(&mut session).await;
    assert!(!session.0.is_warm(), "nobody keeps it");
    session.close().await;
    until_none_asleep().await;

    let mut session = host.open().await;
    session.send("slow 60\ncount to 100").await;
    session.until(|event| matches!(event, EngineEvent::Delta(_))).await;
    interrupted(&mut session).await;
    assert!(session.0.is_warm(), "there is nothing that could be left");
}

#[tokio::test]
async fn while_the_provider_is_asked_again() {
    let host = Host::new().await;
    let mut settings = host.settings();
    settings.max_retries = 10;
    let mut session = host.open_with(settings, None).await;
    session.send("fail 500").await;
    session.until(|event| matches!(event, EngineEvent::Retry { status: Some(500), .. })).await;
    interrupted(&mut session).await;
    assert_eq!(session.chat("say after").await, "after");
}

#[tokio::test]
async fn while_a_person_is_asked() {
    let host = Host::new().await;
    let mut settings = host.settings();
    settings.permissions = permissions(json!({"ask": ["Bash"]}));
    let mut session = host.open_with(settings, None).await;
    session.send("sleep 0 then say never").await;
    let asked = session.until(|event| matches!(event, EngineEvent::Asked { .. })).await;
    let Some(EngineEvent::Asked { id: open, .. }) = asked.last() else { unreachable!() };
    let events = interrupted(&mut session).await;
    assert!(
        events.iter().any(|event| matches!(event, EngineEvent::Withdrawn { id } if id == open)),
        "{events:?}"
    );
    assert_eq!(session.chat("say after").await, "after");
}

#[tokio::test]
async fn between_turns_it_is_nothing() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.chat("say before").await;
    session.0.interrupt().await;
    assert!(session.0.is_warm());
    assert_eq!(session.chat("say after").await, "after");
}
