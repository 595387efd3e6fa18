//! Messages: displayed in the order of arrival, replayed in the order of consumption.

use roundhouse_shared::domain::{MessageId, Role, SessionId};
use roundhouse_shared::store::{MessagePage, Store, TurnEnd, TurnOutcome};

use crate::support::*;

on_both_databases![
    messages_are_paged_forwards_and_backwards,
    an_unknown_session_has_no_messages,
    sessions_do_not_see_each_others_messages,
    context_is_in_the_order_of_consumption,
    messages_that_were_consumed_together_are_one_entry,
    what_no_turn_has_consumed_is_not_context,
    a_turn_that_goes_on_keeps_its_place_in_the_context,
];

async fn page(store: &Store, session: SessionId, page: MessagePage) -> Vec<String> {
    store.messages(session, page).await.unwrap().into_iter().map(|message| message.content).collect()
}

async fn messages_are_paged_forwards_and_backwards(store: &Store) {
    let session = session(store).await;
    for n in 1..=5 {
        admit(store, session, &n.to_string()).await;
    }
    let all = store.messages(session, MessagePage { limit: 10, ..MessagePage::default() }).await.unwrap();
    assert!(all.is_sorted_by(|a, b| a.id < b.id));
    let id = |n: usize| Some(all[n - 1].id);
    let cases = [
        (None, None, 2, vec!["1", "2"]),
        (id(2), None, 2, vec!["3", "4"]),
        (id(4), None, 2, vec!["5"]),
        (id(5), None, 2, vec![]),
        (None, id(5), 2, vec!["3", "4"]),
        (None, id(3), 5, vec!["1", "2"]),
        (None, id(1), 2, vec![]),
        (None, Some(MessageId(i64::MAX)), 2, vec!["4", "5"]),
        (id(1), id(5), 2, vec!["2", "3"]),
        (id(1), id(5), 9, vec!["2", "3", "4"]),
        (id(3), id(3), 9, vec![]),
    ];
    for (after, before, limit, expected) in cases {
        let found = page(store, session, MessagePage { after, before, limit }).await;
        assert_eq!(found, expected, "after {after:?}, before {before:?}, limit {limit}");
    }
}

async fn an_unknown_session_has_no_messages(store: &Store) {
    let nobody = SessionId::generate();
    assert!(contents(store, nobody).await.is_empty());
    assert_eq!(store.context(nobody).await.unwrap(), []);
}

async fn sessions_do_not_see_each_others_messages(store: &Store) {
    let (one, other) = (session(store).await, session(store).await);
    for text in ["a", "b"] {
        admit(store, one, text).await;
        admit(store, other, &text.to_uppercase()).await;
    }
    assert_eq!(contents(store, one).await, ["a", "b"]);
    assert_eq!(contents(store, other).await, ["A", "B"]);
    let (lease, mail) = begin(store, one).await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    begin(store, other).await;
    assert_eq!(told(store, other).await, said([(Role::User, "A")]));
}

async fn context_is_in_the_order_of_consumption(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    admit(store, session, "injected").await;
    assert_eq!(told(store, session).await, said([(Role::User, "first")]));
    store.finish(&lease, answered(mail.turn, "one")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();

    assert_eq!(contents(store, session).await, ["first", "injected", "one"]);
    let expected = [(Role::User, "first"), (Role::Assistant, "one"), (Role::User, "injected")];
    assert_eq!(told(store, session).await, said(expected));
    store.finish(&lease, answered(mail.turn, "two")).await.unwrap();
    admit(store, session, "last").await;
    begin(store, session).await;
    let context = store.context(session).await.unwrap();
    let told: Vec<_> = context.iter().map(|entry| entry.content.as_str()).collect();
    assert_eq!(told, ["first", "one", "injected", "two", "last"]);
    assert!(context.is_sorted_by(|a, b| a.consumed_seq < b.consumed_seq));
}

async fn messages_that_were_consumed_together_are_one_entry(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    for text in ["a", "b", "c"] {
        admit(store, session, text).await;
    }
    store.finish(&lease, answered(mail.turn, "one")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();
    let end = TurnEnd { messages: Vec::new(), ..answered(mail.turn, "") };
    store.finish(&lease, end).await.unwrap();
    admit(store, session, "d").await;
    begin(store, session).await;

    let expected =
        [(Role::User, "first"), (Role::Assistant, "one"), (Role::User, "a\n\nb\n\nc"), (Role::User, "d")];
    assert_eq!(told(store, session).await, said(expected));
}

async fn what_no_turn_has_consumed_is_not_context(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    admit(store, session, "cancelled").await;
    store.cancel_session(session).await.unwrap();
    let end = TurnEnd { outcome: TurnOutcome::Cancelled, ..answered(mail.turn, "half") };
    store.finish(&lease, end).await.unwrap();
    enqueue(store, session, "second").await;
    enqueue(store, session, "third").await;

    let (_, mail) = begin(store, session).await;

    assert_eq!(texts_of(&mail), ["second"]);
    let expected = [(Role::User, "first"), (Role::Assistant, "half"), (Role::User, "second")];
    assert_eq!(told(store, session).await, said(expected));
    assert_eq!(contents(store, session).await, ["first", "cancelled", "half", "second", "third"]);
}

async fn a_turn_that_goes_on_keeps_its_place_in_the_context(store: &Store) {
    let session = session(store).await;
    admit(store, session, "first").await;
    begin_and_die(store, session).await;
    store.reap(session, 3).await.unwrap().unwrap();
    let (lease, again) = begin(store, session).await;
    assert_eq!(told(store, session).await, said([(Role::User, "first")]));
    store.finish(&lease, answered(again.turn, "one")).await.unwrap();
    admit(store, session, "second").await;
    begin(store, session).await;
    let expected = [(Role::User, "first"), (Role::Assistant, "one"), (Role::User, "second")];
    assert_eq!(told(store, session).await, said(expected));
}
