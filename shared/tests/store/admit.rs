//! *admit*: what becomes of a message, by what its session does.

use std::task::Poll;

use roundhouse_shared::domain::{JobKind, JobState, MessageView, OnBusy, Role, SessionId, SessionStatus};
use roundhouse_shared::store::{
    Admission, Cancelled, Meanwhile, MessagePage, NewSession, SessionPatch, Store, StoreError, Target,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    a_message_for_an_idle_session_is_a_chat,
    a_message_for_a_new_session_creates_it,
    files_come_with_their_message,
    a_message_for_a_session_at_work_is_injected_unless_it_says_otherwise,
    a_message_to_be_enqueued_gets_a_turn_of_its_own,
    a_message_that_interrupts_cancels_what_runs_and_gets_a_turn_of_its_own,
    a_message_that_must_not_wait_is_refused_and_not_stored,
    a_session_with_mail_is_busy_though_no_worker_has_it,
    a_session_whose_worker_died_is_busy_while_its_mail_is_unanswered,
    on_busy_does_not_matter_to_an_idle_session,
    an_unknown_session_gets_nothing,
    arrival_is_numbered_without_gaps_however_many_write_at_once,
    a_caller_that_goes_away_leaves_nothing_behind_that_blocks_others,
];

async fn a_message_for_an_idle_session_is_a_chat(store: &Store) {
    let session = session(store).await;
    let admission = Admission { origin: "agent:boss".to_owned(), ..message(session, "hello") };

    let admitted = store.admit(&admission).await.unwrap();

    assert_eq!((admitted.job, admitted.session, admitted.kind), (admission.job, session, JobKind::Chat));
    assert_eq!(admitted.interrupted, None);
    let stored = store.messages(session, MessagePage { limit: 10, ..MessagePage::default() }).await.unwrap();
    assert_eq!(stored, [admitted.message.unwrap()]);
    let message = &stored[0];
    assert_eq!((message.content.as_str(), message.origin.as_str()), ("hello", "agent:boss"));
    assert_eq!((message.role, message.job, message.turn), (Role::User, Some(admission.job), None));
    assert!(!message.cancelled && message.usage.is_none());

    let job = job(store, admission.job).await;
    assert_eq!((job.state, job.kind, job.attempt), (JobState::Pending, JobKind::Chat, 0));
    assert_eq!((job.message, job.turn, job.worker), (Some(message.id), None, None));
    assert_eq!((job.started_ms, job.ended_ms, job.created_ms), (None, None, message.created_ms));
    assert_eq!((job.agent.as_str(), job.session), ("helper", session));

    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.message_count, row.last_message), (1, Some(message.id)));
    assert_eq!((row.status, row.updated_ms), (SessionStatus::Queued, message.created_ms));
}

async fn a_message_for_a_new_session_creates_it(store: &Store) {
    let new = NewSession { agent: "writer".to_owned(), title: Some("T".to_owned()), ..new_session() };
    let admitted = store.admit(&message_to(Target::New(new.clone()), "hello")).await.unwrap();

    assert_eq!((admitted.session, admitted.kind), (new.id, JobKind::Chat));
    let row = store.session(new.id).await.unwrap().unwrap();
    assert_eq!((row.agent.as_str(), row.title.as_deref(), row.message_count), ("writer", Some("T"), 1));
    assert_eq!(contents(store, new.id).await, ["hello"]);
    let (lease, mail) = begin(store, new.id).await;
    assert_eq!((lease.token.0, jobs_of(&mail)), (1, vec![admitted.job]));
}

