//! Fork, trim and reset as jobs: when they are admitted, who runs them, and what becomes of the lease.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    Cut, EngineKind, JobKind, JobResult, JobState, MessageId, OnBusy, SessionId, SessionStatus, WorkerId,
};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{
    Admission, Begin, CutAdmission, Idempotency, Outcome, Store, StoreError, WorkEnd,
};

use crate::support::*;

on_both_databases![
    a_busy_session_is_not_cut,
    what_is_cut_must_be_there,
    a_cut_is_one_job_with_one_result,
    a_message_that_comes_meanwhile_is_kept_and_answered_after_it,
    a_message_that_interrupts_waits_for_a_cut,
    a_cut_that_failed_has_changed_nothing,
    a_cut_whose_worker_dies_is_done_by_the_next,
    a_cut_that_was_handed_back_has_spent_no_try,
    a_cut_that_nobody_has_begun_can_be_cancelled,
    a_repeated_request_is_the_same_cut,
    a_key_belongs_to_one_request,
    a_cut_ends_once,
    mail_after_a_cut_is_rung_for,
];

fn trim(at: MessageId) -> Cut {
    Cut::Trim { at }
}

async fn a_busy_session_is_not_cut(store: &Store) {
    let queued = session(store).await;
    admit(store, queued, "first").await;
    let (running, ..) = running(store).await;
    let dead = session(store).await;
    admit(store, dead, "first").await;
    begin_and_die(store, dead).await;
    let cutting = session(store).await;
    admit_cut(store, cutting, Cut::Reset).await;
    for busy in [queued, running, dead, cutting] {
        let mut cuts = vec![Cut::Reset, Cut::Fork(whole())];
        if let Some(message) = messages(store, busy).await.pop() {
            cuts.push(trim(message.id));
            let error = store.delete_message(busy, message.id).await.unwrap_err();
            assert!(matches!(error, StoreError::SessionBusy), "{error:?}");
        }
        for cut in cuts {
            let error = try_cut(store, busy, cut).await.unwrap_err();
            assert!(matches!(error, StoreError::SessionBusy), "{error:?}");
        }
    }
    // A message finds a session that is to be cut as busy as any.
    let admission = Admission { on_busy: OnBusy::Reject, ..message(cutting, "no") };
    let error = store.admit(&admission).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionBusy), "{error:?}");
    assert_eq!(store.session(cutting).await.unwrap().unwrap().status, SessionStatus::Queued);
}

async fn what_is_cut_must_be_there(store: &Store) {
    let unknown = try_cut(store, SessionId::generate(), Cut::Reset).await.unwrap_err();
    assert!(matches!(unknown, StoreError::SessionNotFound), "{unknown:?}");
    let (one, other) =
        (talked(store, EngineKind::OpenAi, 1).await, talked(store, EngineKind::OpenAi, 1).await);
    let of_other = id_of(store, other, "a1").await;
    for absent in [of_other, MessageId(0), MessageId(-1), MessageId(i64::MAX)] {
        for cut in [trim(absent), Cut::Fork(fork_at(absent))] {
            let error = try_cut(store, one, cut).await.unwrap_err();
            assert!(matches!(error, StoreError::MessageNotFound), "{error:?}");
        }
        let error = store.delete_message(one, absent).await.unwrap_err();
        assert!(matches!(error, StoreError::MessageNotFound), "{error:?}");
    }
    assert_eq!(store.session(one).await.unwrap().unwrap().status, SessionStatus::Idle);
}

async fn a_cut_is_one_job_with_one_result(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let asked = trim(id_of(store, session, "a1").await);
    let id = admit_cut(store, session, asked.clone()).await;
    let pending = job(store, id).await;
    assert_eq!((pending.kind, pending.state, pending.attempt), (JobKind::Trim, JobState::Pending, 0));

    let (lease, work) = begin_cut(store, session).await;
    assert_eq!((work.job, &work.cut, work.engine), (id, &asked, EngineKind::OpenAi));
    assert_eq!((work.agent.as_str(), work.cwd.as_str()), ("helper", ""));
    let claimed = job(store, id).await;
    assert_eq!((claimed.state, claimed.attempt, claimed.turn), (JobState::Claimed, 1, None));
    assert_eq!(claimed.worker, Some(lease.worker));
    let begun = try_begin(store, session, WorkerId::generate(), LONG_MS).await.unwrap();
    assert!(matches!(begun, Begin::Held(_)), "{begun:?}");
    assert_eq!(store.session(session).await.unwrap().unwrap().status, SessionStatus::Queued);

    let worked = store.finish_work(&lease, id, &ready()).await.unwrap();

    assert_eq!((ids(&worked.ended), worked.next), (vec![id], None));
    let result = result_of(&worked);
    let ended = job(store, id).await;
    assert_eq!((ended.state, ended.result), (JobState::Succeeded, Some(JobResult::Cut(result.clone()))));
    assert_eq!(store.outcomes(&[id]).await.unwrap(), [(id, Outcome::Cut(result))]);
    assert_eq!(store.session(session).await.unwrap().unwrap().status, SessionStatus::Idle);
    assert_lost(&store.drain(&lease).await);
}

