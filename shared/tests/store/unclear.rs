//! Commits of which nobody knows whether they happened: the connection is cut after the commit and before its reply. What
//! is done again with the same step is done once, and returns what it returned then.

use std::fmt::Debug;
use std::time::Duration;

use roundhouse_shared::domain::{Cut, InteractionKind, Lease, SessionId, Usage};
use roundhouse_shared::store::{
    Admission, Begin, Idempotency, Mail, Meanwhile, NewInteraction, Next, Step, Store, StoreError,
    WrittenMessage,
};

use crate::proxy::Proxy;
use crate::support::*;

on_postgres!(
    a_key_admits_a_message_once_however_often_its_commit_is_unclear,
    what_a_turn_brings_is_stored_once,
    mail_is_claimed_once_and_not_left_behind,
    a_turn_ends_once_and_its_run_learns_how,
    a_cut_ends_once,
    a_session_is_handed_back_once,
    a_question_is_asked_once,
    what_is_said_between_turns_is_stored_once,
);

const USAGE: Usage = Usage { input_tokens: 3, output_tokens: 5, cache_tokens: 7, cost_nanos: Some(11) };

/// A store whose connections go through a proxy.
async fn through_a_proxy(db: &Database) -> (Proxy, Store) {
    let proxy = Proxy::to(&db.address()).await;
    let store = db.connect_through(&proxy).await;
    // Connected before anything is to be lost.
    store.ping().await.unwrap();
    (proxy, store)
}

/// A session whose first message is being answered.
async fn at_work(store: &Store) -> (SessionId, Lease, Mail) {
    let session = session(store).await;
    admit(store, session, "hello").await;
    let (lease, mail) = begin(store, session).await;
    (session, lease, mail)
}

/// Does something again and again, as a run does, while the database seems to be away.
async fn persist<T, F: Future<Output = Result<T, StoreError>>>(mut act: impl FnMut() -> F) -> T {
    loop {
        match act().await {
            Err(error) if error.is_outage() => tokio::time::sleep(Duration::from_millis(10)).await,
            other => return other.unwrap(),
        }
    }
}

/// Does a step, whose commit happens and whose reply is lost, again until there is an answer; and once more: it is the same.
async fn unclear<T: Debug, F: Future<Output = Result<T, StoreError>>>(
    (proxy, store): &(Proxy, Store),
    act: impl Fn(Store) -> F,
) -> T {
    let store = store.once(Step::generate());
    proxy.lose_reply(b"", b"COMMIT\0");
    let first = act(store.clone()).await;
    assert!(first.as_ref().is_err_and(StoreError::is_outage), "{first:?}");
    let second = persist(|| act(store.clone())).await;
    let third = act(store.clone()).await.unwrap();
    assert_eq!(format!("{second:?}"), format!("{third:?}"));
    second
}

async fn a_key_admits_a_message_once_however_often_its_commit_is_unclear(db: &Database) {
    let (proxy, store) = through_a_proxy(db).await;
    let session = session(&db.store).await;
    let idempotency = Some(Idempotency { key: "once".to_owned(), hash: "h".to_owned() });
    let admission = Admission { idempotency, ..message(session, "hello") };
    proxy.lose_reply(b"", b"COMMIT\0");
    let first = store.admit(&admission).await;
    assert!(first.is_err_and(|error| error.is_outage()));
    let admitted = persist(|| store.admit(&admission)).await;
    assert_eq!((admitted.job, admitted.message), (admission.job, None));
    assert_eq!(db.number("SELECT count(*) FROM messages").await, 1);
}

async fn what_a_turn_brings_is_stored_once(db: &Database) {
    let cut = through_a_proxy(db).await;
    let (session, lease, mail) = at_work(&db.store).await;
    let turn = mail.turn;
    let written = [WrittenMessage { usage: USAGE, ..calls("look", &["c"]) }, result("c", "seen")];
    let stored = unclear(&cut, |store| {
        let written = &written;
        async move { store.append(&lease, turn, written).await }
    })
    .await;
    assert_eq!(stored.len(), 2);
    unclear(&cut, |store| async move { store.spend(&lease, turn, USAGE).await }).await;
    unclear(&cut, |store| async move { store.compact(&lease, turn, "so far", 1, USAGE).await }).await;
    let by_itself = WrittenMessage { usage: USAGE, content: "done".to_owned(), ..WrittenMessage::default() };
    unclear(&cut, |store| {
        let by_itself = &by_itself;
        async move { store.autonomous(&lease, by_itself, false).await }
    })
    .await;
    let row = db.store.session(session).await.unwrap().unwrap();
    assert_eq!((row.message_count, row.usage.input_tokens, row.usage.cost_nanos), (5, 12, Some(44)));
    let finished = db.store.finish(&lease, answered(turn, "ok")).await.unwrap();
    assert_eq!((finished.iterations, finished.usage.output_tokens), (2, 15));
}

