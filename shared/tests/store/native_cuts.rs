//! Cuts of sessions whose engine keeps conversations of its own.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{ContextSource, Cut, EngineKind, Fork, MessageId, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{
    Begin, Needs, Store, StoreError, TurnEnd, TurnOutcome, WorkEnd, WrittenMessage,
};

use crate::cuts::worked;
use crate::support::*;

on_both_databases![
    the_native_session_goes_on_from_its_copy,
    what_was_left_unanswered_goes_along_with_the_next_message,
    what_had_its_end_before_the_cut_is_not_sent_again,
    what_the_model_had_not_seen_when_it_said_the_last_that_is_kept_is_sent_again,
    a_cut_within_a_turn_is_made_at_the_last_that_is_kept,
    without_an_anchor_the_next_turn_is_given_the_messages,
    an_anchor_in_another_native_session_is_none,
    a_native_session_begins_anew_where_nothing_is_left,
    a_cut_needs_an_engine_only_where_it_copies_a_conversation,
];

fn trim(at: MessageId) -> Cut {
    Cut::Trim { at }
}

async fn shown(store: &Store, session: SessionId) -> Vec<String> {
    told(store, session).await.into_iter().map(|(_, content)| content).collect()
}

/// Trims a session whose native session has to be forked at an anchor.
async fn trim_native(db: &Database, session: SessionId, at: &str, anchor: &str, anchors: &[&str]) {
    let store = &db.store;
    let at = id_of(store, session, at).await;
    let id = admit_cut(store, session, trim(at)).await;
    let (lease, work) = begin_cut(store, session).await;
    let from = work.anchor.unwrap();
    assert_eq!(from.at, anchor);
    let copy = format!("{}+", from.native);
    store.doom(&lease, &copy_of(&copy, session), LONG_MS).await.unwrap();
    let native = Some(copied(&from.native, &copy, anchors));
    let end = WorkEnd::Ready { native, cwd: String::new() };
    let result = result_of(&store.finish_work(&lease, id, &end).await.unwrap());
    assert_eq!((result.claude_forked, result.engine_forked), (true, true));
    assert_eq!(result.context_source, ContextSource::Native);
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!(row.native_session, Some(copy));
}

async fn the_native_session_goes_on_from_its_copy(db: &Database) {
    let session = native(db, 3).await;
    trim_native(db, session, "a2", "@a2", &["@a1", "@a2"]).await;
    let expected = ["@a1+", "@a2+"].map(|anchor| Some(anchor.to_owned()));
    assert_eq!(anchors(&db.store, session).await, expected);
    // The old one is to be deleted at once, the copy not any more.
    let doomed = db.texts("SELECT native_session_id FROM doomed_natives").await;
    assert_eq!(doomed, ["n1"]);
    assert_eq!(db.store.take_doomed("here", EngineKind::ClaudeCli, 10, 1000).await.unwrap().len(), 1);
    // And again, from the copy; an anchor that the next copy does not have is none.
    trim_native(db, session, "a1", "@a1+", &[]).await;
    assert_eq!(anchors(&db.store, session).await, [None]);
}

async fn what_was_left_unanswered_goes_along_with_the_next_message(db: &Database) {
    let session = native(db, 2).await;
    trim_native(db, session, "q2", "@a1", &["@a1"]).await;
    assert_eq!(contents(&db.store, session).await, ["q1", "a1", "q2"]);
    let unsent = "SELECT content FROM messages WHERE unsent";
    assert_eq!(db.texts(unsent).await, ["q2"]);
    // It is not a part of what a fresh native session would be given.
    assert_eq!(shown(&db.store, session).await, ["q1", "a1"]);
    let forked = SessionId::generate();
    let asked = Fork { into: forked, ..whole() };
    db.execute("UPDATE sessions SET native_session_id = NULL").await;
    let copied = cut(&db.store, session, Cut::Fork(asked)).await;
    assert_eq!(copied.context_source, ContextSource::Replay);
    assert_eq!(db.texts(unsent).await, ["q2", "q2"]);
}

async fn what_had_its_end_before_the_cut_is_not_sent_again(db: &Database) {
    let store = &db.store;
    let session = native(db, 1).await;
    let problem = Problem::new(Code::EngineFailed);
    for (text, outcome) in [("q2", TurnOutcome::Cancelled), ("q3", TurnOutcome::Failed(problem))] {
        admit(store, session, text).await;
        let (lease, mail) = begin(store, session).await;
        let end = TurnEnd { outcome, messages: Vec::new(), ..answered(mail.turn, "") };
        store.finish(&lease, end).await.unwrap();
    }
    let unsent = "SELECT content FROM messages WHERE unsent";

    // Nothing is deleted, and nothing left out.
    trim_native(db, session, "q3", "@a1", &["@a1"]).await;
    assert!(db.texts(unsent).await.is_empty());
    let (forked, at) = (SessionId::generate(), id_of(store, session, "q3").await);
    let job = admit_cut(store, session, Cut::Fork(Fork { into: forked, ..fork_at(at) })).await;
    let (lease, _) = begin_cut(store, session).await;
    store.finish_work(&lease, job, &ready()).await.unwrap();
    assert!(db.texts(unsent).await.is_empty());

    // What is answered after it is another message's.
    turn(store, session, "q4", "a4").await;
    self::anchor(db).await;
    for (at, sent) in [("q4", &["q4"][..]), ("q3", &[])] {
        let id = id_of(store, session, at).await;
        let asked = Fork { into: SessionId::generate(), ..fork_at(id) };
        let job = admit_cut(store, session, Cut::Fork(asked)).await;
        let (lease, _) = begin_cut(store, session).await;
        store.finish_work(&lease, job, &ready()).await.unwrap();
        assert_eq!(db.texts(unsent).await, sent, "{at}");
        db.execute("UPDATE messages SET unsent = (1 = 0)").await;
    }
}