async fn a_message_that_comes_meanwhile_is_kept_and_answered_after_it(store: &Store) {
    for begun_before in [false, true] {
        let session = talked(store, EngineKind::OpenAi, 2).await;
        let at = id_of(store, session, "a1").await;
        let cut = admit_cut(store, session, trim(at)).await;
        let before = if begun_before { Some(begin_cut(store, session).await) } else { None };
        let admitted = store.admit(&message(session, "meanwhile")).await.unwrap();
        assert_eq!(admitted.kind, JobKind::Inject);
        let (lease, _) = match before {
            Some(begun) => begun,
            None => begin_cut(store, session).await,
        };

        let worked = store.finish_work(&lease, cut, &ready()).await.unwrap();

        assert_eq!(result_of(&worked).deleted, 2);
        assert_eq!(worked.next.map(|next| next.job), Some(admitted.job));
        assert_eq!(contents(store, session).await, ["q1", "a1", "meanwhile"]);
        let (lease, mail) = begin(store, session).await;
        assert_eq!(texts_of(&mail), ["meanwhile"]);
        store.finish(&lease, answered(mail.turn, "after")).await.unwrap();
        let told: Vec<_> = told(store, session).await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(told, ["q1", "a1", "meanwhile", "after"]);
    }
}

async fn a_message_that_interrupts_waits_for_a_cut(store: &Store) {
    let interrupting = |session, text| Admission { on_busy: OnBusy::Interrupt, ..message(session, text) };
    for begun_before in [false, true] {
        let session = talked(store, EngineKind::OpenAi, 2).await;
        let at = id_of(store, session, "a1").await;
        let cut = admit_cut(store, session, trim(at)).await;
        let before = if begun_before { Some(begin_cut(store, session).await) } else { None };
        let injected = admit(store, session, "injected").await;

        let admitted = store.admit(&interrupting(session, "now")).await.unwrap();

        let interrupted = admitted.interrupted.unwrap();
        assert_eq!((interrupted.turn, ids(&interrupted.ended)), (None, vec![injected]));
        assert_eq!(admitted.kind, JobKind::Chat);
        let (lease, _) = match before {
            Some(begun) => begun,
            None => begin_cut(store, session).await,
        };
        let worked = store.finish_work(&lease, cut, &ready()).await.unwrap();
        assert_eq!(result_of(&worked).deleted, 2);
        assert_eq!(worked.next.map(|next| next.job), Some(admitted.job));
        assert_eq!(contents(store, session).await, ["q1", "a1", "injected", "now"]);
        assert_eq!(texts_of(&begin(store, session).await.1), ["now"]);
    }
}

async fn a_cut_that_failed_has_changed_nothing(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let at = id_of(store, session, "a1").await;
    let problem = Problem::with_detail(Code::ClaudeForkFailed, "no space left");
    for cut in [trim(at), Cut::Reset, Cut::Fork(fork_at(at))] {
        let before = store.session(session).await.unwrap().unwrap();
        let id = admit_cut(store, session, cut).await;
        let (lease, _) = begin_cut(store, session).await;
        let worked = store.finish_work(&lease, id, &WorkEnd::Failed(problem.clone())).await.unwrap();
        assert_eq!(worked.ended[0].outcome, Outcome::Failed(problem.clone()));
        let after = store.session(session).await.unwrap().unwrap();
        assert_eq!((after.status, after.message_count), (SessionStatus::Idle, 4));
        assert_eq!(after.history_version, before.history_version);
        assert_eq!(job(store, id).await.state, JobState::Failed);
    }
    assert_eq!(contents(store, session).await, ["q1", "a1", "q2", "a2"]);
}

async fn a_cut_whose_worker_dies_is_done_by_the_next(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let at = id_of(store, session, "a1").await;
    let id = admit_cut(store, session, trim(at)).await;
    let late = admit(store, session, "late").await;
    let mut dead = Vec::new();
    for _ in 0..2 {
        dead.push(begin_cut_as(store, session, DEAD_MS).await.0);
        let reaped = store.reap(session, 3).await.unwrap().unwrap();
        assert_eq!((reaped.next.map(|next| next.job), reaped.ended), (Some(id), vec![]));
    }
    for lease in &dead {
        assert_lost(&store.finish_work(lease, id, &ready()).await);
    }
    // The third is the last.
    let (lease, work) = begin_cut(store, session).await;
    assert_eq!(job(store, work.job).await.attempt, 3);
    let reaped = store.abandon(&lease, 3).await.unwrap().unwrap();
    assert_eq!(answer(&reaped.ended[0].outcome), ("WORKER_LOST", false));
    assert_eq!(reaped.next.map(|next| next.job), Some(late));
    assert_eq!(contents(store, session).await, ["q1", "a1", "q2", "a2", "late"]);
    let (lease, mail) = begin(store, session).await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(cut(store, session, trim(at)).await.deleted, 4);
}

