//! What a transaction leaves to be published is kept with it, in order, until somebody has published it.

use roundhouse_shared::domain::{Lease, LeaseToken, Place, SessionId, Stored};
use roundhouse_shared::store::{Mail, Outcome, Step, Store};

use crate::support::*;

on_both_databases!(
    an_end_is_kept_until_it_is_published,
    what_a_run_that_lives_has_left_is_its_own_to_publish,
    whoever_begins_is_told_what_was_left,
    everything_that_ends_a_job_leaves_its_word,
    the_answers_of_a_deleted_session_are_there_for_a_while,
);

fn names(stored: &Stored) -> Vec<&'static str> {
    stored.events.iter().map(|event| event.name.as_str()).collect()
}

/// A session whose first message is being answered.
async fn at_work(store: &Store) -> (SessionId, Lease, Mail) {
    let session = session(store).await;
    admit(store, session, "hello").await;
    let (lease, mail) = begin(store, session).await;
    (session, lease, mail)
}

async fn left(store: &Store) -> Vec<Stored> {
    store.left_over(0, 100).await.unwrap()
}

/// A turn that ends well in a session of its own, as step so many of its run.
async fn ended(store: &Store, entry: i64) -> (SessionId, Stored) {
    let (session, lease, mail) = at_work(store).await;
    let step = Step::generate().with_entry(entry);
    let finished = store.once(step).finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    (session, finished.stored.unwrap())
}

async fn an_end_is_kept_until_it_is_published(store: &Store) {
    let (session, stored) = ended(store, 7).await;
    assert_eq!(names(&stored), ["message.completed", "turn.completed", "chat.response"]);
    assert_eq!((stored.session, stored.place.map(|place| place.entry)), (session, Some(7)));
    let (_, later) = ended(store, 3).await;
    assert_eq!(left(store).await, [stored.clone(), later.clone()]);
    assert_eq!(store.left_over(0, 1).await.unwrap(), std::slice::from_ref(&stored));
    assert_eq!(store.left_over(LONG_MS, 100).await.unwrap(), []);
    store.published(&[stored.id]).await.unwrap();
    assert_eq!(left(store).await, std::slice::from_ref(&later));
    store.published(&[stored.id, later.id]).await.unwrap();
    assert_eq!(left(store).await, []);
}

async fn what_a_run_that_lives_has_left_is_its_own_to_publish(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    enqueue(store, session, "next").await;
    let first =
        store.once(Step::generate().with_entry(1)).finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(left(store).await, []);
    let mail = store.drain(&lease).await.unwrap().unwrap();
    let second =
        store.once(Step::generate().with_entry(5)).finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(left(store).await, [first.stored.unwrap(), second.stored.unwrap()]);
}

async fn whoever_begins_is_told_what_was_left(store: &Store) {
    let (session, stored) = ended(store, 1).await;
    admit(store, session, "next").await;
    let (lease, mail) = begin(store, session).await;
    assert_eq!(mail.left_over, Some(stored.id));
    assert_eq!(store.left_over_of(session, lease.token).await.unwrap(), std::slice::from_ref(&stored));
    assert_eq!(stored.place, Some(Place { token: LeaseToken(lease.token.0 - 1), entry: 1 }));
    assert_eq!(store.left_over_of(session, LeaseToken(lease.token.0 - 1)).await.unwrap(), []);
    store.published(&[stored.id]).await.unwrap();
    store.hand_back(&lease).await.unwrap();
    assert_eq!(begin(store, session).await.1.left_over, None);
}

async fn everything_that_ends_a_job_leaves_its_word(store: &Store) {
    let (session, lease, mail) = at_work(store).await;
    enqueue(store, session, "next").await;
    let cancelled = store.cancel_all(session).await.unwrap();
    assert_eq!(names(&cancelled.stored.unwrap()), ["job.cancelled", "chat.response"]);
    let taken = store.hand_back(&lease).await.unwrap();
    assert_eq!(taken.turn, Some(mail.turn));
    assert_eq!(names(&taken.stored.unwrap()), ["job.cancelled", "chat.response"]);

    admit(store, session, "once more").await;
    begin_and_die(store, session).await;
    let reaped = store.reap(session, 1).await.unwrap().unwrap();
    assert_eq!(names(&reaped.stored.unwrap()), ["turn.failed"]);

    let job = admit(store, session, "never").await;
    let (_, cancelled) = store.cancel_job(job).await.unwrap();
    assert_eq!(names(&cancelled.stored.unwrap()), ["job.cancelled", "chat.response"]);
    assert_eq!(left(store).await.len(), 4);
    // Nobody listens to a session that is gone.
    store.delete_session(session).await.unwrap();
    assert_eq!(left(store).await, []);
}

async fn the_answers_of_a_deleted_session_are_there_for_a_while(db: &Database) {
    let store = &db.store;
    let session = session(store).await;
    let job = admit(store, session, "hello").await;
    store.cancel_session(session).await.unwrap();
    let before = store.outcomes(&[job]).await.unwrap();
    store.delete_session(session).await.unwrap();
    assert_eq!(store.outcomes(&[job]).await.unwrap(), before);
    assert!(matches!(&before[0].1, Outcome::Answered(result) if result.cancelled));
    store.forget_last_answers().await.unwrap();
    assert_eq!(store.outcomes(&[job]).await.unwrap(), before);
    db.execute("UPDATE last_answers SET ended_ms = 0").await;
    store.forget_last_answers().await.unwrap();
    assert!(matches!(store.outcomes(&[job]).await.unwrap()[0].1, Outcome::Failed(_)));
}
