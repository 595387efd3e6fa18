//! Forks: a new session with another's messages.

use roundhouse_shared::domain::{ContextSource, Cut, EngineKind, Fork, Message, Role, SessionId, Usage};
use roundhouse_shared::store::{SessionPatch, Store, WorkEnd};

use crate::support::*;

on_both_databases![
    a_fork_has_the_messages_up_to_the_point_and_goes_its_own_way,
    a_copy_is_what_it_was_but_nobodys_turn,
    a_fork_costs_nothing,
    a_fork_without_a_point_has_all,
    a_fork_can_have_a_title_and_a_directory_of_its_own,
    a_fork_of_a_fork_outlives_its_source,
    a_fork_at_a_call_closes_it,
    a_fork_at_a_question_nobody_has_answered_begins_anew,
    a_fork_takes_the_summary_along,
    a_fork_of_a_native_session_has_anchors_of_its_own,
    a_fork_is_no_child,
    a_fork_that_comes_late_is_not_used,
];

async fn forked(store: &Store, session: SessionId, fork: Fork) -> SessionId {
    let result = cut(store, session, Cut::Fork(fork.clone())).await;
    assert_eq!((result.session_id, result.deleted, result.engine_forked), (fork.into, 0, false));
    fork.into
}

async fn shown(store: &Store, session: SessionId) -> Vec<String> {
    told(store, session).await.into_iter().map(|(_, content)| content).collect()
}

async fn a_fork_has_the_messages_up_to_the_point_and_goes_its_own_way(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 3).await;
    let before = store.session(source).await.unwrap();
    let at = id_of(store, source, "a2").await;

    let fork = forked(store, source, fork_at(at)).await;

    assert_eq!(contents(store, fork).await, ["q1", "a1", "q2", "a2"]);
    assert_eq!(shown(store, fork).await, ["q1", "a1", "q2", "a2"]);
    let row = store.session(fork).await.unwrap().unwrap();
    assert_eq!((row.parent, row.forked_from, row.message_count), (Some(source), Some(at), 4));
    assert_eq!(row.last_message, messages(store, fork).await.last().map(|message| message.id));
    turn(store, fork, "q4", "a4").await;
    turn(store, source, "q5", "a5").await;
    assert_eq!(shown(store, fork).await, ["q1", "a1", "q2", "a2", "q4", "a4"]);
    assert_eq!(shown(store, source).await, ["q1", "a1", "q2", "a2", "q3", "a3", "q5", "a5"]);
    let after = store.session(source).await.unwrap().unwrap();
    assert_eq!(after.history_version, before.unwrap().history_version);
}

async fn a_copy_is_what_it_was_but_nobodys_turn(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 1).await;
    let (lease, mail) = {
        admit(store, source, "q2").await;
        begin(store, source).await
    };
    store.append(&lease, mail.turn, &[calls("look", &["c1"]), result("c1", "one")]).await.unwrap();
    store.finish(&lease, answered(mail.turn, "a2")).await.unwrap();
    let fork = forked(store, source, whole()).await;
    let (of_source, copies) = (messages(store, source).await, messages(store, fork).await);
    assert_eq!(of_source.len(), copies.len());
    for (message, copy) in of_source.into_iter().zip(copies) {
        assert!(message.id < copy.id);
        let usage = message.usage.map(|usage| Usage { cost_nanos: None, ..usage });
        let external_id = Some(format!("forkcopy:{}", message.id));
        let expected =
            Message { id: copy.id, session: fork, turn: None, job: None, usage, external_id, ..message };
        assert_eq!(copy, expected);
    }
}

async fn a_fork_costs_nothing(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 2).await;
    let fork = forked(store, source, whole()).await;
    assert_eq!(store.session(fork).await.unwrap().unwrap().usage, Usage::default());
    turn(store, fork, "q3", "a3").await;
    assert_eq!(store.session(fork).await.unwrap().unwrap().usage, times(1));
    assert_eq!(store.session(source).await.unwrap().unwrap().usage, times(2));
}