async fn a_cut_that_was_handed_back_has_spent_no_try(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 1).await;
    let id = admit_cut(store, session, Cut::Reset).await;
    for _ in 0..3 {
        let (lease, _) = begin_cut(store, session).await;
        let handed_back = store.hand_back(&lease).await.unwrap();
        assert_eq!(handed_back.next.map(|next| (next.job, next.kind)), Some((id, JobKind::Reset)));
    }
    assert_eq!(job(store, id).await.attempt, 0);
    let (lease, _) = begin_cut(store, session).await;
    assert_eq!(result_of(&store.finish_work(&lease, id, &ready()).await.unwrap()).deleted, 2);
}

async fn a_cut_that_nobody_has_begun_can_be_cancelled(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 1).await;
    let id = admit_cut(store, session, Cut::Reset).await;
    let late = admit(store, session, "late").await;
    let cancelled = store.cancel_job(id).await.unwrap().1;
    assert_eq!((ids(&cancelled.ended), cancelled.turn), (vec![id], None));
    assert_eq!(cancelled.ended[0].outcome, Outcome::Cancelled);
    let row = job(store, id).await;
    assert_eq!((row.state, row.result, row.problem), (JobState::Cancelled, None, None));
    assert_eq!(store.outcomes(&[id]).await.unwrap(), [(id, Outcome::Cancelled)]);
    assert_eq!(jobs_of(&begin(store, session).await.1), [late]);

    // One that is under way is not stopped: it is short, and half of it would be nothing.
    let session = talked(store, EngineKind::OpenAi, 1).await;
    let id = admit_cut(store, session, Cut::Reset).await;
    let (lease, _) = begin_cut(store, session).await;
    assert!(!store.cancel_session(session).await.unwrap().any());
    assert!(!store.cancel_job(id).await.unwrap().1.any());
    assert_eq!(result_of(&store.finish_work(&lease, id, &ready()).await.unwrap()).deleted, 2);
}

fn keyed(session: SessionId, cut: Cut, hash: &str) -> CutAdmission {
    let idempotency = Some(Idempotency { key: "key".to_owned(), hash: hash.to_owned() });
    CutAdmission { job: roundhouse_shared::domain::JobId::generate(), session, cut, idempotency }
}

async fn a_repeated_request_is_the_same_cut(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 2).await;
    let at = id_of(store, session, "a1").await;
    let first = store.admit_cut(&keyed(session, trim(at), "hash")).await.unwrap();
    assert!(!first.replayed);
    let again = store.admit_cut(&keyed(session, trim(at), "hash")).await.unwrap();
    assert_eq!((again.job, again.replayed), (first.job, true));
    let (lease, _) = begin_cut(store, session).await;
    store.finish_work(&lease, first.job, &ready()).await.unwrap();
    turn(store, session, "q3", "a3").await;
    let again = store.admit_cut(&keyed(session, trim(at), "hash")).await.unwrap();
    assert_eq!((again.job, again.replayed), (first.job, true));
    assert_eq!(contents(store, session).await, ["q1", "a1", "q3", "a3"]);
}

async fn a_key_belongs_to_one_request(store: &Store) {
    let (one, other) = (session(store).await, session(store).await);
    store.admit_cut(&keyed(one, Cut::Reset, "hash")).await.unwrap();
    for (session, hash) in [(one, "other"), (other, "other")] {
        let error = store.admit_cut(&keyed(session, Cut::Reset, hash)).await.unwrap_err();
        assert!(matches!(error, StoreError::IdempotencyConflict), "{error:?}");
    }
}

/// A run may not know that its commit went through, and try again.
async fn a_cut_ends_once(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 1).await;
    let id = admit_cut(store, session, Cut::Reset).await;
    let (lease, _) = begin_cut(store, session).await;
    store.finish_work(&lease, id, &ready()).await.unwrap();
    turn(store, session, "q2", "a2").await;
    assert_lost(&store.finish_work(&lease, id, &ready()).await);
    assert_eq!(contents(store, session).await, ["q2", "a2"]);
}

async fn mail_after_a_cut_is_rung_for(store: &Store) {
    let session = talked(store, EngineKind::OpenAi, 1).await;
    let id = admit_cut(store, session, Cut::Reset).await;
    let swept = rung_again(store, 0, 10).await;
    assert_eq!(swept.iter().map(|job| (job.job, job.kind)).collect::<Vec<_>>(), [(id, JobKind::Reset)]);
    let (lease, _) = begin_cut(store, session).await;
    let late = admit(store, session, "late").await;
    store.finish_work(&lease, id, &ready()).await.unwrap();
    // Should that ring be lost, the sweeper finds it.
    let swept = rung_again(store, 0, 10).await;
    assert_eq!(swept.iter().map(|job| job.job).collect::<Vec<_>>(), [late]);
}
