//! Wakes: a parent hears of its child's end, once, as long as the conversation still has the message that asked.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    CANCELLED_TEXT, JobKind, JobState, Lease, MessageId, Role, SessionId, SessionJob, SessionStatus,
};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{
    Ended, Mail, Meanwhile, MessagePage, Next, Spawn, Store, TurnEnd, TurnOutcome,
};
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    an_idle_parent_is_woken_by_its_childs_answer,
    a_parent_at_work_hears_of_it_before_it_ends,
    a_child_that_is_waited_for_wakes_nobody,
    a_child_wakes_its_parent_once,
    a_child_that_fails_wakes_its_parent,
    a_child_that_is_cancelled_wakes_its_parent,
    a_child_whose_workers_die_wakes_its_parent_at_last,
    a_parent_that_has_forgotten_is_not_woken,
    a_parent_that_is_gone_is_not_woken,
    wakes_are_merged_into_one_turn,
    many_children_that_end_at_once_each_wake_their_parent,
];

/// A child at work for a parent that has gone idle, and the message that asked for it.
async fn at_work(store: &Store) -> (SessionId, SessionJob, Lease, Mail) {
    let (parent, _, lease, mail) = running(store).await;
    let child = start_child(store, &lease, mail.turn, "c1").await;
    store.finish(&lease, answered(mail.turn, "it works on it")).await.unwrap();
    let (lease, mail) = begin(store, child.session).await;
    (parent, child, lease, mail)
}

/// What the parent is told by the only job that ended.
async fn told_by(store: &Store, parent: SessionId, ended: &[Ended]) -> String {
    let [Ended { wakes: Some(wakes), .. }] = ended else { panic!("{ended:?}") };
    assert_eq!((wakes.session, wakes.kind), (parent, JobKind::Wake));
    let row = job(store, wakes.job).await;
    assert_eq!((row.state, row.kind, row.session), (JobState::Pending, JobKind::Wake, parent));
    let (lease, mail) = begin(store, parent).await;
    assert_eq!(jobs_of(&mail), [wakes.job]);
    assert_eq!(store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next, Next::Idle);
    mail.jobs[0].text.clone()
}

async fn an_idle_parent_is_woken_by_its_childs_answer(store: &Store) {
    let (parent, child, lease, mail) = at_work(store).await;
    assert_eq!(store.session(parent).await.unwrap().unwrap().status, SessionStatus::Idle);

    let finished = store.finish(&lease, answered(mail.turn, "it is 42")).await.unwrap();

    assert_eq!((ids(&finished.ended), finished.next), (vec![child.job], Next::Idle));
    let row = store.session(parent).await.unwrap().unwrap();
    assert_eq!((row.status, row.message_count), (SessionStatus::Queued, 5));
    let page = MessagePage { before: Some(MessageId(i64::MAX)), limit: 1, ..MessagePage::default() };
    let message = store.messages(parent, page).await.unwrap().remove(0);
    assert_eq!((message.role, message.origin.as_str(), message.turn), (Role::User, "agent:child", None));
    assert_eq!(
        (message.job, row.last_message),
        (Some(finished.ended[0].wakes.unwrap().job), Some(message.id))
    );
    // It was rung for just now.
    assert_eq!(rung_again(store, LONG_MS, 10).await, []);
    let text = told_by(store, parent, &finished.ended).await;
    assert_eq!(text, message.content);
    assert!(text.contains("\"child\"") && text.contains(&child.session.to_string()), "{text}");
    assert!(text.ends_with("\nit is 42"), "{text}");
    assert_eq!(told(store, parent).await[4..], said([(Role::User, &text), (Role::Assistant, "ok")]));
}

