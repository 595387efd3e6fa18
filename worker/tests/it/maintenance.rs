//! Fork, trim and reset of sessions whose engine keeps conversations of its own.

use std::sync::atomic::Ordering;

use roundhouse_shared::bus::Followed;
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    ContextSource, Cut, CutResult, EventName, Fork, JobState, MessageId, SessionId,
};
use roundhouse_shared::store::{MessagePage, Outcome};

use crate::support::{Site, soon, until};

const AGENT: &str = "filing";

fn fork(at: Option<MessageId>) -> Fork {
    Fork { into: SessionId::generate(), at, title: None, cwd: None, require_anchor: true }
}

async fn contents(site: &Site, session: SessionId) -> Vec<(MessageId, String)> {
    let page = MessagePage { limit: 100, ..MessagePage::default() };
    let messages = site.store.messages(session, page).await.unwrap();
    messages.into_iter().map(|message| (message.id, message.content)).collect()
}

async fn id_of(site: &Site, session: SessionId, content: &str) -> MessageId {
    contents(site, session).await.into_iter().find(|(_, known)| known == content).unwrap().0
}

async fn native_of(site: &Site, session: SessionId) -> Option<String> {
    site.store.session(session).await.unwrap().unwrap().native_session
}

async fn anchors(site: &Site, session: SessionId) -> Vec<serde_json::Value> {
    let page = MessagePage { limit: 100, ..MessagePage::default() };
    let messages = site.store.messages(session, page).await.unwrap();
    messages.into_iter().filter_map(|message| Some(message.engine_metadata?["claude_uuid"].clone())).collect()
}

async fn done(site: &Site, session: SessionId, cut: Cut) -> CutResult {
    let job = site.ask(session, cut).await;
    match site.outcome(job).await {
        Outcome::Cut(result) => result,
        other => panic!("{other:?}"),
    }
}