async fn files_come_with_their_message(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    assert_eq!(mail.jobs[0].attachments, None);
    let file = |name: &str| json!({"name": name, "mediaType": "text/plain", "size": 2, "data": "aGk="});
    let with = |files: &serde_json::Value| Admission {
        attachments: Some(files.clone()),
        ..message(session, "read this")
    };
    let (one, two) = (json!([file("ä.txt"), file("b.txt")]), json!([file("c.txt")]));

    let admitted = store.admit(&with(&one)).await.unwrap().message.unwrap();
    admit(store, session, "without").await;
    store.admit(&with(&two)).await.unwrap();

    let page = MessagePage { limit: 10, ..MessagePage::default() };
    let stored = store.messages(session, page).await.unwrap();
    assert_eq!((&stored[1], stored[1].attachments.as_ref()), (&admitted, Some(&one)));
    let view = MessageView::from(admitted).attachments.unwrap();
    assert_eq!(view[0], json!({"name": "ä.txt", "mediaType": "text/plain", "size": 2}));
    assert!(!view.to_string().contains("data"), "{view}");
    let groups = store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();
    let files: Vec<_> = groups[0].jobs.iter().map(|job| job.attachments.clone()).collect();
    assert_eq!(files, [Some(one.clone()), None, Some(two.clone())]);
    // Shown to the model together, as their messages are.
    let context = store.context(session).await.unwrap();
    assert_eq!(context[1].attachments, Some(json!([file("ä.txt"), file("b.txt"), file("c.txt")])));
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();

    // A turn of their own has them from the start, and after a crash.
    store.admit(&with(&two)).await.unwrap();
    let (_, mail) = begin_and_die(store, session).await;
    assert_eq!(mail.jobs[0].attachments, Some(two.clone()));
    store.reap(session, 3).await.unwrap().unwrap();
    assert_eq!(begin(store, session).await.1.jobs[0].attachments, Some(two));
}

async fn a_message_for_a_session_at_work_is_injected_unless_it_says_otherwise(store: &Store) {
    let (session, ..) = running(store).await;
    let admitted = store.admit(&message(session, "more")).await.unwrap();
    assert_eq!((admitted.kind, admitted.interrupted), (JobKind::Inject, None));
    assert_eq!(job(store, admitted.job).await.state, JobState::Pending);
    assert_eq!(contents(store, session).await, ["first", "more"]);
}

async fn a_message_to_be_enqueued_gets_a_turn_of_its_own(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let admission = Admission { on_busy: OnBusy::Enqueue, ..message(session, "later") };
    let admitted = store.admit(&admission).await.unwrap();
    assert_eq!((admitted.kind, admitted.interrupted), (JobKind::Chat, None));

    let finished = store.finish(&lease, answered(mail.turn, "done")).await.unwrap();
    assert_eq!(ids(&finished.ended), [first]);
    assert_eq!(jobs_of(&store.drain(&lease).await.unwrap().unwrap()), [admitted.job]);
}

async fn a_message_that_interrupts_cancels_what_runs_and_gets_a_turn_of_its_own(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let injected = admit(store, session, "injected").await;
    let enqueued = enqueue(store, session, "enqueued").await;

    let admission = Admission { on_busy: OnBusy::Interrupt, ..message(session, "now") };
    let admitted = store.admit(&admission).await.unwrap();

    assert_eq!(admitted.kind, JobKind::Chat);
    let interrupted = admitted.interrupted.unwrap();
    assert_eq!((interrupted.turn, ids(&interrupted.ended)), (Some(mail.turn), vec![injected]));
    let finished = store.finish(&lease, answered(mail.turn, "partial")).await.unwrap();
    assert_eq!(ids(&finished.ended), [first]);
    assert!(answer(&finished.ended[0].outcome).1);
    // Those that already waited for turns of their own come first.
    for next in [enqueued, admitted.job] {
        let mail = store.drain(&lease).await.unwrap().unwrap();
        assert_eq!(jobs_of(&mail), [next]);
        let finished = store.finish(&lease, answered(mail.turn, "done")).await.unwrap();
        assert_eq!(answer(&finished.ended[0].outcome), ("done", false));
    }
}

async fn a_message_that_must_not_wait_is_refused_and_not_stored(store: &Store) {
    let (session, ..) = running(store).await;
    let before = store.session(session).await.unwrap();
    let admission = Admission { on_busy: OnBusy::Reject, ..message(session, "now or never") };

    let error = store.admit(&admission).await.unwrap_err();

    assert!(matches!(error, StoreError::SessionBusy), "{error:?}");
    assert_eq!(store.job(admission.job).await.unwrap(), None);
    assert_eq!(store.session(session).await.unwrap(), before);
    assert_eq!(contents(store, session).await, ["first"]);
}

