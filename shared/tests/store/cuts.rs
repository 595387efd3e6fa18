//! Trim, reset and the deletion of one message: what stays, and what the model is shown of it.

use roundhouse_shared::domain::{
    ContextSource, Cut, EngineKind, JobState, MessageId, Role, SessionId, SessionStatus, Usage,
};
use roundhouse_shared::store::{Meanwhile, Store, TurnEnd};

use crate::support::*;

on_both_databases![
    what_comes_after_the_point_is_gone,
    a_cut_after_the_last_message_deletes_nothing,
    without_a_word_of_the_model_the_conversation_begins_anew,
    a_reset_zeroes_the_session_and_keeps_the_ledger,
    a_question_without_its_answer_is_shown_again,
    a_cut_between_a_call_and_its_result_says_so,
    a_cut_at_a_message_that_came_in_the_middle_of_a_turn,
    a_cut_before_a_summary_drops_it,
    a_cut_after_a_summary_keeps_it,
    a_child_of_what_is_gone_wakes_nobody,
    one_message_is_deleted,
    a_message_that_is_deleted_leaves_no_call_without_a_result,
    a_session_can_be_cut_again_and_again,
];

fn trim(at: MessageId) -> Cut {
    Cut::Trim { at }
}

async fn shown(store: &Store, session: SessionId) -> Vec<String> {
    told(store, session).await.into_iter().map(|(_, content)| content).collect()
}

async fn what_comes_after_the_point_is_gone(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 3).await;
    let before = store.session(session).await.unwrap().unwrap();
    let at = id_of(store, session, "a2").await;

    let result = cut(store, session, trim(at)).await;

    assert_eq!((result.session_id, result.deleted), (session, 2));
    assert_eq!((result.claude_forked, result.engine_forked), (false, false));
    assert_eq!(result.context_source, ContextSource::Replay);
    assert_eq!(contents(store, session).await, ["q1", "a1", "q2", "a2"]);
    assert_eq!(shown(store, session).await, ["q1", "a1", "q2", "a2"]);
    let after = store.session(session).await.unwrap().unwrap();
    assert_eq!((after.message_count, after.last_message), (4, Some(at)));
    assert_eq!(after.history_version, before.history_version + 1);
    // What was spent is spent.
    assert_eq!((after.usage, after.status), (times(3), SessionStatus::Idle));
    turn(store, session, "q4", "a4").await;
    assert_eq!(shown(store, session).await, ["q1", "a1", "q2", "a2", "q4", "a4"]);
}

async fn a_cut_after_the_last_message_deletes_nothing(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 1).await;
    let at = id_of(store, session, "a1").await;
    let result = cut(store, session, trim(at)).await;
    assert_eq!((result.deleted, result.context_source), (0, ContextSource::Replay));
    assert_eq!(shown(store, session).await, ["q1", "a1"]);
}

async fn without_a_word_of_the_model_the_conversation_begins_anew(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let at = id_of(store, session, "q1").await;
    let result = cut(store, session, trim(at)).await;
    assert_eq!((result.deleted, result.context_source), (3, ContextSource::Empty));
    assert_eq!(contents(store, session).await, ["q1"]);
    turn(store, session, "q3", "a3").await;
    assert_eq!(shown(store, session).await, ["q3", "a3"]);
    assert_eq!(contents(store, session).await, ["q1", "q3", "a3"]);
}

async fn a_reset_zeroes_the_session_and_keeps_the_ledger(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let result = cut(store, session, Cut::Reset).await;
    assert_eq!((result.deleted, result.context_source), (4, ContextSource::Empty));
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.message_count, row.last_message, row.compact_size), (0, None, 0));
    assert_eq!((row.usage, row.history_version), (Usage::default(), 1));
    assert!(shown(store, session).await.is_empty());
    turn(store, session, "q3", "a3").await;
    assert_eq!(store.session(session).await.unwrap().unwrap().usage, times(1));
    let again = cut(store, session, Cut::Reset).await;
    assert_eq!(again.deleted, 2);
}

