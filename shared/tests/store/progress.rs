//! What a turn brings before it ends: stored and counted as it happens.

use roundhouse_shared::domain::{JobKind, JobState, Lease, LeaseToken, Role, TurnId, Usage};
use roundhouse_shared::store::{
    Meanwhile, MessagePage, Next, Outcome, Store, Together, TurnEnd, TurnOutcome, WrittenMessage,
};

use crate::support::*;

on_both_databases![
    what_is_appended_is_stored_and_counted_at_once,
    nothing_is_appended_is_nothing_counted,
    what_was_used_for_nothing_is_counted_and_is_no_iteration,
    only_the_turn_that_runs_is_appended_to,
    an_answer_tells_of_all_that_its_turn_used,
    a_message_sent_meanwhile_reaches_the_turn_that_runs,
    messages_that_wait_together_are_one_and_wakes_are_another,
    a_turn_takes_no_mail_that_has_a_turn_of_its_own,
    a_cancelled_turn_takes_no_more,
    only_the_turn_that_runs_takes_more,
    mail_behind_two_hundred_others_reaches_the_turn_that_runs,
    a_message_that_races_with_the_end_is_taken_once,
];

async fn what_is_appended_is_stored_and_counted_at_once(db: &Database) {
    let store = &db.store;
    let (session, _, lease, mail) = running(store).await;
    let thought = WrittenMessage {
        thinking: Some("hm".to_owned()),
        thinking_tokens: 7,
        model: Some("deep".to_owned()),
        ..calls("let me look", &["c1", "c2"])
    };
    let written = [thought.clone(), result("c1", "a"), result("c2", "b")];

    let stored = store.append(&lease, mail.turn, &written).await.unwrap();

    let page = MessagePage { limit: 10, ..MessagePage::default() };
    assert_eq!(store.messages(session, page).await.unwrap()[1..], stored);
    let [by_model, tool, _] = &stored[..] else { panic!("{stored:?}") };
    assert_eq!((by_model.role, by_model.content.as_str()), (Role::Assistant, "let me look"));
    assert_eq!((&by_model.tool_calls, &by_model.tool_call_id), (&thought.tool_calls, &None));
    assert_eq!((by_model.usage, by_model.thinking_tokens), (Some(USAGE), Some(7)));
    assert_eq!((by_model.thinking.as_deref(), by_model.model.as_deref()), (Some("hm"), Some("deep")));
    assert_eq!(
        (tool.role, tool.content.as_str(), tool.tool_call_id.as_deref()),
        (Role::Tool, "a", Some("c1"))
    );
    assert_eq!((tool.usage, tool.thinking_tokens, &tool.tool_calls), (None, None, &None));
    assert!(stored.is_sorted_by(|a, b| a.id < b.id && a.seq < b.seq));
    for message in &stored {
        assert_eq!((message.turn, message.origin.as_str()), (Some(mail.turn), "engine"));
        assert!(!message.cancelled && message.job.is_none());
    }
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.usage, row.message_count, row.last_message), (USAGE, 4, Some(stored[2].id)));
    assert_eq!(db.number("SELECT iterations FROM turns").await, 1);
    assert_eq!(db.number("SELECT output_tokens FROM turns").await, 20);
    store.append(&lease, mail.turn, &[calls("and there", &["c3"])]).await.unwrap();
    assert_eq!(db.number("SELECT iterations FROM turns").await, 2);
    assert_eq!(store.session(session).await.unwrap().unwrap().usage, times(2));
    let context = store.context(session).await.unwrap();
    assert_eq!((&context[1].tool_calls, &context[2].tool_call_id), (&thought.tool_calls, &tool.tool_call_id));
}

async fn nothing_is_appended_is_nothing_counted(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let before = store.session(session).await.unwrap().unwrap();
    assert_eq!(store.append(&lease, mail.turn, &[]).await.unwrap(), []);
    let after = store.session(session).await.unwrap().unwrap();
    assert_eq!((after.message_count, after.last_message), (before.message_count, before.last_message));
}

async fn what_was_used_for_nothing_is_counted_and_is_no_iteration(db: &Database) {
    let store = &db.store;
    let (session, _, lease, mail) = running(store).await;
    let stale = Lease { token: LeaseToken(lease.token.0 - 1), ..lease };

    assert_lost(&store.spend(&stale, mail.turn, USAGE).await);
    assert_lost(&store.spend(&lease, TurnId::generate(), USAGE).await);
    store.spend(&lease, mail.turn, USAGE).await.unwrap();

    assert_eq!(store.session(session).await.unwrap().unwrap().usage, USAGE);
    assert_eq!(db.number("SELECT iterations FROM turns").await, 0);
    assert_eq!(db.number("SELECT output_tokens FROM turns").await, 20);
}

