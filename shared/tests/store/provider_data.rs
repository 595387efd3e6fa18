//! What providers do to messages, and what they need back with them.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Cut, Message, Role, SessionId, Truncated};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{MessagePage, Outcome, Store, TurnEnd, TurnOutcome, WrittenMessage};
use serde_json::json;

use crate::support::*;

on_both_databases![
    what_an_engine_records_of_a_message_comes_back_with_it,
    a_turn_that_failed_is_shown_as_such,
    what_was_not_reported_is_null,
];

async fn rows(store: &Store, session: SessionId) -> Vec<Message> {
    store.messages(session, MessagePage { limit: 10, ..MessagePage::default() }).await.unwrap()
}

fn failed() -> TurnOutcome {
    TurnOutcome::Failed(Problem::with_detail(Code::EngineFailed, "no"))
}

async fn what_an_engine_records_of_a_message_comes_back_with_it(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let place = store.context(session).await.unwrap()[0].consumed_seq;
    store.record_opaque(&lease, mail.turn, place, &json!({"refused": "images"})).await.unwrap();
    let written = WrittenMessage {
        content: "cut".to_owned(),
        truncated: Some(Truncated::Length),
        opaque: Some(json!({"signature": "s\0"})),
        ..WrittenMessage::default()
    };
    let end = TurnEnd { messages: vec![written], ..answered(mail.turn, "") };
    let finished = store.finish(&lease, end).await.unwrap();
    let Outcome::Answered(result) = &finished.ended[0].outcome else { panic!("an answer") };
    assert_eq!(result.truncated, Some(Truncated::Length));

    let opaque: Vec<_> =
        store.context(session).await.unwrap().into_iter().map(|entry| entry.opaque).collect();
    let expected = [Some(json!({"refused": "images"})), Some(json!({"signature": "s\0"}))];
    assert_eq!(opaque, expected);
    let fork = fork_at(rows(store, session).await[1].id);
    cut(store, session, Cut::Fork(fork.clone())).await;
    let copied: Vec<_> =
        store.context(fork.into).await.unwrap().into_iter().map(|entry| entry.opaque).collect();
    assert_eq!(copied, expected);
    assert_eq!(rows(store, fork.into).await[1].truncated, Some(Truncated::Length));
    assert_eq!(rows(store, session).await[1].truncated, Some(Truncated::Length));
}

async fn a_turn_that_failed_is_shown_as_such(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let partial = WrittenMessage { content: "half".to_owned(), failed: true, ..WrittenMessage::default() };
    let end = TurnEnd { outcome: failed(), messages: vec![partial], ..answered(mail.turn, "") };
    store.finish(&lease, end).await.unwrap();
    admit(store, session, "second").await;
    let (lease, mail) = begin(store, session).await;
    store
        .finish(&lease, TurnEnd { outcome: failed(), messages: vec![], ..answered(mail.turn, "") })
        .await
        .unwrap();
    admit(store, session, "third").await;
    begin(store, session).await;

    let context = store.context(session).await.unwrap();
    let told: Vec<_> = context.iter().map(|entry| (entry.role, entry.content.as_str())).collect();
    let expected = [
        (Role::User, "first"),
        (Role::Assistant, "half\n\n(This message broke off here: the turn failed.)"),
        (Role::User, "second"),
        (Role::Assistant, "(I could not answer this: the turn failed.)"),
        (Role::User, "third"),
    ];
    assert_eq!(told, expected);
    let rows = rows(store, session).await;
    assert_eq!(rows.iter().map(|row| row.failed).collect::<Vec<_>>(), [false, true, false, false]);
    assert_eq!(rows[1].content, "half", "what is displayed is what the model wrote");
}

async fn what_was_not_reported_is_null(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    store.append(&lease, mail.turn, &[WrittenMessage::default()]).await.unwrap();
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();

    assert_eq!(finished.iterations, 2, "a call that reports nothing is a call");
    let rows = rows(store, session).await;
    assert!(rows.iter().all(|row| row.usage.is_none() && row.thinking_tokens.is_none()));
    let Outcome::Answered(result) = &finished.ended[0].outcome else { panic!("an answer") };
    assert_eq!((result.token_usage.input, result.token_usage.cost), (None, None));
    assert_eq!(store.session(session).await.unwrap().unwrap().usage.input_tokens, 0);
}