async fn a_question_without_its_answer_is_shown_again(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let at = id_of(store, session, "q2").await;
    assert_eq!(cut(store, session, trim(at)).await.deleted, 1);
    turn(store, session, "q3", "a3").await;
    assert_eq!(shown(store, session).await, ["q1", "a1", "q2", "q3", "a3"]);
}

const INTERRUPTED: &str = "(interrupted: the turn was ended before this had a result)";

/// A session with a turn that called two tools, and in the middle of which a message came.
pub(crate) async fn worked(store: &Store, engine: EngineKind) -> SessionId {
    let session = talked(store, engine, 1).await;
    admit(store, session, "q2").await;
    let (lease, mail) = begin(store, session).await;
    let turn = mail.turn;
    store.append(&lease, turn, &[calls("look", &["c1", "c2"])]).await.unwrap();
    store.append(&lease, turn, &[result("c1", "one")]).await.unwrap();
    admit(store, session, "injected").await;
    store.append(&lease, turn, &[result("c2", "two")]).await.unwrap();
    store.drain_more(&lease, turn, Meanwhile::Boundary).await.unwrap();
    store.append(&lease, turn, &[calls("look again", &["c1"]), result("c1", "three")]).await.unwrap();
    let end = TurnEnd { usage: USAGE, ..answered(turn, "a2") };
    store.finish(&lease, end).await.unwrap();
    let expected = ["q1", "a1", "q2", "look", "one", "two", "injected", "look again", "three", "a2"];
    assert_eq!(shown(store, session).await, expected);
    session
}

async fn a_cut_between_a_call_and_its_result_says_so(store: &Store) {
    for (at, deleted, left) in [
        ("look", 4, vec!["q1", "a1", "q2", "look", INTERRUPTED, INTERRUPTED]),
        ("one", 4, vec!["q1", "a1", "q2", "look", "one", INTERRUPTED]),
        (
            "look again",
            1,
            vec!["q1", "a1", "q2", "look", "one", "two", "injected", "look again", INTERRUPTED],
        ),
        ("three", 1, vec!["q1", "a1", "q2", "look", "one", "two", "injected", "look again", "three"]),
    ] {
        let session = worked(store, EngineKind::OpenAi).await;
        let at = id_of(store, session, at).await;
        assert_eq!(cut(store, session, trim(at)).await.deleted, deleted, "{left:?}");
        assert_eq!(shown(store, session).await, left);
        // Again, at the same point: nothing more goes.
        assert_eq!(cut(store, session, trim(at)).await.deleted, 0);
        assert_eq!(shown(store, session).await, left);
        turn(store, session, "q3", "a3").await;
        // And where the calls go, so does what was said of them.
        let at = id_of(store, session, "a1").await;
        cut(store, session, trim(at)).await;
        assert_eq!(contents(store, session).await, ["q1", "a1"]);
    }
}

async fn a_cut_at_a_message_that_came_in_the_middle_of_a_turn(store: &Store) {
    let session = worked(store, EngineKind::OpenAi).await;
    let at = id_of(store, session, "injected").await;
    cut(store, session, trim(at)).await;
    // It arrived before a result, but the model is shown it after.
    assert_eq!(contents(store, session).await, ["q1", "a1", "q2", "look", "one", "injected", INTERRUPTED]);
    assert_eq!(shown(store, session).await, ["q1", "a1", "q2", "look", "one", INTERRUPTED, "injected"]);
}

/// A session with three turns, of which a summary stands for the first two, and a fourth after it.
async fn summed_up(store: &Store) -> SessionId {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let up_to = store.context(session).await.unwrap()[3].consumed_seq;
    admit(store, session, "q3").await;
    let (lease, mail) = begin(store, session).await;
    store.compact(&lease, mail.turn, "we talked", up_to, USAGE).await.unwrap();
    store.finish(&lease, answered(mail.turn, "a3")).await.unwrap();
    turn(store, session, "q4", "a4").await;
    assert_eq!(shown(store, session).await, ["we talked", "q3", "a3", "q4", "a4"]);
    session
}

async fn a_cut_before_a_summary_drops_it(store: &Store) {
    for (at, left) in [("a1", vec!["q1", "a1"]), ("a2", vec!["q1", "a1", "q2", "a2"])] {
        let session = summed_up(store).await;
        let at = id_of(store, session, at).await;
        cut(store, session, trim(at)).await;
        assert_eq!(shown(store, session).await, left);
        assert_eq!(contents(store, session).await, left);
        assert_eq!(store.session(session).await.unwrap().unwrap().compact_size, 0);
    }
}