async fn a_parent_at_work_hears_of_it_before_it_ends(store: &Store) {
    let (parent, first, lease, mail) = running(store).await;
    let started = start_child(store, &lease, mail.turn, "c1").await;
    let (child_lease, child_mail) = begin(store, started.session).await;
    let finished = store.finish(&child_lease, answered(child_mail.turn, "done")).await.unwrap();
    let wake = finished.ended[0].wakes.unwrap();
    assert_eq!(store.session(parent).await.unwrap().unwrap().status, SessionStatus::Running);

    let groups = store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();

    assert_eq!((groups.len(), groups[0].jobs[0].job), (1, wake.job));
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!((ids(&finished.ended), finished.next), (vec![first, wake.job], Next::Idle));
    assert!(finished.ended.iter().all(|ended| ended.wakes.is_none()));
}

async fn a_child_that_is_waited_for_wakes_nobody(store: &Store) {
    let (parent, _, lease, mail) = running(store).await;
    let spawn = Spawn { wakes: false, ..child(mail.turn, mail.jobs[0].message.unwrap(), "c1") };
    let started = store.spawn(&lease, &spawn).await.unwrap();
    let (child_lease, child_mail) = begin(store, started.session).await;
    let finished = store.finish(&child_lease, answered(child_mail.turn, "done")).await.unwrap();
    assert_eq!(finished.ended[0].wakes, None);
    assert_eq!(contents(store, parent).await, ["first"]);
    assert_eq!(store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next, Next::Idle);
}

async fn a_child_wakes_its_parent_once(db: &Database) {
    let store = &db.store;
    let (parent, child, lease, mail) = at_work(store).await;
    let end = answered(mail.turn, "done");
    let finished = store.finish(&lease, end.clone()).await.unwrap();
    assert!(finished.ended[0].wakes.is_some());
    assert_lost(&store.finish(&lease, end).await);
    assert_eq!(store.cancel_job(child.job).await.unwrap().1.ended, []);
    // Only what it was started for is told of: what others say to it is their own.
    admit(store, child.session, "and?").await;
    let (lease, mail) = begin(store, child.session).await;
    let finished = store.finish(&lease, answered(mail.turn, "well")).await.unwrap();
    assert_eq!(finished.ended[0].wakes, None);
    assert_eq!(db.number("SELECT count(*) FROM jobs WHERE kind = 'wake'").await, 1);
    assert_eq!(begin(store, parent).await.1.jobs.len(), 1);
}

async fn a_child_that_fails_wakes_its_parent(store: &Store) {
    let problem = Problem::with_detail(Code::Internal, "the provider said no");
    for (problem, said) in
        [(problem, "the provider said no"), (Problem::new(Code::Internal), Code::Internal.title())]
    {
        let (parent, _, lease, mail) = at_work(store).await;
        let outcome = TurnOutcome::Failed(problem);
        let end = TurnEnd { outcome, messages: Vec::new(), ..answered(mail.turn, "") };
        let finished = store.finish(&lease, end).await.unwrap();
        let text = told_by(store, parent, &finished.ended).await;
        assert!(text.ends_with(&format!("\n(failed: {said})")), "{text}");
    }
}

async fn a_child_that_is_cancelled_wakes_its_parent(store: &Store) {
    for claimed in [true, false] {
        let (parent, child, lease, mail) = at_work(store).await;
        if claimed {
            assert_eq!(store.cancel_session(child.session).await.unwrap().ended, []);
            let finished = store.finish(&lease, answered(mail.turn, "late")).await.unwrap();
            assert!(told_by(store, parent, &finished.ended).await.ends_with(CANCELLED_TEXT));
        } else {
            store.hand_back(&lease).await.unwrap();
            let cancelled = store.cancel_all(child.session).await.unwrap();
            assert!(told_by(store, parent, &cancelled.ended).await.ends_with(CANCELLED_TEXT));
        }
    }
}