async fn a_fork_without_a_point_has_all(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 2).await;
    let fork = forked(store, source, whole()).await;
    assert_eq!(contents(store, fork).await, ["q1", "a1", "q2", "a2"]);
    let at = id_of(store, source, "a2").await;
    assert_eq!(store.session(fork).await.unwrap().unwrap().forked_from, Some(at));
    let empty = session(store).await;
    let fork = forked(store, empty, whole()).await;
    let row = store.session(fork).await.unwrap().unwrap();
    assert_eq!((row.parent, row.forked_from, row.message_count), (Some(empty), None, 0));
    turn(store, fork, "q1", "a1").await;
}

async fn a_fork_can_have_a_title_and_a_directory_of_its_own(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 1).await;
    let patch = SessionPatch {
        title: Some(Some("old".to_owned())),
        model: Some(Some("deep".to_owned())),
        metadata: Some(serde_json::json!({"k": 1})),
        archived: Some(true),
    };
    store.patch_session(source, &patch).await.unwrap();
    for (title, expected) in [(None, "old"), (Some("new".to_owned()), "new")] {
        let asked = Fork { title, ..whole() };
        let job = admit_cut(store, source, Cut::Fork(asked.clone())).await;
        let (lease, work) = begin_cut(store, source).await;
        assert_eq!(work.title.as_deref(), Some("old"));
        let end = WorkEnd::Ready { native: None, cwd: "/srv/files".to_owned() };
        store.finish_work(&lease, job, &end).await.unwrap();
        let row = store.session(asked.into).await.unwrap().unwrap();
        assert_eq!((row.title.as_deref(), row.cwd.as_str()), (Some(expected), "/srv/files"));
        assert_eq!((row.model.as_deref(), row.archived), (Some("deep"), false));
        assert_eq!(row.metadata, serde_json::json!({"k": 1}));
        assert_eq!((row.agent.as_str(), row.engine), ("helper", EngineKind::OpenAi));
    }
}

async fn a_fork_of_a_fork_outlives_its_source(store: &Store) {
    let first = talked(store, EngineKind::OpenAi, 2).await;
    let second = forked(store, first, whole()).await;
    turn(store, second, "q3", "a3").await;
    let at = id_of(store, second, "a3").await;
    let third = forked(store, second, fork_at(at)).await;
    let at = id_of(store, third, "a2").await;
    assert_eq!(cut(store, third, Cut::Trim { at }).await.deleted, 2);
    store.delete_session(first).await.unwrap();
    store.delete_session(second).await.unwrap();
    turn(store, third, "q4", "a4").await;
    assert_eq!(shown(store, third).await, ["q1", "a1", "q2", "a2", "q4", "a4"]);
    let row = store.session(third).await.unwrap().unwrap();
    assert_eq!(row.parent, Some(second));
}

async fn a_fork_at_a_call_closes_it(store: &Store) {
    let (source, _, lease, mail) = running(store).await;
    let written = [calls("look", &["c1", "c2"]), result("c1", "one"), result("c2", "two")];
    let stored = store.append(&lease, mail.turn, &written).await.unwrap();
    store.finish(&lease, answered(mail.turn, "a1")).await.unwrap();
    let fork = forked(store, source, fork_at(stored[1].id)).await;
    let interrupted = "(interrupted: the turn was ended before this had a result)";
    assert_eq!(shown(store, fork).await, ["first", "look", "one", interrupted]);
    assert_eq!(shown(store, source).await, ["first", "look", "one", "two", "a1"]);
}

async fn a_fork_at_a_question_nobody_has_answered_begins_anew(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 1).await;
    let at = id_of(store, source, "q1").await;
    let asked = fork_at(at);
    let result = cut(store, source, Cut::Fork(asked.clone())).await;
    assert_eq!(result.context_source, ContextSource::Empty);
    assert_eq!(contents(store, asked.into).await, ["q1"]);
    turn(store, asked.into, "q2", "a2").await;
    assert_eq!(shown(store, asked.into).await, ["q2", "a2"]);
}

