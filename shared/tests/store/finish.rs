//! *finish*: a turn's end, its answers, and what becomes of the lease.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{
    CANCELLED_TEXT, ContextSource, JobKind, JobResult, JobState, Role, SessionStatus, TokenUsage, Usage,
};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{
    Begin, MessagePage, Next, Outcome, Store, StoreError, TurnEnd, TurnOutcome, WrittenMessage,
};

use crate::support::*;

on_both_databases![
    every_job_of_a_turn_gets_the_turns_answer,
    the_lease_goes_with_the_last_mail,
    the_lease_stays_while_there_is_mail,
    usage_is_the_turns_own_and_the_sessions_sum,
    what_the_model_wrote_is_stored_and_the_last_of_it_is_the_answer,
    a_turn_that_wrote_nothing_has_an_empty_answer,
    a_failed_turn_fails_its_jobs_and_the_session_stays_usable,
    a_turn_that_was_interrupted_keeps_its_text_marked,
    the_engines_conversation_is_the_one_that_was_adopted_last,
    an_expired_lease_that_nobody_has_taken_is_still_good,
    a_turn_ends_once,
];

async fn every_job_of_a_turn_gets_the_turns_answer(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let injected = [admit(store, session, "a").await, admit(store, session, "b").await];
    let finished = store.finish(&lease, answered(mail.turn, "one")).await.unwrap();
    assert_eq!(ids(&finished.ended), [first]);
    let mail = store.drain(&lease).await.unwrap().unwrap();
    let end = TurnEnd { usage: USAGE, iterations: 4, ..answered(mail.turn, "two") };

    let finished = store.finish(&lease, end).await.unwrap();

    assert!(matches!(finished.outcome, TurnOutcome::Answered));
    assert_eq!(ids(&finished.ended), injected);
    for ended in &finished.ended {
        let Outcome::Answered(result) = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!((result.content.as_str(), result.iterations), ("two", 4));
        assert_eq!((ended.kind, result.injected, result.cancelled), (JobKind::Inject, true, false));
        assert_eq!((result.job_id, result.correlation_id), (ended.job, ended.job));
        assert_eq!((result.session_id, result.turn_id), (session, Some(mail.turn)));
        assert_eq!(result.message_id, Some(finished.messages[0].id));
        assert_eq!((result.model.as_deref(), result.context_source), (Some("model"), ContextSource::Replay));
        assert_eq!(
            result.token_usage,
            TokenUsage { input: Some(10), output: Some(20), cache: Some(5), cost: Some(1.5) }
        );
        let row = job(store, ended.job).await;
        assert_eq!((row.state, row.result), (JobState::Succeeded, Some(JobResult::Chat(result.clone()))));
        assert_eq!(row.ended_ms.unwrap() - row.started_ms.unwrap(), result.duration_ms);
    }
    let Some(Outcome::Answered(result)) = finished_once(store, first).await else { panic!() };
    assert_eq!((result.content.as_str(), result.injected), ("one", false));
}

async fn finished_once(store: &Store, job: roundhouse_shared::domain::JobId) -> Option<Outcome> {
    store.outcomes(&[job]).await.unwrap().pop().map(|(_, outcome)| outcome)
}

async fn the_lease_goes_with_the_last_mail(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(finished.next, Next::Idle);
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.status, row.active_turn), (SessionStatus::Idle, None));
    let error = store.drain(&lease).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");

    // Whoever comes after the end finds a free session.
    assert_eq!(store.admit(&message(session, "next")).await.unwrap().kind, JobKind::Chat);
    assert_eq!(begin(store, session).await.0.token.0, 2);
}

async fn the_lease_stays_while_there_is_mail(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    // Whoever comes before the end is seen by it.
    let injected = admit(store, session, "just in time").await;
    let finished = store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_eq!(finished.next, Next::Turn);
    assert_eq!(store.session(session).await.unwrap().unwrap().status, SessionStatus::Queued);
    let begin = try_begin(store, session, lease.worker, LONG_MS).await.unwrap();
    assert!(matches!(begin, Begin::Held(_)), "{begin:?}");
    assert_eq!(jobs_of(&store.drain(&lease).await.unwrap().unwrap()), [injected]);
}

async fn usage_is_the_turns_own_and_the_sessions_sum(store: &Store) {
    let session = session(store).await;
    let unknown = Usage { cost_nanos: None, ..USAGE };
    let mut sums = Vec::new();
    for usage in [unknown, USAGE, unknown, USAGE] {
        admit(store, session, "hello").await;
        let (lease, mail) = begin(store, session).await;
        let end = TurnEnd { usage, ..answered(mail.turn, "ok") };
        let finished = store.finish(&lease, end).await.unwrap();
        assert_eq!(tokens(&finished.ended[0].outcome), usage.into());
        sums.push(store.session(session).await.unwrap().unwrap().usage);
    }
    let costs: Vec<_> = sums.iter().map(|sum| sum.cost_nanos).collect();
    assert_eq!(costs, [None, Some(1_500_000_000), Some(1_500_000_000), Some(3_000_000_000)]);
    let last = sums[3];
    assert_eq!((last.input_tokens, last.output_tokens, last.cache_tokens), (40, 80, 20));
}

