//! *cancel*: what it hits, what it leaves alone, and what it wins over.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    CANCELLED_TEXT, JobId, JobKind, JobResult, JobState, Role, SessionId, TurnId,
};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{
    Begin, Cancelled, Meanwhile, MessagePage, Next, Outcome, Store, StoreError, TurnEnd, TurnOutcome,
};

use crate::support::*;

on_both_databases![
    a_cancel_ends_what_runs_next_and_not_what_waits_behind_it,
    an_idle_session_is_left_alone,
    an_unknown_session_cannot_be_cancelled,
    mail_that_no_worker_has_taken_is_cancelled_without_a_turn,
    nothing_is_left_where_all_is_cancelled,
    a_running_turn_is_flagged_and_what_was_injected_is_answered,
    a_cancel_wins_over_whatever_the_turn_says_later,
    a_cancel_that_comes_after_the_turn_does_not_hit_the_next,
    between_two_turns_the_next_one_is_cancelled,
    a_cancelled_turn_whose_worker_dies_is_not_tried_again,
    a_cancelled_turn_that_is_handed_back_is_not_tried_again,
    a_turn_that_was_cut_off_is_cancelled_before_it_goes_on,
    a_pending_job_is_cancelled_at_once,
    a_claimed_job_is_cancelled_by_way_of_its_turn,
    an_injection_is_not_cancelled_with_the_answer_of_others,
    an_ended_job_keeps_its_answer,
    an_unknown_job_cannot_be_cancelled,
    one_job_of_a_turn_that_was_cut_off_can_be_cancelled,
];

async fn state(store: &Store, id: JobId) -> JobState {
    job(store, id).await.state
}

async fn an_idle_session_is_left_alone(store: &Store) {
    let session = session(store).await;
    for _ in 0..2 {
        let cancelled = store.cancel_session(session).await.unwrap();
        assert_eq!(cancelled, Cancelled::default());
        assert!(!cancelled.any());
        admit(store, session, "next").await;
        let (lease, mail) = begin(store, session).await;
        let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
        assert_eq!(answer(&finished.ended[0].outcome), ("ok", false));
    }
}

async fn an_unknown_session_cannot_be_cancelled(store: &Store) {
    let error = store.cancel_session(SessionId::generate()).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
}

async fn mail_that_no_worker_has_taken_is_cancelled_without_a_turn(store: &Store) {
    let session = session(store).await;
    let head = admit(store, session, "head").await;
    let enqueued = enqueue(store, session, "enqueued").await;
    let injected = admit(store, session, "injected").await;

    let cancelled = store.cancel_session(session).await.unwrap();

    assert!(cancelled.any());
    assert_eq!((cancelled.turn, ids(&cancelled.ended)), (None, vec![head, injected]));
    for ended in &cancelled.ended {
        let Outcome::Answered(result) = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!((result.content.as_str(), result.cancelled), (CANCELLED_TEXT, true));
        assert_eq!((result.turn_id, result.message_id, result.iterations), (None, None, 0));
        assert_eq!(result.injected, ended.kind == JobKind::Inject);
        let row = job(store, ended.job).await;
        assert_eq!((row.state, row.result), (JobState::Cancelled, Some(JobResult::Chat(result.clone()))));
        assert_eq!((row.started_ms, row.attempt), (None, 0));
    }
    let page = MessagePage { limit: 10, ..MessagePage::default() };
    let marked: Vec<_> =
        store.messages(session, page).await.unwrap().into_iter().map(|m| (m.content, m.cancelled)).collect();
    assert_eq!(
        marked,
        [("head", true), ("enqueued", false), ("injected", true)].map(|(c, m)| (c.to_owned(), m))
    );

    let (_, mail) = begin(store, session).await;
    assert_eq!(jobs_of(&mail), [enqueued]);
    assert_eq!(told(store, session).await, said([(Role::User, "enqueued")]));
}

async fn nothing_is_left_where_all_is_cancelled(store: &Store) {
    let session = session(store).await;
    let running = admit(store, session, "running").await;
    let (lease, mail) = begin(store, session).await;
    let waiting = [admit(store, session, "injected").await, enqueue(store, session, "enqueued").await];

    let cancelled = store.cancel_all(session).await.unwrap();

    assert_eq!((cancelled.turn, ids(&cancelled.ended)), (Some(mail.turn), waiting.to_vec()));
    let finished = store.finish(&lease, answered(mail.turn, "late")).await.unwrap();
    assert_eq!((finished.next, ids(&finished.ended)), (Next::Idle, vec![running]));
    assert!(!store.cancel_all(session).await.unwrap().any());
    let error = store.cancel_all(SessionId::generate()).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
}