async fn a_fork_takes_the_summary_along(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 2).await;
    let up_to = store.context(source).await.unwrap()[3].consumed_seq;
    admit(store, source, "q3").await;
    let (lease, mail) = begin(store, source).await;
    store.compact(&lease, mail.turn, "we talked", up_to, USAGE).await.unwrap();
    store.finish(&lease, answered(mail.turn, "a3")).await.unwrap();
    for (at, left, size) in
        [("a3", vec!["we talked", "q3", "a3"], 4), ("a2", vec!["q1", "a1", "q2", "a2"], 0)]
    {
        let at = id_of(store, source, at).await;
        let fork = forked(store, source, fork_at(at)).await;
        assert_eq!(shown(store, fork).await, left);
        assert_eq!(store.session(fork).await.unwrap().unwrap().compact_size, size);
    }
}

async fn a_fork_of_a_native_session_has_anchors_of_its_own(db: &Database) {
    let store = &db.store;
    let source = native(db, 3).await;
    let asked = fork_at(id_of(store, source, "q3").await);
    let job = admit_cut(store, source, Cut::Fork(asked.clone())).await;
    let (lease, work) = begin_cut(store, source).await;
    assert_eq!(work.anchor.unwrap().at, "@a2");
    store.doom(&lease, &copy_of("n2", asked.into), LONG_MS).await.unwrap();
    let end = WorkEnd::Ready { native: Some(copied("n1", "n2", &["@a2"])), cwd: String::new() };

    let result = result_of(&store.finish_work(&lease, job, &end).await.unwrap());

    assert_eq!((result.session_id, result.claude_forked), (asked.into, true));
    assert_eq!(result.context_source, ContextSource::Native);
    let of = |anchor: &str| Some(anchor.to_owned());
    assert_eq!(anchors(store, asked.into).await, [None, of("@a2+")]);
    assert_eq!(anchors(store, source).await, ["@a1", "@a2", "@a3"].map(of));
    let natives =
        [source, asked.into].map(async |id| store.session(id).await.unwrap().unwrap().native_session);
    let natives = futures::future::join_all(natives).await;
    assert_eq!(natives, [of("n1"), of("n2")]);
    assert_eq!(db.texts("SELECT content FROM messages WHERE unsent").await, ["q3"]);
    assert_eq!(db.number("SELECT count(*) FROM doomed_natives").await, 0);
    // It forks again from its own.
    let asked_again = fork_at(id_of(store, asked.into, "a2").await);
    admit_cut(store, asked.into, Cut::Fork(asked_again)).await;
    let anchor = begin_cut(store, asked.into).await.1.anchor.unwrap();
    assert_eq!((anchor.native.as_str(), anchor.at.as_str()), ("n2", "@a2+"));
}

async fn a_fork_is_no_child(store: &Store) {
    let source = talked(store, EngineKind::OpenAi, 1).await;
    let fork = forked(store, source, whole()).await;
    assert_eq!(store.depth(fork, 16).await.unwrap(), 0);
    assert!(told(store, fork).await.iter().any(|(role, _)| *role == Role::Assistant));
}

async fn a_fork_that_comes_late_is_not_used(db: &Database) {
    let store = &db.store;
    for taken in [false, true] {
        let source = native(db, 1).await;
        let asked = whole();
        let job = admit_cut(store, source, Cut::Fork(asked.clone())).await;
        let (lease, _) = begin_cut(store, source).await;
        // Due at once: somebody may delete it any moment.
        store.doom(&lease, &copy_of("late", asked.into), -1).await.unwrap();
        if taken {
            assert_eq!(store.take_doomed("here", EngineKind::ClaudeCli, 10, LONG_MS).await.unwrap().len(), 1);
        }
        let end = WorkEnd::Ready { native: Some(copied("n1", "late", &["@a1"])), cwd: String::new() };
        let worked = store.finish_work(&lease, job, &end).await.unwrap();
        assert_eq!(answer(&worked.ended[0].outcome), ("CLAUDE_FORK_FAILED", false));
        assert_eq!(store.session(asked.into).await.unwrap(), None);
        assert_eq!(db.texts("SELECT native_session_id FROM doomed_natives").await, ["late"]);
        store.forget_doomed("late").await.unwrap();
    }
}
