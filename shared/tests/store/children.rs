//! Children: sessions that a running turn starts, each once.

use roundhouse_shared::domain::{
    Cut, JobKind, JobState, Lease, LeaseToken, Role, SessionId, SessionJob, SessionStatus, TurnId,
};
use roundhouse_shared::store::{MessagePage, SessionFilter, Spawn, Store};
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    a_child_works_in_a_session_of_its_own,
    a_child_is_a_step_deeper_than_its_parent,
    a_call_has_one_child_however_often_it_asks,
    a_call_of_another_turn_has_another_child,
    of_many_that_ask_for_the_same_child_one_makes_it,
    only_the_turn_that_runs_starts_children,
    what_binds_a_child_is_stored_with_it_and_with_its_forks,
    a_child_is_an_orphan_once_the_turn_that_waits_for_it_has_ended,
];

async fn a_child_works_in_a_session_of_its_own(store: &Store) {
    let (parent, _, lease, mail) = running(store).await;
    let before = store.session(parent).await.unwrap();
    let spawn = child(mail.turn, mail.jobs[0].message.unwrap(), "c1");

    let started = store.spawn(&lease, &spawn).await.unwrap();

    let expected = SessionJob { job: started.job, session: spawn.session.id, kind: JobKind::Chat };
    assert_eq!(started, expected);
    assert_eq!(store.session(parent).await.unwrap(), before);
    let row = store.session(started.session).await.unwrap().unwrap();
    assert_eq!((row.parent, row.agent.as_str(), row.status), (Some(parent), "child", SessionStatus::Queued));
    let page = MessagePage { limit: 10, ..MessagePage::default() };
    let stored = store.messages(started.session, page).await.unwrap();
    assert_eq!((stored.len(), stored[0].content.as_str(), stored[0].role), (1, "work", Role::User));
    assert_eq!((stored[0].origin.as_str(), stored[0].job), ("agent:helper", Some(started.job)));
    assert_eq!((row.message_count, row.last_message), (1, Some(stored[0].id)));
    let job = job(store, started.job).await;
    assert_eq!((job.state, job.kind, job.message), (JobState::Pending, JobKind::Chat, Some(stored[0].id)));
    // It is swept as any mail, where nobody rang for it.
    assert_eq!(rung_again(store, LONG_MS, 10).await, []);
    assert_eq!(rung_again(store, 0, 10).await, [started]);
    assert_eq!(jobs_of(&begin(store, started.session).await.1), [started.job]);
}

async fn a_child_is_a_step_deeper_than_its_parent(db: &Database) {
    let store = &db.store;
    let (mut session, _, mut lease, mut mail) = running(store).await;
    let top = session;
    for depth in 0..4 {
        assert_eq!(store.depth(session, 10).await.unwrap(), depth);
        assert_eq!(store.depth(session, 2).await.unwrap(), depth.min(2));
        session = start_child(store, &lease, mail.turn, "c1").await.session;
        (lease, mail) = begin(store, session).await;
    }
    assert_eq!(store.depth(SessionId::generate(), 10).await.unwrap(), 0);
    assert_eq!((store.depth(top, 10).await.unwrap(), store.depth(session, 0).await.unwrap()), (0, 0));
}

async fn a_call_has_one_child_however_often_it_asks(store: &Store) {
    let session = session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin_and_die(store, session).await;
    let asking = mail.jobs[0].message.unwrap();
    let first = store.spawn(&lease, &child(mail.turn, asking, "c1")).await.unwrap();
    assert_eq!(store.spawn(&lease, &child(mail.turn, asking, "c1")).await.unwrap(), first);
    let (child_lease, child_mail) = begin(store, first.session).await;
    store.reap(session, 3).await.unwrap().unwrap();
    let (lease, again) = begin(store, session).await;
    assert_eq!(store.spawn(&lease, &child(again.turn, asking, "c1")).await.unwrap(), first);
    store.finish(&child_lease, answered(child_mail.turn, "ok")).await.unwrap();
    assert_eq!(store.spawn(&lease, &child(again.turn, asking, "c1")).await.unwrap(), first);

    let second = store.spawn(&lease, &child(again.turn, asking, "c2")).await.unwrap();

    assert_ne!(second.session, first.session);
    let all = store.sessions(&SessionFilter { limit: 10, ..SessionFilter::default() }).await.unwrap();
    assert_eq!(all.len(), 3);
}