async fn only_the_turn_that_runs_is_appended_to(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    enqueue(store, session, "second").await;
    let written = [calls("look", &["c1"])];
    let stale = Lease { token: LeaseToken(lease.token.0 - 1), ..lease };
    let before = store.session(session).await.unwrap();
    assert_lost(&store.append(&stale, mail.turn, &written).await);
    assert_lost(&store.append(&lease, TurnId::generate(), &written).await);
    assert_eq!(store.session(session).await.unwrap(), before);

    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let before = store.session(session).await.unwrap();
    assert_lost(&store.append(&lease, mail.turn, &written).await);
    let next = store.drain(&lease).await.unwrap().unwrap();
    assert_lost(&store.append(&lease, mail.turn, &written).await);
    assert_eq!(store.session(session).await.unwrap().unwrap().usage, before.unwrap().usage);
    assert_eq!(contents(store, session).await, ["first", "second", "ok"]);
    store.append(&lease, next.turn, &written).await.unwrap();
}

/// Three calls in an attempt that was cut off, two in the next, and the last with the end.
async fn an_answer_tells_of_all_that_its_turn_used(store: &Store) {
    let session = session(store).await;
    for turn in 1..=2 {
        admit(store, session, "first").await;
        let (lease, mail) = begin_and_die(store, session).await;
        let unpriced = WrittenMessage { usage: Usage { cost_nanos: None, ..USAGE }, ..calls("a", &["c1"]) };
        for written in [unpriced, calls("b", &["c1"]), calls("c", &["c1"])] {
            store.append(&lease, mail.turn, &[written, result("c1", "ok")]).await.unwrap();
        }
        store.reap(session, 3).await.unwrap().unwrap();
        let (lease, mail) = begin(store, session).await;
        for _ in 0..2 {
            store.append(&lease, mail.turn, &[calls("d", &["c1"]), result("c1", "ok")]).await.unwrap();
        }
        let end = TurnEnd { usage: USAGE, ..answered(mail.turn, "done") };

        let finished = store.finish(&lease, end).await.unwrap();

        let used = Usage { cost_nanos: times(5).cost_nanos, ..times(6) };
        assert_eq!((finished.iterations, finished.usage), (6, used));
        let Outcome::Answered(result) = &finished.ended[0].outcome else { panic!("{finished:?}") };
        assert_eq!((result.content.as_str(), result.iterations), ("done", 6));
        assert_eq!((result.token_usage, result.message_id), (used.into(), Some(finished.messages[0].id)));
        let sum = store.session(session).await.unwrap().unwrap().usage;
        assert_eq!(sum, Usage { cost_nanos: times(5 * turn).cost_nanos, ..times(6 * turn) });
    }
}

fn taken(groups: &[Together]) -> Vec<Vec<&str>> {
    groups.iter().map(|group| group.jobs.iter().map(|job| job.text.as_str()).collect()).collect()
}

async fn a_message_sent_meanwhile_reaches_the_turn_that_runs(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    assert!(store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap().is_empty());
    store.append(&lease, mail.turn, &[calls("let me look", &["c1"])]).await.unwrap();
    let injected = admit(store, session, "look there").await;
    store.append(&lease, mail.turn, &[result("c1", "nothing")]).await.unwrap();

    let groups = store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();

    assert_eq!(taken(&groups), [["look there"]]);
    let row = job(store, injected).await;
    assert_eq!((row.state, row.turn, row.attempt), (JobState::Claimed, Some(mail.turn), 1));
    assert_eq!((row.worker, groups[0].jobs[0].message), (Some(lease.worker), row.message));
    assert!(store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap().is_empty());
    // It came before the tool's word, and the model has it after.
    assert_eq!(contents(store, session).await, ["first", "let me look", "look there", "nothing"]);
    let expected = [
        (Role::User, "first"),
        (Role::Assistant, "let me look"),
        (Role::Tool, "nothing"),
        (Role::User, "look there"),
    ];
    assert_eq!(told(store, session).await, said(expected));
    assert_eq!(store.context(session).await.unwrap()[3].consumed_seq, groups[0].consumed_seq);
    let finished = store.finish(&lease, answered(mail.turn, "there it is")).await.unwrap();
    assert_eq!((ids(&finished.ended), finished.next), (vec![first, injected], Next::Idle));
    for ended in &finished.ended {
        let Outcome::Answered(result) = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!((result.content.as_str(), result.injected), ("there it is", ended.job == injected));
    }
}