async fn a_child_whose_workers_die_wakes_its_parent_at_last(store: &Store) {
    for cancelled in [false, true] {
        let (parent, child, lease, _) = at_work(store).await;
        if cancelled {
            store.cancel_job(child.job).await.unwrap();
        } else {
            assert_eq!(store.abandon(&lease, 2).await.unwrap().unwrap().ended, []);
            assert_eq!(store.session(parent).await.unwrap().unwrap().status, SessionStatus::Idle);
            begin_and_die(store, child.session).await;
        }
        let reaped = if cancelled {
            store.abandon(&lease, 2).await.unwrap().unwrap()
        } else {
            store.reap(child.session, 2).await.unwrap().unwrap()
        };
        let text = told_by(store, parent, &reaped.ended).await;
        let said =
            if cancelled { CANCELLED_TEXT } else { "(failed: the worker died 2 times while it ran this)" };
        assert!(text.ends_with(said), "{text}");
    }
}

async fn a_parent_that_has_forgotten_is_not_woken(db: &Database) {
    let store = &db.store;
    let (parent, _, lease, mail) = at_work(store).await;
    db.execute("DELETE FROM messages WHERE tool_calls IS NOT NULL").await;
    db.execute("UPDATE sessions SET message_count = message_count - 1 WHERE parent_session_id IS NULL").await;

    let finished = store.finish(&lease, answered(mail.turn, "done")).await.unwrap();

    assert_eq!((finished.ended.len(), finished.ended[0].wakes), (1, None));
    assert_eq!(contents(store, parent).await, ["first", "started", "it works on it"]);
    assert_eq!(store.session(parent).await.unwrap().unwrap().status, SessionStatus::Idle);
}

async fn a_parent_that_is_gone_is_not_woken(store: &Store) {
    let (parent, child, lease, mail) = at_work(store).await;
    store.delete_session(parent).await.unwrap();
    let finished = store.finish(&lease, answered(mail.turn, "done")).await.unwrap();
    assert_eq!((ids(&finished.ended), finished.ended[0].wakes), (vec![child.job], None));
    assert_eq!(store.session(parent).await.unwrap(), None);
    assert_eq!(answer(&finished.ended[0].outcome), ("done", false));
}

async fn wakes_are_merged_into_one_turn(store: &Store) {
    let (parent, _, lease, mut mail) = running(store).await;
    let mut children = Vec::new();
    for call in ["c1", "c2", "c3"] {
        children.push(start_child(store, &lease, mail.turn, call).await.session);
    }
    for (n, child) in children.iter().enumerate() {
        if n == 2 {
            admit(store, parent, "injected").await;
        }
        let (lease, mail) = begin(store, *child).await;
        store.finish(&lease, answered(mail.turn, "done")).await.unwrap();
    }
    let mut turns = Vec::new();
    while store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next == Next::Turn {
        mail = store.drain(&lease).await.unwrap().unwrap();
        turns.push(mail.jobs.iter().map(|job| job.kind).collect::<Vec<_>>());
    }
    assert_eq!(turns, [vec![JobKind::Wake; 2], vec![JobKind::Inject], vec![JobKind::Wake]]);
}

async fn many_children_that_end_at_once_each_wake_their_parent(store: &Store) {
    let (parent, _, lease, mail) = running(store).await;
    let mut children = JoinSet::new();
    for n in 0..12 {
        let child = start_child(store, &lease, mail.turn, &n.to_string()).await;
        let (lease, mail) = begin(store, child.session).await;
        let store = store.clone();
        children.spawn(async move {
            let finished = store.finish(&lease, answered(mail.turn, "done")).await.unwrap();
            finished.ended[0].wakes.unwrap().job
        });
    }
    // The parent ends meanwhile, and goes on with what has come.
    let mut woken = Vec::new();
    let mut next = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next;
    let mut ringing = children.join_all().await;
    let mut held = (next == Next::Turn).then_some(lease);
    while woken.len() < ringing.len() {
        let (lease, mail) = match held {
            Some(lease) => (lease, store.drain(&lease).await.unwrap().unwrap()),
            None => begin(store, parent).await,
        };
        woken.extend(jobs_of(&mail));
        next = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap().next;
        held = (next == Next::Turn).then_some(lease);
    }
    woken.sort();
    ringing.sort();
    assert_eq!((woken, next), (ringing, Next::Idle));
}