async fn what_the_model_wrote_is_stored_and_the_last_of_it_is_the_answer(store: &Store) {
    let (session, job, lease, mail) = running(store).await;
    let before_a_tool = WrittenMessage { content: "let me look".to_owned(), ..WrittenMessage::default() };
    let answer = WrittenMessage {
        content: "it is 42".to_owned(),
        thinking: Some("hm".to_owned()),
        model: Some("deep".to_owned()),
        usage: USAGE,
        thinking_tokens: 7,
        ..WrittenMessage::default()
    };
    let end = TurnEnd { messages: vec![before_a_tool, answer], ..answered(mail.turn, "") };

    let finished = store.finish(&lease, end).await.unwrap();

    let page = MessagePage { limit: 10, ..MessagePage::default() };
    let stored = store.messages(session, page).await.unwrap();
    assert_eq!(stored[1..], finished.messages);
    assert_eq!((stored[0].turn, stored[0].job), (Some(mail.turn), Some(job)));
    for written in &stored[1..] {
        assert_eq!((written.role, written.turn, written.job), (Role::Assistant, Some(mail.turn), None));
        assert_eq!((written.origin.as_str(), written.cancelled), ("engine", false));
    }
    let last = &stored[2];
    assert_eq!((last.thinking.as_deref(), last.model.as_deref()), (Some("hm"), Some("deep")));
    assert_eq!((last.usage, last.thinking_tokens), (Some(USAGE), Some(7)));
    let Some(Outcome::Answered(result)) = finished_once(store, job).await else { panic!() };
    assert_eq!((result.content.as_str(), result.message_id), ("it is 42", Some(last.id)));
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.message_count, row.last_message), (3, Some(last.id)));
}

async fn a_turn_that_wrote_nothing_has_an_empty_answer(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let end = TurnEnd { messages: Vec::new(), ..answered(mail.turn, "") };
    let finished = store.finish(&lease, end).await.unwrap();
    assert_eq!(answer(&finished.ended[0].outcome), ("", false));
    assert_eq!(contents(store, session).await, ["first"]);
}

async fn a_failed_turn_fails_its_jobs_and_the_session_stays_usable(store: &Store) {
    let (session, first, lease, mail) = running(store).await;
    let problem = Problem::with_detail(Code::Internal, "the provider said no");
    let end = TurnEnd {
        outcome: TurnOutcome::Failed(problem.clone()),
        messages: Vec::new(),
        usage: USAGE,
        ..answered(mail.turn, "")
    };

    let finished = store.finish(&lease, end).await.unwrap();

    assert_eq!(finished.ended[0].outcome, Outcome::Failed(problem.clone()));
    let row = job(store, first).await;
    assert_eq!((row.state, row.problem, row.result), (JobState::Failed, Some(problem), None));
    let row = store.session(session).await.unwrap().unwrap();
    assert_eq!((row.status, row.usage), (SessionStatus::Error, USAGE));

    admit(store, session, "again").await;
    let (lease, mail) = begin(store, session).await;
    store.finish(&lease, answered(mail.turn, "better")).await.unwrap();
    assert_eq!(store.session(session).await.unwrap().unwrap().status, SessionStatus::Idle);
}

async fn a_turn_that_was_interrupted_keeps_its_text_marked(store: &Store) {
    let (_, first, lease, mail) = running(store).await;
    let end = TurnEnd { outcome: TurnOutcome::Cancelled, usage: USAGE, ..answered(mail.turn, "half a sen") };
    let finished = store.finish(&lease, end).await.unwrap();
    assert_eq!((finished.messages[0].content.as_str(), finished.messages[0].cancelled), ("half a sen", true));
    assert_eq!(answer(&finished.ended[0].outcome), (CANCELLED_TEXT, true));
    assert_eq!(tokens(&finished.ended[0].outcome), USAGE.into());
    assert_eq!(job(store, first).await.state, JobState::Cancelled);
}

async fn the_engines_conversation_is_the_one_that_was_adopted_last(store: &Store) {
    let session = session(store).await;
    for native in ["native-1", "native-2"] {
        admit(store, session, "hello").await;
        let (lease, mail) = begin(store, session).await;
        store.adopt_native(&lease, native, "host").await.unwrap();
        store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
        let row = store.session(session).await.unwrap().unwrap();
        assert_eq!(row.native_session.as_deref(), Some(native));
        admit(store, session, "and?").await;
        let (lease, mail) = begin(store, session).await;
        assert_eq!(mail.native_session.as_deref(), Some(native));
        store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    }
}

async fn an_expired_lease_that_nobody_has_taken_is_still_good(store: &Store) {
    let session = session(store).await;
    let job = admit(store, session, "hello").await;
    let (lease, mail) = begin_and_die(store, session).await;
    let finished = store.finish(&lease, answered(mail.turn, "not dead yet")).await.unwrap();
    assert_eq!((ids(&finished.ended), finished.next), (vec![job], Next::Idle));
}

/// A run may not know that its commit went through, and try again.
async fn a_turn_ends_once(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    admit(store, session, "second").await;
    let end = TurnEnd { usage: USAGE, ..answered(mail.turn, "ok") };
    assert_eq!(store.finish(&lease, end.clone()).await.unwrap().next, Next::Turn);
    let before = store.session(session).await.unwrap();

    for _ in 0..2 {
        let error = store.finish(&lease, end.clone()).await.unwrap_err();
        assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
        assert_eq!(contents(store, session).await, ["first", "second", "ok"]);
        assert_eq!(store.session(session).await.unwrap(), before);
    }
    let mail = store.drain(&lease).await.unwrap().unwrap();
    let error = store.finish(&lease, end).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost), "{error:?}");
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
}
