//! Short ways to a fork, a trim or a reset.

use std::collections::HashMap;

use roundhouse_shared::domain::{
    Cut, CutResult, EngineKind, Fork, JobId, Lease, Message, MessageId, SessionId, WorkerId,
};
use roundhouse_shared::store::{
    Begin, CutAdmission, DoomedNative, MessagePage, NativeFork, NewSession, Outcome, Store, StoreError,
    TurnEnd, Work, WorkEnd, Worked,
};

use super::*;

/// A fork of everything.
pub(crate) fn whole() -> Fork {
    Fork { into: SessionId::generate(), at: None, title: None, cwd: None, require_anchor: false }
}

/// A fork up to a message.
pub(crate) fn fork_at(at: MessageId) -> Fork {
    Fork { at: Some(at), ..whole() }
}

/// Asks for a cut.
pub(crate) async fn try_cut(store: &Store, session: SessionId, cut: Cut) -> Result<JobId, StoreError> {
    let admission = CutAdmission { job: JobId::generate(), session, cut, idempotency: None };
    store.admit_cut(&admission).await.map(|admitted| admitted.job)
}

/// Asks for a cut that is to be done.
pub(crate) async fn admit_cut(store: &Store, session: SessionId, cut: Cut) -> JobId {
    try_cut(store, session, cut).await.unwrap()
}

/// Begins a cut, as a worker nobody knows, with a lease that does not run out.
pub(crate) async fn begin_cut(store: &Store, session: SessionId) -> (Lease, Work) {
    begin_cut_as(store, session, LONG_MS).await
}

pub(crate) async fn begin_cut_as(store: &Store, session: SessionId, lease_ms: i64) -> (Lease, Work) {
    match try_begin(store, session, WorkerId::generate(), lease_ms).await.unwrap() {
        Begin::Maintenance(lease, work) => (lease, work),
        other => panic!("not started: {other:?}"),
    }
}

/// How a cut ends that needed nothing of the engine.
pub(crate) fn ready() -> WorkEnd {
    WorkEnd::Ready { native: None, cwd: String::new() }
}

/// Carries out a cut of an engine that replays.
pub(crate) async fn cut(store: &Store, session: SessionId, cut: Cut) -> CutResult {
    let job = admit_cut(store, session, cut).await;
    let (lease, work) = begin_cut(store, session).await;
    assert_eq!((work.job, work.anchor), (job, None));
    result_of(&store.finish_work(&lease, job, &ready()).await.unwrap())
}

/// A copy of a native session of `here`, as it is announced.
pub(crate) fn copy_of(native: &str, session: SessionId) -> DoomedNative {
    DoomedNative { native: native.to_owned(), session, cwd: String::new(), host: "here".to_owned() }
}

/// What came of it.
#[track_caller]
pub(crate) fn result_of(worked: &Worked) -> CutResult {
    match &worked.ended[0].outcome {
        Outcome::Cut(result) => result.clone(),
        other => panic!("no cut: {other:?}"),
    }
}

/// All messages of a session.
pub(crate) async fn messages(store: &Store, session: SessionId) -> Vec<Message> {
    let page = MessagePage { limit: 1000, ..MessagePage::default() };
    store.messages(session, page).await.unwrap()
}

/// The id of the message with this text.
pub(crate) async fn id_of(store: &Store, session: SessionId, text: &str) -> MessageId {
    let all = messages(store, session).await;
    all.iter().find(|message| message.content == text).unwrap_or_else(|| panic!("no {text:?} in {all:?}")).id
}

/// A session of an engine with so many turns behind it: `q1`, `a1`, `q2`, `a2`, …
pub(crate) async fn talked(store: &Store, engine: EngineKind, turns: usize) -> SessionId {
    let session = store.create_session(&NewSession { engine, ..new_session() }).await.unwrap().id;
    for n in 1..=turns {
        turn(store, session, &format!("q{n}"), &format!("a{n}")).await;
    }
    session
}

/// One turn.
pub(crate) async fn turn(store: &Store, session: SessionId, question: &str, answer: &str) {
    admit(store, session, question).await;
    let (lease, mail) = begin(store, session).await;
    let end = TurnEnd { usage: USAGE, ..answered(mail.turn, answer) };
    store.finish(&lease, end).await.unwrap();
}

/// What a session with an engine that keeps conversations is like after so many turns: the native session `n1` is on
/// `here`, and each answer has its own text with an `@` as its anchor.
pub(crate) async fn native(db: &Database, turns: usize) -> SessionId {
    let session = talked(&db.store, EngineKind::ClaudeCli, turns).await;
    anchor(db).await;
    session
}

/// Gives every answer and every result an anchor in `n1`, and every session that native session.
pub(crate) async fn anchor(db: &Database) {
    db.execute("UPDATE sessions SET native_session_id = 'n1', native_host = 'here'").await;
    db.execute(
        "UPDATE messages SET native_session_id = 'n1', engine_metadata = '{\"claude_uuid\":\"@' || content || '\"}' \
         WHERE role IN ('assistant', 'tool')",
    )
    .await;
}

/// A copy of a native session with these anchors, each of which is new with a `+`.
pub(crate) fn copied(source: &str, native: &str, anchors: &[&str]) -> NativeFork {
    NativeFork {
        source: source.to_owned(),
        native: native.to_owned(),
        host: "here".to_owned(),
        anchors: anchors
            .iter()
            .map(|anchor| ((*anchor).to_owned(), format!("{anchor}+")))
            .collect::<HashMap<_, _>>(),
    }
}

/// The anchors of a session's answers.
pub(crate) async fn anchors(store: &Store, session: SessionId) -> Vec<Option<String>> {
    let of = |message: &Message| Some(message.engine_metadata.as_ref()?["claude_uuid"].as_str()?.to_owned());
    let all = messages(store, session).await;
    all.iter().filter(|message| message.role == roundhouse_shared::domain::Role::Assistant).map(of).collect()
}