async fn what_the_model_had_not_seen_when_it_said_the_last_that_is_kept_is_sent_again(db: &Database) {
    let store = &db.store;
    let session = native(db, 1).await;
    admit(store, session, "q2").await;
    let (lease, mail) = begin(store, session).await;
    let by_itself = WrittenMessage { content: "by itself".to_owned(), ..WrittenMessage::default() };
    store.autonomous(&lease, &by_itself, true).await.unwrap();
    store.finish(&lease, answered(mail.turn, "a2")).await.unwrap();
    self::anchor(db).await;
    trim_native(db, session, "by itself", "@by itself", &["@a1", "@by itself"]).await;
    assert_eq!(contents(store, session).await, ["q1", "a1", "q2", "by itself"]);
    assert_eq!(db.texts("SELECT content FROM messages WHERE unsent").await, ["q2"]);
}

/// A message goes along with the next one where the copy ends before it, wherever it is displayed.
async fn a_cut_within_a_turn_is_made_at_the_last_that_is_kept(db: &Database) {
    for (at, anchor, unsent) in [
        ("look", "@look", &[][..]),
        ("one", "@one", &[]),
        ("injected", "@one", &["injected"]),
        ("two", "@two", &["injected"]),
        ("look again", "@look again", &[]),
        ("three", "@three", &[]),
    ] {
        let session = worked(&db.store, EngineKind::ClaudeCli).await;
        self::anchor(db).await;
        trim_native(db, session, at, anchor, &["@a1", "@look", "@one", "@two"]).await;
        assert_eq!(db.texts("SELECT content FROM messages WHERE unsent").await, unsent, "{at}");
        db.store.delete_session(session).await.unwrap();
        for gone in ["n1", "n1+"] {
            db.store.forget_doomed(gone).await.unwrap();
        }
    }
}

async fn without_an_anchor_the_next_turn_is_given_the_messages(db: &Database) {
    let session = native(db, 3).await;
    db.execute("UPDATE messages SET engine_metadata = NULL, native_session_id = NULL WHERE content = 'a2'")
        .await;
    let at = id_of(&db.store, session, "a2").await;
    let result = cut(&db.store, session, trim(at)).await;
    assert_eq!((result.engine_forked, result.context_source), (false, ContextSource::Replay));
    let row = db.store.session(session).await.unwrap().unwrap();
    assert_eq!(row.native_session, None);
    assert_eq!(shown(&db.store, session).await, ["q1", "a1", "q2", "a2"]);
    assert_eq!(anchors(&db.store, session).await, [None, None]);
    assert_eq!(db.texts("SELECT native_session_id FROM doomed_natives").await, ["n1"]);
}

async fn an_anchor_in_another_native_session_is_none(db: &Database) {
    let session = native(db, 2).await;
    db.execute("UPDATE sessions SET native_session_id = 'n2'").await;
    let at = id_of(&db.store, session, "a1").await;
    assert_eq!(cut(&db.store, session, trim(at)).await.context_source, ContextSource::Replay);
}

async fn a_native_session_begins_anew_where_nothing_is_left(db: &Database) {
    for reset in [false, true] {
        let session = native(db, 1).await;
        let at = id_of(&db.store, session, "q1").await;
        let asked = if reset { Cut::Reset } else { trim(at) };
        let result = cut(&db.store, session, asked).await;
        assert_eq!((result.engine_forked, result.context_source), (false, ContextSource::Empty));
        let row = db.store.session(session).await.unwrap().unwrap();
        assert_eq!((row.native_session, row.message_count), (None, i64::from(!reset)));
        assert_eq!(db.number("SELECT count(*) FROM messages WHERE unsent OR consumed_seq > 0").await, 0);
        assert_eq!(db.texts("SELECT native_session_id FROM doomed_natives").await, ["n1"]);
    }
}

async fn a_cut_needs_an_engine_only_where_it_copies_a_conversation(db: &Database) {
    let store = &db.store;
    let session = native(db, 2).await;
    let (first, reply) = (id_of(store, session, "q1").await, id_of(store, session, "a1").await);
    let worker = registered(store).await;
    let without = async |needed: Option<Needs<'static>>| {
        let has = |needs: Needs<'_>| Some(needs) == needed;
        store.begin(session, worker, has).await.unwrap()
    };
    let copies = Some(Needs::Engine(EngineKind::ClaudeCli));
    for (cut, needs) in [
        (Cut::Fork(whole()), copies),
        (trim(reply), copies),
        // Before the first word of the model, and where there is nothing to copy.
        (Cut::Fork(fork_at(first)), None),
        (trim(first), None),
        (Cut::Reset, None),
    ] {
        let engine = store.cut_needs(session, &cut).await.unwrap();
        assert_eq!(engine.map(Needs::Engine), needs, "{cut:?}");
        let id = admit_cut(store, session, cut).await;
        if needs.is_some() {
            // Not the agent, whatever that is now.
            let begun = without(Some(Needs::Agent("helper"))).await;
            assert!(matches!(begun, Begin::NotHere), "{begun:?}");
        }
        let begun = without(needs).await;
        let Begin::Maintenance(lease, _) = begun else { panic!("{begun:?}") };
        let end = WorkEnd::Failed(Problem::new(Code::ClaudeForkFailed));
        store.finish_work(&lease, id, &end).await.unwrap();
    }
    admit(store, session, "next").await;
    let begun = without(copies).await;
    assert!(matches!(begun, Begin::NotHere), "a turn needs its agent: {begun:?}");
    let error = store.cut_needs(SessionId::generate(), &Cut::Reset).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
}