async fn a_running_turn_is_flagged_and_what_was_injected_is_answered(store: &Store) {
    let session = session(store).await;
    let first = admit(store, session, "first").await;
    let worker = registered(store).await;
    let (lease, mail) = begin_as(store, session, worker, LONG_MS).await;
    let injected = admit(store, session, "injected").await;
    let enqueued = enqueue(store, session, "enqueued").await;
    let held = store.held(worker).await.unwrap();
    assert_eq!((held[0].turn, held[0].cancel_turn), (Some(mail.turn), None));

    let cancelled = store.cancel_session(session).await.unwrap();

    assert_eq!((cancelled.turn, ids(&cancelled.ended)), (Some(mail.turn), vec![injected]));
    assert_eq!(state(store, first).await, JobState::Claimed);
    assert_eq!(state(store, enqueued).await, JobState::Pending);
    let held = store.held(worker).await.unwrap();
    assert_eq!((held[0].turn, held[0].cancel_turn), (Some(mail.turn), Some(mail.turn)));
    // Once more changes nothing, and what is injected after the cancel stays.
    let late = admit(store, session, "late").await;
    store.cancel_job(first).await.unwrap();
    let end = TurnEnd { outcome: TurnOutcome::Cancelled, ..answered(mail.turn, "half") };
    let finished = store.finish(&lease, end).await.unwrap();
    assert_eq!((ids(&finished.ended), finished.next), (vec![first], Next::Turn));
    assert_eq!(jobs_of(&store.drain(&lease).await.unwrap().unwrap()), [enqueued]);
    assert_eq!(state(store, late).await, JobState::Pending);
}

async fn a_cancel_wins_over_whatever_the_turn_says_later(store: &Store) {
    let failed = TurnOutcome::Failed(Problem::new(Code::Internal));
    for outcome in [TurnOutcome::Answered, TurnOutcome::Cancelled, failed] {
        let (session, first, lease, mail) = running(store).await;
        store.cancel_session(session).await.unwrap();
        let end = TurnEnd { outcome, ..answered(mail.turn, "too late") };

        let finished = store.finish(&lease, end).await.unwrap();

        assert!(matches!(finished.outcome, TurnOutcome::Cancelled), "{finished:?}");
        assert_eq!(answer(&finished.ended[0].outcome), (CANCELLED_TEXT, true));
        assert_eq!(state(store, first).await, JobState::Cancelled);
        assert_eq!(
            (finished.messages[0].content.as_str(), finished.messages[0].cancelled),
            ("too late", true)
        );
    }
}

