//! Engines with conversations of their own: which one a session has, what of a turn the engine has, and what it has not.

use roundhouse_shared::domain::{Anchor, EngineKind, Lease, Role, SessionId, Usage};
use roundhouse_shared::store::{
    Mail, Meanwhile, MessagePage, NewSession, Next, SoFar, Store, TurnEnd, TurnOutcome, WrittenMessage,
};
use serde_json::json;

use crate::support::*;

on_both_databases![
    what_a_turn_has_come_to_is_known_to_whoever_goes_on,
    an_anchor_stands_with_its_message,
    the_newest_anchor_is_that_of_the_turns_before,
    a_native_session_that_is_replaced_is_deleted,
    a_message_is_part_of_the_conversation_once_it_is_delivered,
    what_the_engine_has_not_taken_goes_back_to_its_place,
    what_the_engine_has_already_comes_before_what_it_has_not,
    an_engine_is_given_no_more_than_it_has_room_for,
    a_message_is_consumed_once_the_model_has_it,
    a_cancel_answers_also_what_was_not_delivered,
    what_children_say_does_not_reach_such_a_turn,
    an_autonomous_message_answers_and_costs_no_turn,
    what_is_said_between_turns_is_stored_while_nobody_works,
    what_the_model_says_by_itself_comes_before_what_it_has_not_seen,
    only_the_lease_gives_and_takes,
];

async fn native_session(store: &Store) -> SessionId {
    let new = NewSession { engine: EngineKind::ClaudeCli, ..new_session() };
    store.create_session(&new).await.unwrap().id
}

async fn at_work(store: &Store) -> (SessionId, Lease, Mail) {
    let session = native_session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin(store, session).await;
    (session, lease, mail)
}

fn anchored(text: &str, at: &str) -> WrittenMessage {
    let anchor = Some(Anchor { native: "n".to_owned(), at: at.to_owned() });
    WrittenMessage { content: text.to_owned(), anchor, ..WrittenMessage::default() }
}

async fn what_a_turn_has_come_to_is_known_to_whoever_goes_on(store: &Store) {
    let session = native_session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin_and_die(store, session).await;
    assert!(!mail.continued);
    let engine = EngineKind::ClaudeCli;
    assert_eq!(store.so_far(engine, mail.turn).await.unwrap(), SoFar::default());
    let asks = WrittenMessage { anchor: anchored("", "a-1").anchor, ..calls("look there", &["c-1", "c-2"]) };
    store.append(&lease, mail.turn, &[asks, result("c-1", "seen")]).await.unwrap();
    store.reap(session, 3).await.unwrap().unwrap();

    let (_, again) = begin(store, session).await;

    assert!(again.continued);
    // The second call was closed when the worker was found dead.
    let results = vec!["c-1".to_owned(), "c-2".to_owned()];
    let wanted = SoFar { iterations: 1, usage: USAGE, anchors: vec!["a-1".to_owned()], results };
    assert_eq!(store.so_far(engine, again.turn).await.unwrap(), wanted);
}

async fn an_anchor_stands_with_its_message(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let end = TurnEnd { messages: vec![anchored("ok", "a-1")], ..answered(mail.turn, "") };
    let finished = store.finish(&lease, end).await.unwrap();
    let wanted = Some(json!({ "claude_uuid": "a-1" }));
    assert_eq!(finished.messages[0].engine_metadata, wanted);
    let page = MessagePage { limit: 10, ..MessagePage::default() };
    assert_eq!(store.messages(session, page).await.unwrap()[1].engine_metadata, wanted);
}

async fn the_newest_anchor_is_that_of_the_turns_before(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let newest =
        async |engine, native: &str, turn| store.newest_anchor(engine, session, native, turn).await.unwrap();
    let cli = EngineKind::ClaudeCli;
    assert_eq!(newest(cli, "n", mail.turn).await, None);
    store.append(&lease, mail.turn, &[anchored("a", "a-1"), result("c", "no anchor")]).await.unwrap();
    let end = TurnEnd { messages: vec![anchored("b", "a-2")], ..answered(mail.turn, "") };
    store.finish(&lease, end).await.unwrap();
    admit(store, session, "second").await;
    let (lease, second) = begin(store, session).await;
    store.append(&lease, second.turn, &[anchored("c", "a-3")]).await.unwrap();

    assert_eq!(newest(cli, "n", second.turn).await.as_deref(), Some("a-2"));
    assert_eq!(newest(cli, "n", mail.turn).await.as_deref(), Some("a-3"));
    assert_eq!(newest(cli, "another", second.turn).await, None);
    assert_eq!(newest(EngineKind::OpenAi, "n", second.turn).await, None);
}

