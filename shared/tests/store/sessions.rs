//! Sessions as clients read and change them.

use roundhouse_shared::domain::{EngineKind, SessionId, SessionStatus, Usage};
use roundhouse_shared::store::{
    Deleted, JobFilter, NewSession, SessionFilter, SessionPatch, Store, StoreError,
};
use serde_json::json;

use crate::support::*;

on_both_databases![
    a_session_reads_back_as_created,
    an_unknown_session_is_none,
    sessions_are_listed_by_activity,
    sessions_are_listed_by_agent_and_status,
    pages_of_sessions_have_no_gap_and_no_duplicate,
    a_patch_sets_clears_and_leaves,
    an_unknown_session_cannot_be_patched,
    a_busy_session_is_not_deleted,
    a_deleted_session_takes_all_with_it,
    an_unknown_session_cannot_be_deleted,
];

async fn a_session_reads_back_as_created(store: &Store) {
    let new = NewSession {
        model: Some("m".to_owned()),
        title: Some("Titel mit ß".to_owned()),
        cwd: "/srv/x".to_owned(),
        metadata: json!({"a": [1, null, "ü"]}),
        ..new_session()
    };
    let created = store.create_session(&new).await.unwrap();
    assert_eq!(store.session(new.id).await.unwrap().as_ref(), Some(&created));
    assert_eq!((created.id, created.agent.as_str(), created.engine), (new.id, "helper", EngineKind::OpenAi));
    assert_eq!((created.model, created.title, created.cwd), (new.model, new.title, new.cwd));
    assert_eq!((created.metadata, created.archived), (new.metadata, false));
    assert_eq!((created.status, created.message_count), (SessionStatus::Idle, 0));
    assert_eq!((created.native_session, created.last_message, created.active_turn), (None, None, None));
    assert_eq!((created.parent, created.forked_from, created.connected_ms), (None, None, None));
    assert_eq!((created.history_version, created.compact_size, created.usage), (0, 0, Usage::default()));
    assert_eq!(created.created_ms, created.updated_ms);
    assert!(created.created_ms <= store.now_ms().await.unwrap());
}

async fn an_unknown_session_is_none(store: &Store) {
    assert_eq!(store.session(SessionId::generate()).await.unwrap(), None);
}

async fn list(store: &Store, filter: SessionFilter) -> Vec<SessionId> {
    let filter = SessionFilter { limit: 10, ..filter };
    store.sessions(&filter).await.unwrap().into_iter().map(|session| session.id).collect()
}

async fn sessions_are_listed_by_activity(db: &Database) {
    let store = &db.store;
    let (a, b, c) = (session(store).await, session(store).await, session(store).await);
    db.execute("UPDATE sessions SET updated_ms = 7").await;
    // Equally old ones by id, and those are as old as their sessions.
    assert_eq!(list(store, SessionFilter::default()).await, [c, b, a]);
    admit(store, b, "hello").await;
    assert_eq!(list(store, SessionFilter::default()).await, [b, c, a]);
}

async fn sessions_are_listed_by_agent_and_status(store: &Store) {
    let idle = session(store).await;
    let writer = NewSession { agent: "writer".to_owned(), ..new_session() };
    store.create_session(&writer).await.unwrap();
    admit(store, writer.id, "hello").await;
    let (running, ..) = running(store).await;
    let failed = session(store).await;
    admit(store, failed, "hello").await;
    begin_and_die(store, failed).await;
    store.reap(failed, 1).await.unwrap().unwrap();

    let agent = |name: &str| Some(name.to_owned());
    let of = |status| SessionFilter { status: Some(status), ..SessionFilter::default() };
    assert_eq!(list(store, SessionFilter::default()).await.len(), 4);
    assert_eq!(
        list(store, SessionFilter { agent: agent("writer"), ..SessionFilter::default() }).await,
        [writer.id]
    );
    assert!(
        list(store, SessionFilter { agent: agent("nobody"), ..SessionFilter::default() }).await.is_empty()
    );
    let found = [
        (SessionStatus::Idle, vec![idle]),
        (SessionStatus::Queued, vec![writer.id]),
        (SessionStatus::Running, vec![running]),
        (SessionStatus::Error, vec![failed]),
        (SessionStatus::Waiting, vec![]),
    ];
    for (status, sessions) in found {
        assert_eq!(list(store, of(status)).await, sessions, "{status}");
    }
    let both = SessionFilter { agent: agent("helper"), ..of(SessionStatus::Queued) };
    assert!(list(store, both).await.is_empty());
}