async fn a_cancel_that_comes_after_the_turn_does_not_hit_the_next(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert!(!store.cancel_session(session).await.unwrap().any());
    assert!(!store.cancel_job(first).await.unwrap().1.any());

    // Nor does a flag outlive its turn where the lease stays.
    admit(store, session, "second").await;
    let (lease, mail) = begin(store, session).await;
    enqueue(store, session, "third").await;
    store.cancel_session(session).await.unwrap();
    store.finish(&lease, answered(mail.turn, "x")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(answer(&finished.ended[0].outcome), ("ok", false));
}

async fn between_two_turns_the_next_one_is_cancelled(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let second = enqueue(store, session, "second").await;
    let third = enqueue(store, session, "third").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let cancelled = store.cancel_session(session).await.unwrap();
    assert_eq!((cancelled.turn, ids(&cancelled.ended)), (None, vec![second]));
    assert_eq!(jobs_of(&store.drain(&lease).await.unwrap().unwrap()), [third]);
}

/// A worker died at its first turn, which was cancelled; the session has mail that stays.
async fn a_cancelled_turn_whose_worker_dies_is_not_tried_again(store: &Store) {
    let session = session(store).await;
    let first = admit(store, session, "first").await;
    let (_, mail) = begin_and_die(store, session).await;
    let enqueued = enqueue(store, session, "enqueued").await;
    store.cancel_session(session).await.unwrap();

    let reaped = store.reap(session, 3).await.unwrap().unwrap();

    assert_eq!(ids(&reaped.ended), [first]);
    assert_ended_as_cancelled(store, first, mail.turn).await;
    assert_eq!(reaped.next.unwrap().job, enqueued);
    assert_eq!(jobs_of(&begin(store, session).await.1), [enqueued]);
}

async fn a_cancelled_turn_that_is_handed_back_is_not_tried_again(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    store.cancel_session(session).await.unwrap();

    let handed_back = store.hand_back(&lease).await.unwrap();

    assert_eq!((handed_back.next, ids(&handed_back.ended)), (None, vec![first]));
    assert_ended_as_cancelled(store, first, mail.turn).await;
    let begin = try_begin(store, session, lease.worker, LONG_MS).await.unwrap();
    assert!(matches!(begin, Begin::NoMail), "{begin:?}");
}

async fn assert_ended_as_cancelled(store: &Store, id: JobId, turn: TurnId) {
    let row = job(store, id).await;
    let Some(JobResult::Chat(result)) = row.result else { panic!("{row:?}") };
    assert_eq!((row.state, result.content.as_str()), (JobState::Cancelled, CANCELLED_TEXT));
    assert_eq!((result.cancelled, result.turn_id), (true, Some(turn)));
}

async fn a_turn_that_was_cut_off_is_cancelled_before_it_goes_on(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    store.hand_back(&lease).await.unwrap();
    let cancelled = store.cancel_session(session).await.unwrap();
    assert_eq!((cancelled.turn, ids(&cancelled.ended)), (None, vec![first]));
    // A turn had taken it, though none will answer it.
    assert_ended_as_cancelled(store, first, mail.turn).await;
}

async fn a_pending_job_is_cancelled_at_once(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let waiting = enqueue(store, session, "waiting").await;
    let (of, cancelled) = store.cancel_job(waiting).await.unwrap();
    assert_eq!((of, cancelled.turn, ids(&cancelled.ended)), (session, None, vec![waiting]));
    assert_eq!(answer(&cancelled.ended[0].outcome), (CANCELLED_TEXT, true));
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!((ids(&finished.ended), finished.next), (vec![first], Next::Idle));
    assert_eq!(answer(&finished.ended[0].outcome), ("ok", false));
}

async fn a_claimed_job_is_cancelled_by_way_of_its_turn(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let merged = admit(store, session, "merged").await;
    store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();
    let injected = admit(store, session, "c").await;

    let (of, cancelled) = store.cancel_job(first).await.unwrap();

    assert_eq!((of, cancelled.turn, ids(&cancelled.ended)), (session, Some(mail.turn), vec![]));
    let finished = store.finish(&lease, answered(mail.turn, "x")).await.unwrap();
    assert_eq!(ids(&finished.ended), [first, merged]);
    assert!(finished.ended.iter().all(|ended| answer(&ended.outcome).1));
    assert_eq!(state(store, injected).await, JobState::Pending);
    // Alone in its turn, an injection is cancelled as any.
    let mail = store.drain(&lease).await.unwrap().unwrap();
    assert_eq!(store.cancel_job(injected).await.unwrap().1.turn, Some(mail.turn));
}

async fn an_injection_is_not_cancelled_with_the_answer_of_others(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let both = [admit(store, session, "a").await, admit(store, session, "b").await];
    store.drain_more(&lease, mail.turn, Meanwhile::Boundary).await.unwrap();
    for injected in both {
        assert_eq!(store.cancel_job(injected).await.unwrap(), (session, Cancelled::default()));
    }
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(ids(&finished.ended), [first, both[0], both[1]]);
    assert!(finished.ended.iter().all(|ended| answer(&ended.outcome) == ("ok", false)));
}

async fn an_ended_job_keeps_its_answer(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let second = enqueue(store, session, "second").await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();
    let before = job(store, first).await;

    assert_eq!(store.cancel_job(first).await.unwrap(), (session, Cancelled::default()));

    assert_eq!(job(store, first).await, before);
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!((ids(&finished.ended), answer(&finished.ended[0].outcome)), (vec![second], ("ok", false)));
}

async fn an_unknown_job_cannot_be_cancelled(store: &Store) {
    let error = store.cancel_job(JobId::generate()).await.unwrap_err();
    assert!(matches!(error, StoreError::JobNotFound), "{error:?}");
}

async fn one_job_of_a_turn_that_was_cut_off_can_be_cancelled(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let merged = [admit(store, session, "a").await, admit(store, session, "b").await];
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    let mail = store.drain(&lease).await.unwrap().unwrap();
    store.hand_back(&lease).await.unwrap();

    let (_, cancelled) = store.cancel_job(merged[0]).await.unwrap();

    assert_eq!(ids(&cancelled.ended), [merged[0]]);
    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, jobs_of(&again)), (mail.turn, vec![merged[1]]));
    store.finish(&lease, answered(again.turn, "b only")).await.unwrap();
}

async fn a_cancel_ends_what_runs_next_and_not_what_waits_behind_it(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let enqueued = enqueue(store, session, "enqueued").await;
    let injected = admit(store, session, "injected").await;
    store.drain_more(&lease, mail.turn, Meanwhile::AnyTime { room: 10 }).await.unwrap();
    // The engine has it, and not its model: it comes first from now on, although it was sent last.
    let end = TurnEnd { undelivered: vec![injected], ..answered(mail.turn, "ok") };
    store.finish(&lease, end).await.unwrap();
    assert_eq!(store.hand_back(&lease).await.unwrap().next.unwrap().job, injected);

    let cancelled = store.cancel_session(session).await.unwrap();

    assert_eq!(ids(&cancelled.ended), [injected]);
    assert_eq!(jobs_of(&begin(store, session).await.1), [enqueued]);
}