async fn mail_is_claimed_once_and_not_left_behind(db: &Database) {
    let cut = through_a_proxy(db).await;
    let session = session(&db.store).await;
    let first = admit(&db.store, session, "first").await;
    let worker = registered(&db.store).await;
    let begun = unclear(&cut, |store| async move { store.begin(session, worker, |_| true).await }).await;
    let Begin::Started(lease, mail) = begun else { panic!("{begun:?}") };
    assert_eq!((jobs_of(&mail), mail.attempt), (vec![first], 1));
    let turn = mail.turn;
    let meanwhile = admit(&db.store, session, "meanwhile").await;
    let taken =
        unclear(&cut, |store| async move { store.drain_more(&lease, turn, Meanwhile::Boundary).await }).await;
    assert_eq!((taken.len(), taken[0].jobs[0].job), (1, meanwhile));
    let next = enqueue(&db.store, session, "next").await;
    db.store.finish(&lease, answered(turn, "ok")).await.unwrap();
    let mail = unclear(&cut, |store| async move { store.drain(&lease).await }).await.unwrap();
    assert_eq!((jobs_of(&mail), mail.jobs[0].text.as_str()), (vec![next], "next"));
    db.store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let attempts = "SELECT count(*) FROM jobs WHERE attempt = 1 AND state = 'succeeded'";
    assert_eq!(db.number(attempts).await, 3);
}

async fn a_turn_ends_once_and_its_run_learns_how(db: &Database) {
    let cut = through_a_proxy(db).await;
    let (session, lease, mail) = at_work(&db.store).await;
    enqueue(&db.store, session, "next").await;
    let turn = mail.turn;
    let finish = |store: Store| async move { store.finish(&lease, answered(turn, "ok")).await };
    let finished = unclear(&cut, finish).await;
    assert_eq!(
        (finished.next, ids(&finished.ended), finished.messages.len()),
        (Next::Turn, jobs_of(&mail), 1)
    );
    let mail = db.store.drain(&lease).await.unwrap().unwrap();
    // The lease is gone with this one.
    let finish = |store: Store| async move { store.finish(&lease, answered(mail.turn, "ok")).await };
    let finished = unclear(&cut, finish).await;
    assert_eq!((finished.next, finished.ended.len()), (Next::Idle, 1));
    assert!(finished.stored.is_some());
    assert_eq!(db.number("SELECT count(*) FROM outbox").await, 2);
    assert_eq!(db.number("SELECT count(*) FROM messages").await, 4);
    // Another step is another write.
    assert_lost(&db.store.once(Step::generate()).finish(&lease, answered(turn, "again")).await);
}

async fn a_cut_ends_once(db: &Database) {
    let cut = through_a_proxy(db).await;
    let session = session(&db.store).await;
    admit(&db.store, session, "hello").await;
    let (lease, mail) = begin(&db.store, session).await;
    db.store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let job = try_cut(&db.store, session, Cut::Reset).await.unwrap();
    let worker = registered(&db.store).await;
    let Begin::Maintenance(lease, _) = db.store.begin(session, worker, |_| true).await.unwrap() else {
        panic!("no cut");
    };
    let end = ready();
    let worked = unclear(&cut, |store| {
        let end = &end;
        async move { store.finish_work(&lease, job, end).await }
    })
    .await;
    assert_eq!((ids(&worked.ended), result_of(&worked).deleted), (vec![job], 2));
    assert_eq!(worked.stored.unwrap().events[0].name.as_str(), "session.reset");
}

async fn a_session_is_handed_back_once(db: &Database) {
    let cut = through_a_proxy(db).await;
    let (session, lease, mail) = at_work(&db.store).await;
    let back = unclear(&cut, |store| async move { store.hand_back(&lease).await }).await;
    assert_eq!((back.turn, back.next.map(|next| next.job)), (Some(mail.turn), jobs_of(&mail).pop()));
    let (_, again) = begin(&db.store, session).await;
    assert_eq!((again.turn, again.attempt), (mail.turn, 1));
}

async fn a_question_is_asked_once(db: &Database) {
    let cut = through_a_proxy(db).await;
    let (session, lease, mail) = at_work(&db.store).await;
    let asked = unclear(&cut, |store| {
        let payload = serde_json::json!({ "tool": "shell" });
        let new =
            NewInteraction { turn: mail.turn, kind: InteractionKind::Permission, payload, open_ms: LONG_MS };
        async move { store.ask(&lease, new).await }
    })
    .await;
    let open = db.store.open_interactions(session).await.unwrap();
    assert_eq!(open.iter().map(|open| open.id).collect::<Vec<_>>(), [asked.id]);
    let withdrawn = unclear(&cut, |store| async move { store.withdraw(&lease).await }).await;
    assert_eq!(withdrawn, [asked.id]);
    db.store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
}

async fn what_is_said_between_turns_is_stored_once(db: &Database) {
    let cut = through_a_proxy(db).await;
    let (session, lease, mail) = at_work(&db.store).await;
    db.store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let by_itself = WrittenMessage { usage: USAGE, content: "done".to_owned(), ..WrittenMessage::default() };
    let (message, stored) = unclear(&cut, |store| {
        let by_itself = &by_itself;
        async move { store.autonomous_between(&lease, by_itself).await }
    })
    .await;
    let row = db.store.session(session).await.unwrap().unwrap();
    assert_eq!((row.message_count, row.last_message, row.usage), (3, Some(message.id), USAGE));
    assert_eq!(stored.unwrap().events[0].name.as_str(), "message.completed");
}
