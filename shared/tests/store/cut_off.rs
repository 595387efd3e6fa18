//! Turns that are cut off in the middle: no model is ever shown a call without a result.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    InteractionKind, JobId, JobState, Lease, LeaseToken, Role, SessionId, TurnId, Usage,
};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{Meanwhile, NewInteraction, Outcome, Spawn, Store, TurnEnd, TurnOutcome};

use crate::support::*;

on_both_databases![
    a_turn_goes_on_where_it_was_cut_off,
    a_turn_that_is_handed_back_goes_on_where_it_was,
    a_turn_that_fails_at_last_leaves_no_call_open,
    a_turn_that_is_cancelled_or_fails_leaves_no_call_open,
    a_call_that_waits_for_a_person_is_asked_anew,
    a_call_that_has_a_child_is_asked_anew_and_finds_it,
    a_turn_that_was_cut_off_goes_on_before_what_waits,
    a_cancel_of_what_runs_next_leaves_what_waits_behind_it,
    a_turn_that_is_cancelled_before_it_goes_on_leaves_no_call_open,
    an_id_that_comes_twice_is_two_calls,
    a_cancel_that_outlives_its_worker_tells_what_was_used,
    a_turn_knows_its_last_calls,
];

const UNKNOWN: &str =
    "(outcome unknown: the worker was lost before this had a result; it may or may not have taken effect)";
const STOPPED: &str = "(interrupted: the worker was stopped for maintenance before this had a result; it may or may not have \
                       taken effect)";
const INTERRUPTED: &str = "(interrupted: the turn was ended before this had a result)";

/// Takes the turn up to two calls of which one has its result, and a message that came meanwhile before.
async fn half_way(store: &Store, session: SessionId, lease: &Lease, turn: TurnId) {
    store.append(lease, turn, &[calls("step 1", &["c1"]), result("c1", "one")]).await.unwrap();
    admit(store, session, "injected").await;
    store.drain_more(lease, turn, Meanwhile::Boundary).await.unwrap();
    store.append(lease, turn, &[calls("step 2", &["c2", "c3"]), result("c2", "two")]).await.unwrap();
}

/// What it is shown of a turn that was cancelled.
fn as_cancelled(mut told: Vec<(Role, String)>) -> Vec<(Role, String)> {
    told.push((Role::Assistant, "(This was cancelled before I could answer.)".to_owned()));
    told
}

/// What the model is shown then.
fn so_far(last: &str) -> Vec<(Role, String)> {
    said([
        (Role::User, "first"),
        (Role::Assistant, "step 1"),
        (Role::Tool, "one"),
        (Role::User, "injected"),
        (Role::Assistant, "step 2"),
        (Role::Tool, "two"),
        (Role::Tool, last),
    ])
    .to_vec()
}

async fn a_turn_goes_on_where_it_was_cut_off(store: &Store) {
    let session = session(store).await;
    let first = admit(store, session, "first").await;
    let (dead, mail) = begin_and_die(store, session).await;
    half_way(store, session, &dead, mail.turn).await;
    let late = admit(store, session, "late").await;

    let reaped = store.reap(session, 3).await.unwrap().unwrap();

    assert_eq!((reaped.turn, reaped.token, reaped.ended), (Some(mail.turn), LeaseToken(1), vec![]));
    assert_lost(&store.append(&dead, mail.turn, &[result("c3", "three")]).await);
    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, again.attempt, again.handed_back), (mail.turn, 2, false));
    assert_eq!(texts_of(&again), ["first", "injected"]);
    assert_eq!(told(store, session).await, so_far(UNKNOWN));
    let closed = store.context(session).await.unwrap().pop().unwrap();
    assert_eq!(closed.tool_call_id.as_deref(), Some("c3"));
    // What came after the crash is taken as ever, and comes last.
    store.append(&lease, again.turn, &[calls("step 3", &["c4"]), result("c4", "four")]).await.unwrap();
    let groups = store.drain_more(&lease, again.turn, Meanwhile::Boundary).await.unwrap();
    assert_eq!((groups.len(), groups[0].jobs[0].job), (1, late));
    assert_eq!(told(store, session).await.last().unwrap().1, "late");
    let finished = store.finish(&lease, answered(again.turn, "done")).await.unwrap();
    let injected = jobs_of(&again)[1];
    assert_eq!((ids(&finished.ended), finished.iterations), (vec![first, injected, late], 4));
}