async fn refused(site: &Site, session: SessionId, cut: Cut) -> Code {
    let job = site.ask(session, cut).await;
    match site.outcome(job).await {
        Outcome::Failed(problem) => problem.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_trim_goes_on_from_a_copy_and_the_old_conversation_is_deleted() {
    let site = Site::new().await;
    let worker = site.worker(AGENT).await;
    let session = site.talked(AGENT, "n1", 3).await;
    let at = id_of(&site, session, "a2").await;
    let mut follow = site.bus.follow(session, None).await;

    let result = done(&site, session, Cut::Trim { at }).await;

    assert_eq!((result.deleted, result.claude_forked, result.engine_forked), (2, true, true));
    assert_eq!(result.context_source, ContextSource::Native);
    let native = native_of(&site, session).await.unwrap();
    assert_ne!(native, "n1");
    assert_eq!(std::fs::read_to_string(site.native(&native)).unwrap(), "@a1+\n@a2+");
    assert_eq!(anchors(&site, session).await, ["@a1+", "@a2+"]);
    until(async || site.natives() == 1).await;
    assert!(site.native(&native).exists());
    let mut told = Vec::new();
    while told.last() != Some(&EventName::SessionTrimmed) {
        if let Followed::Event(event) = soon(follow.next()).await {
            told.push(event.name);
        }
    }
    // The three turns before have ended without anybody to publish that: the run does so before it says anything.
    let end = [EventName::MessageCompleted, EventName::TurnCompleted, EventName::ChatResponse];
    let own = [EventName::JobStarted, EventName::SessionTrimmed];
    assert_eq!(told, [&end[..], &end, &end, &own].concat());
    // And again.
    let at = id_of(&site, session, "a1").await;
    assert_eq!(done(&site, session, Cut::Trim { at }).await.deleted, 2);
    assert_eq!(anchors(&site, session).await, ["@a1++"]);
    // Until nothing is left.
    let result = done(&site, session, Cut::Reset).await;
    assert_eq!((result.deleted, result.context_source), (2, ContextSource::Empty));
    assert_eq!(native_of(&site, session).await, None);
    until(async || site.natives() == 0).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_fork_has_a_conversation_of_its_own_and_outlives_its_source() {
    let site = Site::new().await;
    let worker = site.worker(AGENT).await;
    let source = site.talked(AGENT, "n1", 3).await;
    let first = fork(Some(id_of(&site, source, "q3").await));
    let result = done(&site, source, Cut::Fork(first.clone())).await;
    assert_eq!((result.session_id, result.claude_forked), (first.into, true));
    assert_eq!(anchors(&site, first.into).await, ["@a1+", "@a2+"]);
    assert_eq!(native_of(&site, source).await.as_deref(), Some("n1"));
    // It works on the same files.
    let row = site.store.session(first.into).await.unwrap().unwrap();
    let expected = site.folder().join("workspaces").join(source.to_string());
    assert_eq!(row.cwd, expected.display().to_string());

    site.store.delete_session(source).await.unwrap();
    until(async || !site.native("n1").exists()).await;
    let second = fork(None);
    assert!(done(&site, first.into, Cut::Fork(second.clone())).await.claude_forked);
    assert_eq!(anchors(&site, second.into).await, ["@a1++", "@a2++"]);
    assert_eq!(site.natives(), 2);
    assert!(site.texts("SELECT native_session_id FROM doomed_natives").await.is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_copy_that_fails_changes_nothing() {
    let site = Site::new().await;
    let worker = site.worker(AGENT).await;
    let session = site.talked(AGENT, "n1", 2).await;
    let before = (site.store.session(session).await.unwrap().unwrap(), contents(&site, session).await);
    let at = id_of(&site, session, "a1").await;
    site.engine.fails.store(true, Ordering::SeqCst);
    let asked = fork(Some(at));
    assert_eq!(refused(&site, session, Cut::Trim { at }).await, Code::ClaudeForkFailed);
    assert_eq!(refused(&site, session, Cut::Fork(asked.clone())).await, Code::ClaudeForkFailed);
    assert_eq!(site.store.session(asked.into).await.unwrap(), None);
    let row = site.store.session(session).await.unwrap().unwrap();
    assert_eq!(
        (&row.native_session, row.history_version, row.status),
        (&before.0.native_session, before.0.history_version, before.0.status)
    );
    assert_eq!(contents(&site, session).await, before.1);
    assert_eq!(anchors(&site, session).await, ["@a1", "@a2"]);
    // What it may have left is deleted when its time is up.
    assert_eq!(site.texts("SELECT host FROM doomed_natives").await, ["here", "here"]);
    site.engine.fails.store(false, Ordering::SeqCst);
    assert_eq!(done(&site, session, Cut::Trim { at }).await.deleted, 2);
    worker.stop().await;
}

#[tokio::test]
async fn without_an_anchor_the_engine_is_not_asked() {
    let site = Site::new().await;
    let worker = site.worker(AGENT).await;
    let session = site.talked(AGENT, "n1", 2).await;
    sqlx::query("UPDATE messages SET native_session_id = 'other'").execute(&site.raw).await.unwrap();
    let asked = fork(None);
    assert_eq!(refused(&site, session, Cut::Fork(asked.clone())).await, Code::NoForkAnchor);
    assert_eq!(site.store.session(asked.into).await.unwrap(), None);
    let asked = Fork { require_anchor: false, ..fork(None) };
    let result = done(&site, session, Cut::Fork(asked.clone())).await;
    assert_eq!((result.engine_forked, result.context_source), (false, ContextSource::Replay));
    assert_eq!(native_of(&site, asked.into).await, None);
    assert_eq!(site.engine.forks.load(Ordering::SeqCst), 0);
    worker.stop().await;
}

#[tokio::test]
async fn what_cannot_be_deleted_is_nobodys_business() {
    let site = Site::new().await;
    let worker = site.worker(AGENT).await;
    let session = site.talked(AGENT, "n1", 2).await;
    site.engine.cannot_delete.store(true, Ordering::SeqCst);
    let at = id_of(&site, session, "a1").await;
    assert_eq!(done(&site, session, Cut::Trim { at }).await.deleted, 2);
    let tried = "SELECT native_session_id FROM doomed_natives WHERE attempt > 0";
    until(async || site.texts(tried).await == ["n1"]).await;
    assert!(site.native("n1").exists());
    site.engine.cannot_delete.store(false, Ordering::SeqCst);
    sqlx::query("UPDATE doomed_natives SET due_ms = 0").execute(&site.raw).await.unwrap();
    until(async || site.texts("SELECT host FROM doomed_natives").await.is_empty()).await;
    assert_eq!(site.natives(), 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_cut_that_is_broken_off_is_done_by_the_next_worker() {
    let site = Site::new().await;
    let worker = site.worker(AGENT).await;
    let session = site.talked(AGENT, "n1", 2).await;
    let at = id_of(&site, session, "a1").await;
    site.engine.hangs.store(true, Ordering::SeqCst);
    let job = site.ask(session, Cut::Trim { at }).await;
    soon(site.engine.written.notified()).await;
    assert_eq!(contents(&site, session).await.len(), 4);
    worker.stop().await;
    let row = site.store.job(job).await.unwrap().unwrap();
    assert_eq!((row.state, row.attempt), (JobState::Pending, 0));
    assert_eq!(native_of(&site, session).await.as_deref(), Some("n1"));

    site.engine.hangs.store(false, Ordering::SeqCst);
    let worker = site.worker(AGENT).await;
    assert!(matches!(site.outcome(job).await, Outcome::Cut(CutResult { deleted: 2, .. })));
    until(async || site.natives() == 2).await;
    // The first copy is nobody's, and known.
    sqlx::query("UPDATE doomed_natives SET due_ms = 0").execute(&site.raw).await.unwrap();
    until(async || site.natives() == 1).await;
    assert!(site.native(&native_of(&site, session).await.unwrap()).exists());
    worker.stop().await;
}

#[tokio::test]
async fn a_session_keeps_its_engine_whatever_its_agent_has_now() {
    let site = Site::new().await;
    let worker = site.worker(AGENT).await;
    let session = site.talked("moved", "n1", 2).await;
    let at = id_of(&site, session, "a1").await;
    assert!(done(&site, session, Cut::Trim { at }).await.claude_forked);
    until(async || site.natives() == 1).await;
    worker.stop().await;
}