async fn a_native_session_that_is_replaced_is_deleted(store: &Store) {
    let (session, lease, _) = at_work(store).await;
    for native in ["n-1", "n-1", "n-2"] {
        store.adopt_native(&lease, native, "host").await.unwrap();
    }

    let doomed = store.take_doomed("host", EngineKind::ClaudeCli, 10, 1000).await.unwrap();

    let doomed: Vec<_> =
        doomed.iter().map(|doomed| (&*doomed.native.native, doomed.native.session)).collect();
    assert_eq!(doomed, [("n-1", session)]);
}

async fn a_message_is_part_of_the_conversation_once_it_is_delivered(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let job = admit(store, session, "more").await;
    let taken = store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room: 100 }).await.unwrap();
    assert_eq!(taken.len(), 1);
    store.append(&lease, mail.turn, &[calls("look", &["c"]), result("c", "seen")]).await.unwrap();
    let before = [(Role::User, "first"), (Role::Assistant, "look"), (Role::Tool, "seen")];
    assert_eq!(told(store, session).await, said(before));

    store.delivered(&lease, mail.turn, &[job]).await.unwrap();

    let [first, second, third] = before;
    assert_eq!(told(store, session).await, said([first, second, third, (Role::User, "more")]));
}

async fn what_the_engine_has_not_taken_goes_back_to_its_place(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let injected = [admit(store, session, "one").await, admit(store, session, "two").await];
    store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room: 100 }).await.unwrap();
    let later = admit(store, session, "three").await;
    store.delivered(&lease, mail.turn, &injected[..1]).await.unwrap();
    let end = TurnEnd { undelivered: vec![injected[1]], ..answered(mail.turn, "both") };

    let finished = store.finish(&lease, end).await.unwrap();

    assert_eq!(ids(&finished.ended), [jobs_of(&mail)[0], injected[0]]);
    assert_eq!(finished.next, Next::Turn);
    let next = store.drain(&lease).await.unwrap().unwrap();
    assert_eq!((jobs_of(&next), next.continued), (vec![injected[1], later], false));
    assert_ne!(next.turn, mail.turn);
    assert_eq!(job(store, injected[1]).await.attempt, 1);
}

async fn what_the_engine_has_already_comes_before_what_it_has_not(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let enqueued = enqueue(store, session, "later").await;
    let injected = admit(store, session, "one").await;
    store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room: 100 }).await.unwrap();
    let end = TurnEnd { undelivered: vec![injected], ..answered(mail.turn, "ok") };
    store.finish(&lease, end).await.unwrap();
    let more = admit(store, session, "two").await;

    for expected in [injected, enqueued, more] {
        let mail = store.drain(&lease).await.unwrap().unwrap();
        assert_eq!(jobs_of(&mail), [expected]);
        store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    }
}

async fn an_engine_is_given_no_more_than_it_has_room_for(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let injected = [admit(store, session, "one").await, admit(store, session, "two").await];
    for (room, expected) in [(0, &injected[..0]), (1, &injected[..1]), (1, &injected[1..])] {
        let taken = store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room }).await.unwrap();
        let jobs: Vec<_> = taken.iter().flat_map(|group| &group.jobs).map(|claimed| claimed.job).collect();
        assert_eq!(jobs, expected);
    }
}

async fn a_message_is_consumed_once_the_model_has_it(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let injected = admit(store, session, "one").await;
    store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room: 100 }).await.unwrap();
    assert!(store.is_consumed(jobs_of(&mail)[0]).await.unwrap());
    assert!(!store.is_consumed(injected).await.unwrap());
    store.delivered(&lease, mail.turn, &[injected]).await.unwrap();
    assert!(store.is_consumed(injected).await.unwrap());
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert!(!store.is_consumed(injected).await.unwrap(), "it is answered");
}