async fn pages_of_sessions_have_no_gap_and_no_duplicate(db: &Database) {
    let store = &db.store;
    let mut all = Vec::new();
    for _ in 0..11 {
        all.push(session(store).await);
    }
    // Some at the same time, so that the time alone is no place in the list.
    db.execute("UPDATE sessions SET updated_ms = updated_ms / 1000000").await;
    for limit in [1, 3, 11, 12] {
        let mut filter = SessionFilter { limit, ..SessionFilter::default() };
        let mut listed = Vec::new();
        loop {
            let page = store.sessions(&filter).await.unwrap();
            let Some(last) = page.last() else { break };
            filter.before = Some((last.updated_ms, last.id));
            listed.extend(page.iter().map(|session| session.id));
        }
        listed.reverse();
        assert_eq!(listed, all, "limit {limit}");
    }
}

async fn a_patch_sets_clears_and_leaves(store: &Store) {
    let session = session(store).await;
    let text = |text: &str| Some(Some(text.to_owned()));
    let set = SessionPatch {
        title: text("title"),
        model: text("model"),
        metadata: Some(json!({"k": 1})),
        archived: Some(true),
    };
    let patched = store.patch_session(session, &set).await.unwrap();
    assert_eq!((patched.title.as_deref(), patched.model.as_deref()), (Some("title"), Some("model")));
    assert_eq!((&patched.metadata, patched.archived), (&json!({"k": 1}), true));

    let left = store.patch_session(session, &SessionPatch::default()).await.unwrap();
    assert_eq!(
        (&left.title, &left.model, &left.metadata),
        (&patched.title, &patched.model, &patched.metadata)
    );
    assert!(left.archived && patched.updated_ms <= left.updated_ms);

    let clear = SessionPatch { title: Some(None), archived: Some(false), ..SessionPatch::default() };
    let cleared = store.patch_session(session, &clear).await.unwrap();
    assert_eq!((cleared.title, cleared.model, cleared.archived), (None, patched.model, false));
    assert_eq!(store.session(session).await.unwrap().unwrap().metadata, json!({"k": 1}));

    // Also while it runs, and then it counts from the next turn on.
    admit(store, session, "hello").await;
    let (lease, mail) = begin(store, session).await;
    assert_eq!(mail.model.as_deref(), Some("model"));
    let patch = SessionPatch { model: Some(None), ..SessionPatch::default() };
    store.patch_session(session, &patch).await.unwrap();
    enqueue(store, session, "next").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(store.drain(&lease).await.unwrap().unwrap().model, None);
}

async fn an_unknown_session_cannot_be_patched(store: &Store) {
    let error = store.patch_session(SessionId::generate(), &SessionPatch::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
}

async fn a_busy_session_is_not_deleted(store: &Store) {
    let queued = session(store).await;
    admit(store, queued, "hello").await;
    let (running, ..) = running(store).await;
    let dead = session(store).await;
    admit(store, dead, "hello").await;
    begin_and_die(store, dead).await;
    for busy in [queued, running, dead] {
        let error = store.delete_session(busy).await.unwrap_err();
        assert!(matches!(error, StoreError::SessionBusy), "{error:?}");
        assert_eq!(contents(store, busy).await.len(), 1);
    }
}

async fn a_deleted_session_takes_all_with_it(db: &Database) {
    let store = &db.store;
    let (session, first, lease, mail) = running(store).await;
    store.adopt_native(&lease, "native", "host").await.unwrap();
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let other = crate::support::session(store).await;
    admit(store, other, "stays").await;

    let deleted = store.delete_session(session).await.unwrap();

    assert_eq!(deleted, Deleted { native_session: Some("native".to_owned()) });
    assert_eq!(store.session(session).await.unwrap(), None);
    assert_eq!(store.job(first).await.unwrap(), None);
    assert!(contents(store, session).await.is_empty());
    assert_eq!(db.number("SELECT count(*) FROM turns").await, 0);
    let left = store.jobs(JobFilter { limit: 10, ..JobFilter::default() }).await.unwrap();
    assert_eq!((left.len(), left[0].session), (1, other));
    assert_eq!(contents(store, other).await, ["stays"]);
}

async fn an_unknown_session_cannot_be_deleted(store: &Store) {
    let error = store.delete_session(SessionId::generate()).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
}