async fn a_call_of_another_turn_has_another_child(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let first = start_child(store, &lease, mail.turn, "c1").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    admit(store, session, "again").await;
    let (lease, mail) = begin(store, session).await;
    assert_ne!(start_child(store, &lease, mail.turn, "c1").await, first);
}

async fn of_many_that_ask_for_the_same_child_one_makes_it(store: &Store) {
    let (_, _, lease, mail) = running(store).await;
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let (store, spawn) = (store.clone(), child(mail.turn, mail.jobs[0].message.unwrap(), "c1"));
        asking.spawn(async move { store.spawn(&lease, &spawn).await.unwrap() });
    }
    let started = asking.join_all().await;
    assert!(started.iter().all(|child| *child == started[0]), "{started:?}");
    let all = store.sessions(&SessionFilter { limit: 10, ..SessionFilter::default() }).await.unwrap();
    assert_eq!(all.len(), 2);
}

async fn only_the_turn_that_runs_starts_children(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    enqueue(store, session, "second").await;
    let spawn = child(mail.turn, mail.jobs[0].message.unwrap(), "c1");
    let stale = Lease { token: LeaseToken(lease.token.0 - 1), ..lease };
    assert_lost(&store.spawn(&stale, &spawn).await);
    let other = Spawn { turn: TurnId::generate(), ..spawn.clone() };
    assert_lost(&store.spawn(&lease, &other).await);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_lost(&store.spawn(&lease, &spawn).await);
    assert_eq!(store.session(spawn.session.id).await.unwrap(), None);
}

async fn a_child_is_an_orphan_once_the_turn_that_waits_for_it_has_ended(store: &Store) {
    let session = session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin_and_die(store, session).await;
    let asking = mail.jobs[0].message.unwrap();
    let waited_for = Spawn { wakes: false, ..child(mail.turn, asking, "c1") };
    let waited_for = store.spawn(&lease, &waited_for).await.unwrap().job;
    let wakes = Spawn { wakes: true, ..child(mail.turn, asking, "c2") };
    store.spawn(&lease, &wakes).await.unwrap();
    assert!(store.has_child(asking, "c1").await.unwrap());
    assert!(!store.has_child(asking, "c3").await.unwrap());

    // A turn that goes on still waits.
    assert_eq!(store.orphans(None, 10).await.unwrap(), []);
    store.reap(session, 3).await.unwrap().unwrap();
    assert_eq!(store.orphans(None, 10).await.unwrap(), []);
    // Cancelled before anybody went on with it, it does not.
    store.cancel_session(session).await.unwrap();
    assert_eq!(store.orphans(None, 10).await.unwrap(), [waited_for]);
    store.cancel_job(waited_for).await.unwrap();
    assert_eq!(store.orphans(None, 10).await.unwrap(), []);
}

async fn what_binds_a_child_is_stored_with_it_and_with_its_forks(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let rules = Some("[{\"deny\":[\"shell\"]}]".to_owned());
    let spawn = Spawn { rules_above: rules.clone(), ..child(mail.turn, mail.jobs[0].message.unwrap(), "c1") };
    let child = store.spawn(&lease, &spawn).await.unwrap().session;
    assert_eq!(store.rules_above(child).await.unwrap(), rules);
    assert_eq!(store.rules_above(session).await.unwrap(), None);

    let (lease, mail) = begin(store, child).await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let newest = store.session(child).await.unwrap().unwrap().last_message.unwrap();
    let fork = fork_at(newest);
    cut(store, child, Cut::Fork(fork.clone())).await;
    assert_eq!(store.rules_above(fork.into).await.unwrap(), rules);
}