async fn a_session_with_mail_is_busy_though_no_worker_has_it(store: &Store) {
    let session = session(store).await;
    let first = admit(store, session, "first").await;

    let admission = Admission { on_busy: OnBusy::Reject, ..message(session, "x") };
    let error = store.admit(&admission).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionBusy), "{error:?}");
    assert_eq!(store.admit(&message(session, "y")).await.unwrap().kind, JobKind::Inject);
    let admission = Admission { on_busy: OnBusy::Interrupt, ..message(session, "z") };
    let admitted = store.admit(&admission).await.unwrap();

    let interrupted = admitted.interrupted.unwrap();
    assert_eq!((interrupted.turn, interrupted.ended.len()), (None, 2));
    assert_eq!(interrupted.ended[0].job, first);
    assert_eq!(jobs_of(&begin(store, session).await.1), [admitted.job]);
}

async fn a_session_whose_worker_died_is_busy_while_its_mail_is_unanswered(store: &Store) {
    let session = session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin_and_die(store, session).await;
    assert_eq!(store.admit(&message(session, "second")).await.unwrap().kind, JobKind::Inject);

    // A dead worker that holds nothing is no reason to wait for it.
    store.finish(&lease, answered(mail.turn, "a")).await.unwrap();
    let cancelled = store.cancel_session(session).await.unwrap();
    assert_eq!(cancelled.ended.len(), 1);
    assert!(store.drain(&lease).await.unwrap().is_none());
    assert_eq!(store.admit(&message(session, "third")).await.unwrap().kind, JobKind::Chat);
}

async fn on_busy_does_not_matter_to_an_idle_session(store: &Store) {
    for &on_busy in OnBusy::ALL {
        let session = session(store).await;
        let admission = Admission { on_busy, ..message(session, "hello") };
        let admitted = store.admit(&admission).await.unwrap();
        assert_eq!((admitted.kind, admitted.interrupted), (JobKind::Chat, None::<Cancelled>), "{on_busy}");
    }
}

async fn an_unknown_session_gets_nothing(store: &Store) {
    let admission = message(SessionId::generate(), "anybody?");
    let error = store.admit(&admission).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
    assert_eq!(store.job(admission.job).await.unwrap(), None);
}

async fn arrival_is_numbered_without_gaps_however_many_write_at_once(db: &Database) {
    let session = session(&db.store).await;
    let mut writers = JoinSet::new();
    for n in 0..30 {
        let store = db.store.clone();
        writers.spawn(async move { store.admit(&message(session, &n.to_string())).await.unwrap().kind });
    }
    let kinds = writers.join_all().await;

    assert_eq!(kinds.iter().filter(|kind| **kind == JobKind::Chat).count(), 1);
    let all = "SELECT count(DISTINCT seq) FROM (SELECT seq FROM jobs UNION SELECT seq FROM messages) q";
    assert_eq!(db.number(all).await, 60);
    assert_eq!(db.number("SELECT max(seq) FROM jobs").await, 60);
    assert_eq!(db.number("SELECT last_seq FROM sessions").await, 60);
}

/// Polls a request a number of times and drops it, as a server does when its client goes away.
async fn a_caller_that_goes_away_leaves_nothing_behind_that_blocks_others(store: &Store) {
    let session = session(store).await;
    let mut stored = 0;
    for polls in 0..40 {
        let admission = message(session, "gone");
        let mut admitted = Box::pin(store.admit(&admission));
        let mut polled = 0;
        std::future::poll_fn(|context| {
            polled += 1;
            let done = admitted.as_mut().poll(context).is_ready();
            if done || polls < polled { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(admitted);
        // Its commit may be under way; whoever locks the session next comes after it.
        store.patch_session(session, &SessionPatch::default()).await.unwrap();
        stored += usize::from(store.job(admission.job).await.unwrap().is_some());
        assert_eq!(contents(store, session).await.len(), stored);
    }
    admit(store, session, "here").await;
    assert_eq!(contents(store, session).await.len(), stored + 1);
}