async fn a_turn_that_is_handed_back_goes_on_where_it_was(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    half_way(store, session, &lease, mail.turn).await;
    store.hand_back(&lease).await.unwrap();
    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, again.attempt, again.handed_back), (mail.turn, 1, true));
    assert_eq!(told(store, session).await, so_far(STOPPED));
    // Where nothing is open, nothing is closed.
    store.hand_back(&lease).await.unwrap();
    assert_eq!(told(store, session).await, so_far(STOPPED));
}

/// How the model is told that the turn failed.
fn as_failed(mut told: Vec<(Role, String)>) -> Vec<(Role, String)> {
    told.push((Role::Assistant, "(I could not answer this: the turn failed.)".to_owned()));
    told
}

async fn a_turn_that_fails_at_last_leaves_no_call_open(store: &Store) {
    let session = session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin_and_die(store, session).await;
    half_way(store, session, &lease, mail.turn).await;
    let reaped = store.reap(session, 1).await.unwrap().unwrap();
    assert_eq!(reaped.ended.len(), 2);
    assert_eq!(told(store, session).await, as_failed(so_far(UNKNOWN)));
    assert_eq!(store.session(session).await.unwrap().unwrap().usage, times(2));
}

async fn a_turn_that_is_cancelled_or_fails_leaves_no_call_open(store: &Store) {
    let failed = || TurnOutcome::Failed(Problem::new(Code::Internal));
    for (outcome, granted) in
        [(TurnOutcome::Cancelled, false), (failed(), false), (TurnOutcome::Answered, true), (failed(), true)]
    {
        let (session, _, lease, mail) = running(store).await;
        half_way(store, session, &lease, mail.turn).await;
        if granted {
            store.cancel_session(session).await.unwrap();
        }
        let is_cancelled = granted || matches!(outcome, TurnOutcome::Cancelled);
        let end = TurnEnd { outcome, messages: Vec::new(), ..answered(mail.turn, "") };

        let finished = store.finish(&lease, end).await.unwrap();

        let expected = so_far(INTERRUPTED);
        let expected = if is_cancelled { as_cancelled(expected) } else { as_failed(expected) };
        assert_eq!(told(store, session).await, expected);
        let [closed] = &finished.messages[..] else { panic!("{finished:?}") };
        assert_eq!((closed.role, closed.tool_call_id.as_deref()), (Role::Tool, Some("c3")));
        let row = store.session(session).await.unwrap().unwrap();
        assert_eq!((row.message_count, row.last_message), (7, Some(closed.id)));
    }
    // A call in what the end itself brings is closed as well.
    let (session, _, lease, mail) = running(store).await;
    let messages = vec![calls("let me", &["c1"])];
    let end = TurnEnd { outcome: TurnOutcome::Cancelled, messages, ..answered(mail.turn, "") };
    let finished = store.finish(&lease, end).await.unwrap();
    let expected = [(Role::User, "first"), (Role::Assistant, "let me"), (Role::Tool, INTERRUPTED)];
    assert_eq!(told(store, session).await, as_cancelled(said(expected).to_vec()));
    let Outcome::Answered(result) = &finished.ended[0].outcome else { panic!("{finished:?}") };
    assert_eq!(result.message_id, Some(finished.messages[0].id));
}