async fn a_cancel_answers_also_what_was_not_delivered(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let injected = admit(store, session, "one").await;
    store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room: 100 }).await.unwrap();
    store.cancel_session(session).await.unwrap();
    let outcome = TurnOutcome::Cancelled;
    let end = TurnEnd { outcome, undelivered: vec![injected], ..answered(mail.turn, "") };
    let finished = store.finish(&lease, end).await.unwrap();
    assert_eq!(ids(&finished.ended), [jobs_of(&mail)[0], injected]);
    assert_eq!(finished.next, Next::Idle);
    let page = MessagePage { limit: 10, ..MessagePage::default() };
    let stored = store.messages(session, page).await.unwrap();
    let marked: Vec<_> = stored.iter().filter(|message| message.job == Some(injected)).collect();
    assert!(marked.len() == 1 && marked[0].cancelled, "{stored:?}");
}

async fn what_children_say_does_not_reach_such_a_turn(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let child = start_child(store, &lease, mail.turn, "c").await;
    let (of_child, its_mail) = begin(store, child.session).await;
    store.finish(&of_child, answered(its_mail.turn, "done")).await.unwrap();
    let injected = admit(store, session, "one").await;
    let taken = store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room: 100 }).await.unwrap();
    let jobs: Vec<_> = taken.iter().flat_map(|group| &group.jobs).map(|claimed| claimed.job).collect();
    assert_eq!(jobs, [injected]);
}

async fn an_autonomous_message_answers_and_costs_no_turn(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let by_itself = WrittenMessage { usage: USAGE, ..anchored("the build is done", "a-0") };
    let stored = store.autonomous(&lease, &by_itself, false).await.unwrap();
    assert_eq!((stored.origin.as_str(), stored.turn == Some(mail.turn)), ("autonomous", false));
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!((answer(&finished.ended[0].outcome), finished.iterations), (("ok", false), 1));
    assert_eq!(finished.usage, Usage::default());
    assert_eq!(store.session(session).await.unwrap().unwrap().usage, USAGE);
}

async fn what_is_said_between_turns_is_stored_while_nobody_works(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let by_itself = anchored("the build is done", "a-0");
    assert_lost(&store.autonomous_between(&lease, &by_itself).await);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();

    let (stored, _) = store.autonomous_between(&lease, &by_itself).await.unwrap();

    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.message_count, row.last_message), (3, Some(stored.id)));
    assert_eq!(told(store, session).await.pop().unwrap().1, "the build is done");
    // What waits may be a cut; and whoever runs the session next tells of it.
    admit(store, session, "next").await;
    assert_lost(&store.autonomous_between(&lease, &by_itself).await);
    let (next, mail) = begin(store, session).await;
    assert_lost(&store.autonomous_between(&next, &by_itself).await);
    store.finish(&next, answered(mail.turn, "ok")).await.unwrap();
    assert_lost(&store.autonomous_between(&lease, &by_itself).await);
    store.autonomous_between(&next, &by_itself).await.unwrap();
    store.delete_session(session).await.unwrap();
    assert_lost(&store.autonomous_between(&next, &by_itself).await);
}

async fn what_the_model_says_by_itself_comes_before_what_it_has_not_seen(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    let first = mail.jobs[0].text.clone();
    store.autonomous(&lease, &anchored("the build is done", "a-0"), true).await.unwrap();
    store.autonomous(&lease, &anchored("the tests too", "a-1"), true).await.unwrap();
    store.delivered(&lease, mail.turn, &jobs_of(&mail)).await.unwrap();
    store.autonomous(&lease, &anchored("all done", "a-2"), false).await.unwrap();
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let said: Vec<_> = told(store, session).await.into_iter().map(|(_, content)| content).collect();
    assert!(
        said.ends_with(&["the build is done", "the tests too", &first, "all done", "ok"].map(str::to_owned)),
        "{said:?}"
    );
}

async fn only_the_lease_gives_and_takes(store: &Store) {
    let (_, lease, mail) = at_work(store).await;
    let job = jobs_of(&mail)[0];
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_lost(&store.adopt_native(&lease, "n", "host").await);
    assert_lost(&store.delivered(&lease, mail.turn, &[job]).await);
    assert_lost(&store.autonomous(&lease, &anchored("by itself", "a-0"), true).await);
}