async fn messages_that_wait_together_are_one_and_wakes_are_another(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let mut children = Vec::new();
    for call in ["c1", "c2", "c3"] {
        children.push(start_child(store, &lease, mail.turn, call).await.session);
    }
    let answer = async |n: usize| {
        let (lease, mail) = begin(store, children[n]).await;
        store.finish(&lease, answered(mail.turn, &n.to_string())).await.unwrap();
    };
    admit(store, session, "a").await;
    enqueue(store, session, "not this").await;
    admit(store, session, "b").await;
    answer(0).await;
    answer(1).await;
    admit(store, session, "c").await;
    answer(2).await;

    let groups = store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();

    let kinds: Vec<Vec<_>> =
        groups.iter().map(|group| group.jobs.iter().map(|job| job.kind).collect()).collect();
    let (inject, wake) = (JobKind::Inject, JobKind::Wake);
    assert_eq!(kinds, [vec![inject, inject], vec![wake, wake], vec![inject], vec![wake]]);
    assert_eq!((taken(&groups)[0].as_slice(), taken(&groups)[2].as_slice()), (&["a", "b"][..], &["c"][..]));
    assert!(taken(&groups)[3][0].ends_with("\n2"));
    assert!(groups.is_sorted_by(|a, b| a.consumed_seq < b.consumed_seq));
    let context = store.context(session).await.unwrap();
    let last: Vec<_> = context[7..].iter().map(|entry| (entry.role, entry.consumed_seq)).collect();
    assert_eq!(last, groups.iter().map(|group| (Role::User, group.consumed_seq)).collect::<Vec<_>>());
    assert_eq!(context[7].content, "a\n\nb");
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!((finished.ended.len(), finished.next), (7, Next::Turn));
    assert_eq!(texts_of(&store.drain(&lease).await.unwrap().unwrap()), ["not this"]);
}

async fn a_turn_takes_no_mail_that_has_a_turn_of_its_own(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let waiting = enqueue(store, session, "second").await;
    assert!(store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap().is_empty());
    let row = job(store, waiting).await;
    assert_eq!((row.state, row.turn, row.attempt), (JobState::Pending, None, 0));

    // Nor what another turn had that was cut off: it goes on with that.
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();
    let late = admit(store, session, "late").await;
    enqueue(store, session, "third").await;
    store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();
    store.hand_back(&lease).await.unwrap();
    store.cancel_job(waiting).await.unwrap();
    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, jobs_of(&again)), (mail.turn, vec![late]));
    store.finish(&lease, answered(again.turn, "ok")).await.unwrap();
}

async fn a_cancelled_turn_takes_no_more(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    store.cancel_session(session).await.unwrap();
    let late = admit(store, session, "and now?").await;
    assert!(store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap().is_empty());
    assert_eq!(job(store, late).await.state, JobState::Pending);
    let end = TurnEnd { outcome: TurnOutcome::Cancelled, ..answered(mail.turn, "half") };
    assert_eq!(ids(&store.finish(&lease, end).await.unwrap().ended), [first]);
    assert_eq!(jobs_of(&store.drain(&lease).await.unwrap().unwrap()), [late]);
}

async fn only_the_turn_that_runs_takes_more(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let injected = admit(store, session, "second").await;
    let stale = Lease { token: LeaseToken(lease.token.0 - 1), ..lease };
    assert_lost(&store.drain_more(&stale, mail.turn, Meanwhile::Boundary).await);
    assert_lost(&store.drain_more(&lease, TurnId::generate(), Meanwhile::Boundary).await);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_lost(&store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await);
    assert_eq!(job(store, injected).await.state, JobState::Pending);
}

async fn mail_behind_two_hundred_others_reaches_the_turn_that_runs(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    for n in 0..200 {
        enqueue(store, session, &n.to_string()).await;
    }
    admit(store, session, "stop that").await;
    assert_eq!(
        taken(&store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap()),
        [["stop that"]]
    );
    // And it stays with its turn, though others were before it.
    store.hand_back(&lease).await.unwrap();
    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, texts_of(&again)), (mail.turn, vec!["first", "stop that"]));
    store.finish(&lease, answered(again.turn, "ok")).await.unwrap();
}

async fn a_message_that_races_with_the_end_is_taken_once(store: &Store) {
    for _ in 0..30 {
        let (session, first, lease, mail) = running(store).await;
        let admission = message(session, "racing");
        let (groups, admitted) =
            tokio::join!(store.drain_more(&lease, mail.turn, Meanwhile::Boundary), store.admit(&admission));
        let mut taken: Vec<_> =
            groups.unwrap().into_iter().flat_map(|group| group.jobs).map(|job| job.job).collect();
        admitted.unwrap();
        let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
        taken.insert(0, first);
        assert_eq!(ids(&finished.ended), taken);
        if finished.next == Next::Turn {
            assert_eq!(jobs_of(&store.drain(&lease).await.unwrap().unwrap()), [admission.job]);
        } else {
            assert_eq!(taken, [first, admission.job]);
        }
    }
}