/// A session whose turn asks whether it may do `c1`.
async fn asking(store: &Store) -> (SessionId, Lease, TurnId) {
    let (session, _, lease, mail) = running(store).await;
    store.append(&lease, mail.turn, &[calls("may I?", &["c1"])]).await.unwrap();
    let kind = InteractionKind::Permission;
    let question = NewInteraction { turn: mail.turn, kind, payload: serde_json::json!({}), open_ms: LONG_MS };
    store.ask(&lease, question).await.unwrap();
    (session, lease, mail.turn)
}

async fn a_call_that_waits_for_a_person_is_asked_anew(store: &Store) {
    let asked = [(Role::User, "first"), (Role::Assistant, "may I?")];
    let (session, lease, turn) = asking(store).await;
    assert_eq!(store.abandon(&lease, 3).await.unwrap().unwrap().ended, []);
    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, told(store, session).await), (turn, said(asked).to_vec()));
    // Without a question it may have been at work; and with the last try all ends.
    store.abandon(&lease, 3).await.unwrap().unwrap();
    assert_eq!(told(store, session).await[2].1, UNKNOWN);
    let (session, lease, _) = asking(store).await;
    assert_eq!(store.abandon(&lease, 1).await.unwrap().unwrap().ended.len(), 1);
    assert_eq!(told(store, session).await[2].1, UNKNOWN);
}

async fn a_call_that_has_a_child_is_asked_anew_and_finds_it(store: &Store) {
    for wakes in [false, true] {
        let (session, _, lease, mail) = running(store).await;
        let written = [calls("work on it", &["c1", "c2", "c3"]), result("c1", "one")];
        let asking = store.append(&lease, mail.turn, &written).await.unwrap()[0].id;
        let spawn = Spawn { wakes, ..child(mail.turn, asking, "c2") };
        let started = store.spawn(&lease, &spawn).await.unwrap();
        assert_eq!(store.abandon(&lease, 3).await.unwrap().unwrap().ended, []);
        let so_far = [(Role::User, "first"), (Role::Assistant, "work on it"), (Role::Tool, "one")];
        assert_eq!(told(store, session).await, said(so_far));

        let (lease, again) = begin(store, session).await;
        let anew = Spawn { turn: again.turn, ..spawn.clone() };
        assert_eq!(store.spawn(&lease, &anew).await.unwrap(), started);
        // With its result it is a call as any, and the one after it may have been at work.
        store.append(&lease, again.turn, &[result("c2", "two")]).await.unwrap();
        store.abandon(&lease, 3).await.unwrap().unwrap();
        let last: Vec<_> =
            told(store, session).await.into_iter().skip(3).map(|(_, content)| content).collect();
        assert_eq!(last, ["two", UNKNOWN]);
    }
    // What has a child stays, what ran before it does not; and with the last try all ends.
    let (session, _, lease, mail) = running(store).await;
    let asking = store.append(&lease, mail.turn, &[calls("work", &["c1", "c2"])]).await.unwrap()[0].id;
    store.spawn(&lease, &child(mail.turn, asking, "c2")).await.unwrap();
    store.abandon(&lease, 3).await.unwrap().unwrap();
    assert_eq!(told(store, session).await.len(), 3);
    let (lease, _) = begin(store, session).await;
    store.abandon(&lease, 2).await.unwrap().unwrap();
    // The last says that the turn failed.
    assert_eq!(told(store, session).await.len(), 5);
}

/// A session whose turn, of a chat and an injected message, was cut off while a chat of its own waited between the two.
async fn cut_off_around(store: &Store) -> (SessionId, TurnId, [JobId; 3]) {
    let (session, first, lease, mail) = running(store).await;
    let own = enqueue(store, session, "own").await;
    let injected = admit(store, session, "injected").await;
    store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();
    store.abandon(&lease, 3).await.unwrap().unwrap();
    (session, mail.turn, [first, own, injected])
}