async fn a_cut_after_a_summary_keeps_it(store: &Store) {
    let session = summed_up(store).await;
    let at = id_of(store, session, "a3").await;
    cut(store, session, trim(at)).await;
    assert_eq!(shown(store, session).await, ["we talked", "q3", "a3"]);
    assert_eq!(store.session(session).await.unwrap().unwrap().compact_size, 4);
    // Deleted by itself, it stands for nothing: its messages count again.
    let summary = id_of(store, session, "we talked").await;
    store.delete_message(session, summary).await.unwrap();
    assert_eq!(shown(store, session).await, ["q1", "a1", "q2", "a2", "q3", "a3"]);
    assert_eq!(store.session(session).await.unwrap().unwrap().compact_size, 0);
}

async fn a_child_of_what_is_gone_wakes_nobody(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let child = start_child(store, &lease, mail.turn, "c1").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let id = admit_cut(store, session, Cut::Reset).await;
    // The child ends when the reset is admitted and not yet done.
    let (of_child, mail) = begin(store, child.session).await;
    let ended = store.finish(&of_child, answered(mail.turn, "done")).await.unwrap().ended;
    let wake = ended[0].wakes.unwrap().job;
    let (lease, _) = begin_cut(store, session).await;
    let worked = store.finish_work(&lease, id, &ready()).await.unwrap();
    assert_eq!((ids(&worked.ended), worked.next), (vec![id, wake], None));
    assert_eq!(job(store, wake).await.state, JobState::Cancelled);
    assert!(contents(store, session).await.is_empty());
}

async fn one_message_is_deleted(db: &Database) {
    let store = &db.store;
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let last = id_of(store, session, "a2").await;
    let (first, other) = (id_of(store, session, "q1").await, crate::support::session(store).await);
    assert!(!store.delete_message(session, last).await.unwrap().context_drift);
    assert!(!store.delete_message(session, first).await.unwrap().context_drift);
    assert_eq!(shown(store, session).await, ["a1", "q2"]);
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.message_count, row.history_version), (2, 2));
    assert!(store.delete_message(other, last).await.is_err());

    // An engine that keeps the conversation itself remembers it, unless it has none.
    let session = native(db, 1).await;
    let (question, reply) = (id_of(store, session, "q1").await, id_of(store, session, "a1").await);
    assert!(store.delete_message(session, question).await.unwrap().context_drift);
    db.execute("UPDATE sessions SET native_session_id = NULL").await;
    assert!(!store.delete_message(session, reply).await.unwrap().context_drift);
}

async fn a_message_that_is_deleted_leaves_no_call_without_a_result(store: &Store) {
    let gone = "(the result is no longer there)";
    for (deleted, left) in [
        ("one", vec!["q1", "a1", "q2", "look", "two", gone, "injected", "look again", "three", "a2"]),
        ("look", vec!["q1", "a1", "q2", "injected", "look again", "three", "a2"]),
    ] {
        let session = worked(store, EngineKind::OpenAi).await;
        let message = id_of(store, session, deleted).await;
        store.delete_message(session, message).await.unwrap();
        assert_eq!(shown(store, session).await, left);
        let roles: Vec<_> = told(store, session).await.into_iter().map(|(role, _)| role).collect();
        assert_eq!(
            roles.iter().filter(|role| **role == Role::Tool).count(),
            if deleted == "one" { 3 } else { 1 }
        );
    }
}

async fn a_session_can_be_cut_again_and_again(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 4).await;
    for (n, at) in ["a3", "a2", "a1"].into_iter().enumerate() {
        let point = id_of(store, session, at).await;
        assert_eq!(cut(store, session, trim(point)).await.deleted, 2);
        let row = store.session(session).await.unwrap().unwrap();
        assert_eq!((row.last_message, row.history_version), (Some(point), i64::try_from(n).unwrap() + 1));
    }
    assert_eq!(shown(store, session).await, ["q1", "a1"]);
}
