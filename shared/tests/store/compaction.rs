//! Compaction: a summary stands for what came before it.

use roundhouse_shared::domain::{Lease, LeaseToken, Role, SessionId, TurnId};
use roundhouse_shared::store::{Meanwhile, MessagePage, Store, TurnEnd};

use crate::support::*;

on_both_databases![
    a_summary_stands_for_what_came_before,
    a_second_summary_stands_for_the_first,
    a_turn_can_be_summed_up_while_it_runs,
    a_summary_is_paid_by_its_turn_and_no_iteration,
    only_the_turn_that_runs_is_summed_up,
];

/// A session with so many turns behind it, in one that runs.
async fn after(store: &Store, turns: usize) -> (SessionId, Lease, TurnId) {
    let session = session(store).await;
    for n in 1..=turns {
        admit(store, session, &format!("question {n}")).await;
        let (lease, mail) = begin(store, session).await;
        store.finish(&lease, answered(mail.turn, &format!("answer {n}"))).await.unwrap();
    }
    admit(store, session, "now").await;
    let (lease, mail) = begin(store, session).await;
    (session, lease, mail.turn)
}

async fn a_summary_stands_for_what_came_before(store: &Store) {
    let (session, lease, turn) = after(store, 3).await;
    let up_to = store.context(session).await.unwrap()[3].consumed_seq;

    let summary = store.compact(&lease, turn, "we talked", up_to, USAGE).await.unwrap();

    let expected = [
        (Role::System, "we talked"),
        (Role::User, "question 3"),
        (Role::Assistant, "answer 3"),
        (Role::User, "now"),
    ];
    assert_eq!(told(store, session).await, said(expected));
    assert_eq!((summary.role, summary.turn, summary.usage), (Role::System, Some(turn), Some(USAGE)));
    assert_eq!((summary.origin.as_str(), summary.job), ("compaction", None));
    // People still see everything.
    let page = MessagePage { limit: 10, ..MessagePage::default() };
    let all = store.messages(session, page).await.unwrap();
    assert_eq!((all.len(), all.last()), (8, Some(&summary)));
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.compact_size, row.message_count, row.last_message), (4, 8, Some(summary.id)));
    store.finish(&lease, answered(turn, "later")).await.unwrap();
    admit(store, session, "again").await;
    begin(store, session).await;
    let last = told(store, session).await;
    assert_eq!(last[..4], said(expected));
    assert_eq!(last[4..], said([(Role::Assistant, "later"), (Role::User, "again")]));
}

async fn a_second_summary_stands_for_the_first(store: &Store) {
    let (session, lease, turn) = after(store, 2).await;
    let up_to = store.context(session).await.unwrap()[1].consumed_seq;
    store.compact(&lease, turn, "first summary", up_to, USAGE).await.unwrap();
    let context = store.context(session).await.unwrap();
    assert_eq!((context.len(), context[0].consumed_seq), (4, up_to));

    store.compact(&lease, turn, "second summary", context[2].consumed_seq, USAGE).await.unwrap();

    assert_eq!(told(store, session).await, said([(Role::System, "second summary"), (Role::User, "now")]));
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.compact_size, row.message_count), (4, 7));
}

async fn a_turn_can_be_summed_up_while_it_runs(store: &Store) {
    let (session, lease, turn) = after(store, 1).await;
    let written = [calls("look", &["c1"]), result("c1", "a lot")];
    store.append(&lease, turn, &written).await.unwrap();
    let up_to = store.context(session).await.unwrap().last().unwrap().consumed_seq;
    store.compact(&lease, turn, "it looked", up_to, USAGE).await.unwrap();
    assert_eq!(told(store, session).await, said([(Role::System, "it looked")]));
    store.append(&lease, turn, &[calls("look again", &["c2"])]).await.unwrap();
    admit(store, session, "well?").await;
    store.append(&lease, turn, &[result("c2", "more")]).await.unwrap();
    store.drain_more(&lease, turn, Meanwhile::Boundary).await.unwrap();

    // A summary is not lost with its worker.
    store.abandon(&lease, 3).await.unwrap().unwrap();
    let (_, mail) = begin(store, session).await;

    assert_eq!(mail.turn, turn);
    let expected = [
        (Role::System, "it looked"),
        (Role::Assistant, "look again"),
        (Role::Tool, "more"),
        (Role::User, "well?"),
    ];
    assert_eq!(told(store, session).await, said(expected));
    assert_eq!(store.session(session).await.unwrap().unwrap().compact_size, 5);
}

async fn a_summary_is_paid_by_its_turn_and_no_iteration(store: &Store) {
    let (session, lease, turn) = after(store, 1).await;
    let up_to = store.context(session).await.unwrap()[1].consumed_seq;
    store.compact(&lease, turn, "s", up_to, USAGE).await.unwrap();
    assert_eq!(store.session(session).await.unwrap().unwrap().usage, USAGE);
    let end = TurnEnd { usage: USAGE, ..answered(turn, "ok") };
    let finished = store.finish(&lease, end).await.unwrap();
    assert_eq!((finished.iterations, finished.usage), (1, times(2)));
    assert_eq!(tokens(&finished.ended[0].outcome), times(2).into());
    assert_eq!(store.session(session).await.unwrap().unwrap().usage, times(2));
}

async fn only_the_turn_that_runs_is_summed_up(store: &Store) {
    let (session, lease, turn) = after(store, 1).await;
    let before = store.session(session).await.unwrap();
    let stale = Lease { token: LeaseToken(lease.token.0 - 1), ..lease };
    assert_lost(&store.compact(&stale, turn, "s", 1, USAGE).await);
    assert_lost(&store.compact(&lease, TurnId::generate(), "s", 1, USAGE).await);
    assert_eq!(store.session(session).await.unwrap(), before);
    store.finish(&lease, answered(turn, "ok")).await.unwrap();
    assert_lost(&store.compact(&lease, turn, "s", 1, USAGE).await);
    assert_eq!(told(store, session).await.len(), 4);
}