async fn a_turn_that_was_cut_off_goes_on_before_what_waits(store: &Store) {
    let (session, turn, [first, own, injected]) = cut_off_around(store).await;
    assert_eq!(ids(&store.cancel_job(first).await.unwrap().1.ended), [first]);
    assert_eq!(rung_again(store, 0, 10).await[0].job, injected);

    let (lease, mail) = begin(store, session).await;

    assert_eq!((mail.turn, mail.attempt, jobs_of(&mail)), (turn, 2, vec![injected]));
    store.finish(&lease, answered(turn, "ok")).await.unwrap();
    assert_eq!(jobs_of(&store.drain(&lease).await.unwrap().unwrap()), [own]);
}

async fn a_cancel_of_what_runs_next_leaves_what_waits_behind_it(store: &Store) {
    let (session, _, [first, own, injected]) = cut_off_around(store).await;
    store.cancel_job(first).await.unwrap();

    let cancelled = store.cancel_session(session).await.unwrap();

    assert_eq!(ids(&cancelled.ended), [injected]);
    assert_eq!(jobs_of(&begin(store, session).await.1), [own]);
}

async fn a_turn_that_is_cancelled_before_it_goes_on_leaves_no_call_open(store: &Store) {
    let expected = [(Role::User, "first"), (Role::Assistant, "may I?"), (Role::Tool, INTERRUPTED)];
    for by_job in [false, true] {
        let (session, lease, _) = asking(store).await;
        let job = store.hand_back(&lease).await.unwrap().next.unwrap().job;
        let cancelled = if by_job {
            store.cancel_job(job).await.unwrap().1
        } else {
            store.cancel_session(session).await.unwrap()
        };
        assert_eq!(ids(&cancelled.ended), [job]);
        assert_eq!(told(store, session).await, as_cancelled(said(expected).to_vec()));
        let row = store.session(session).await.unwrap().unwrap();
        assert_eq!(row.message_count, 3);
        admit(store, session, "next").await;
        let (lease, mail) = begin(store, session).await;
        store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    }
}

async fn an_id_that_comes_twice_is_two_calls(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let written = [calls("a", &["c1"]), result("c1", "one"), calls("b", &["c1"])];
    store.append(&lease, mail.turn, &written).await.unwrap();
    store.abandon(&lease, 3).await.unwrap().unwrap();
    let shown: Vec<_> = told(store, session).await.into_iter().map(|(_, content)| content).collect();
    assert_eq!(shown, ["first", "a", "one", "b", UNKNOWN]);
}

async fn a_cancel_that_outlives_its_worker_tells_what_was_used(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    half_way(store, session, &lease, mail.turn).await;
    store.cancel_session(session).await.unwrap();
    let abandoned = store.abandon(&lease, 3).await.unwrap().unwrap();
    assert_eq!(abandoned.ended.len(), 2);
    for ended in &abandoned.ended {
        let Outcome::Answered(result) = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!((result.iterations, result.token_usage), (2, times(2).into()));
        assert_eq!((result.turn_id, result.cancelled), (Some(mail.turn), true));
    }
    assert_eq!(job(store, first).await.state, JobState::Cancelled);
    assert_eq!(told(store, session).await, as_cancelled(so_far(UNKNOWN)));

    // One that had called no model yet has no more to tell than that it ran.
    let (session, _, lease, _) = running(store).await;
    store.cancel_session(session).await.unwrap();
    let abandoned = store.abandon(&lease, 3).await.unwrap().unwrap();
    let Outcome::Answered(result) = &abandoned.ended[0].outcome else { panic!("{abandoned:?}") };
    assert_eq!((result.iterations, result.token_usage), (1, Usage::default().into()));
}

async fn a_turn_knows_its_last_calls(store: &Store) {
    let (_, _, lease, mail) = running(store).await;
    assert_eq!(store.calling(mail.turn).await.unwrap(), None);
    for id in ["c1", "c2"] {
        let stored = store.append(&lease, mail.turn, &[calls("look", &[id]), result(id, "x")]).await.unwrap();
        assert_eq!(store.calling(mail.turn).await.unwrap(), Some(stored[0].id));
    }
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(store.calling(TurnId::generate()).await.unwrap(), None);
}
