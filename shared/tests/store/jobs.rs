//! Jobs as clients and operators read them.

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{JobId, JobKind, JobState, Lane, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{JobFilter, Outcome, QueueStats, Store, TurnEnd, TurnOutcome};

use crate::support::*;

on_both_databases![
    an_unknown_job_is_none,
    jobs_are_listed_by_state_kind_and_session,
    pages_of_jobs_have_no_gap_and_no_duplicate,
    outcomes_are_those_of_jobs_that_have_ended,
    a_job_that_is_gone_has_an_outcome_too,
    queues_are_counted_from_the_mailboxes,
    only_the_last_minute_counts_as_the_last_minute,
];

async fn an_unknown_job_is_none(store: &Store) {
    assert_eq!(store.job(JobId::generate()).await.unwrap(), None);
}

async fn list(store: &Store, filter: JobFilter) -> Vec<JobId> {
    let filter = JobFilter { limit: 20, ..filter };
    store.jobs(filter).await.unwrap().into_iter().map(|job| job.id).collect()
}

/// Four sessions with a job each that succeeded, failed, was cancelled and runs, and one that waits behind the last.
async fn one_of_each(store: &Store) -> ([SessionId; 4], [JobId; 5]) {
    let mut sessions = Vec::new();
    let mut jobs = Vec::new();
    let failed = TurnOutcome::Failed(Problem::new(Code::Internal));
    for outcome in [TurnOutcome::Answered, failed, TurnOutcome::Cancelled] {
        let (session, job, lease, mail) = running(store).await;
        store.finish(&lease, TurnEnd { outcome, ..answered(mail.turn, "ok") }).await.unwrap();
        sessions.push(session);
        jobs.push(job);
    }
    let (session, claimed, ..) = running(store).await;
    sessions.push(session);
    jobs.extend([claimed, admit(store, session, "injected").await]);
    (sessions.try_into().unwrap(), jobs.try_into().unwrap())
}

async fn jobs_are_listed_by_state_kind_and_session(store: &Store) {
    let (sessions, jobs) = one_of_each(store).await;
    let [succeeded, failed, cancelled, claimed, pending] = jobs;
    let all = JobFilter::default();

    assert_eq!(list(store, all).await, [pending, claimed, cancelled, failed, succeeded]);
    let by_state = [
        (JobState::Pending, pending),
        (JobState::Claimed, claimed),
        (JobState::Succeeded, succeeded),
        (JobState::Failed, failed),
        (JobState::Cancelled, cancelled),
    ];
    for (state, job) in by_state {
        assert_eq!(list(store, JobFilter { state: Some(state), ..all }).await, [job], "{state}");
    }
    assert_eq!(list(store, JobFilter { kind: Some(JobKind::Inject), ..all }).await, [pending]);
    assert!(list(store, JobFilter { kind: Some(JobKind::Trim), ..all }).await.is_empty());
    let of_the_last = JobFilter { session: Some(sessions[3]), ..all };
    assert_eq!(list(store, of_the_last).await, [pending, claimed]);
    let chats = JobFilter { kind: Some(JobKind::Chat), ..of_the_last };
    assert_eq!(list(store, chats).await, [claimed]);
    assert!(list(store, JobFilter { session: Some(SessionId::generate()), ..all }).await.is_empty());
    assert!(list(store, JobFilter { session: Some(SessionId(uuid::Uuid::nil())), ..all }).await.is_empty());
}

async fn pages_of_jobs_have_no_gap_and_no_duplicate(store: &Store) {
    let session = session(store).await;
    let mut all = Vec::new();
    for _ in 0..7 {
        all.push(admit(store, session, "hello").await);
    }
    for limit in [1, 3, 7, 8] {
        let mut filter = JobFilter { limit, ..JobFilter::default() };
        let mut listed = Vec::new();
        loop {
            let page = store.jobs(filter).await.unwrap();
            let Some(last) = page.last() else { break };
            filter.before = Some(last.id);
            listed.extend(page.iter().map(|job| job.id));
        }
        listed.reverse();
        assert_eq!(listed, all, "limit {limit}");
    }
}

async fn outcomes_are_those_of_jobs_that_have_ended(store: &Store) {
    let (_, jobs) = one_of_each(store).await;
    let mut outcomes = store.outcomes(&jobs).await.unwrap();
    outcomes.sort_by_key(|(job, _)| *job);
    assert_eq!(outcomes.iter().map(|(job, _)| *job).collect::<Vec<_>>(), jobs[..3]);
    assert_eq!(answer(&outcomes[0].1), ("ok", false));
    assert_eq!(outcomes[1].1, Outcome::Failed(Problem::new(Code::Internal)));
    assert!(answer(&outcomes[2].1).1);
    assert_eq!(store.outcomes(&jobs[3..]).await.unwrap(), []);
    assert_eq!(store.outcomes(&[]).await.unwrap(), []);
}

async fn a_job_that_is_gone_has_an_outcome_too(store: &Store) {
    let (session, job, lease, mail) = running(store).await;
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    store.delete_session(session).await.unwrap();
    let (_, waits, ..) = running(store).await;
    let outcomes = store.outcomes(&[waits, job]).await.unwrap();
    // Somebody may still wait for its answer.
    assert_eq!((outcomes.len(), outcomes[0].0, answer(&outcomes[0].1)), (1, job, ("ok", false)));
    let never = JobId::generate();
    let outcomes = store.outcomes(&[never]).await.unwrap();
    assert_eq!(outcomes, [(never, Outcome::Failed(Problem::new(Code::JobNotFound)))]);
}

fn empty(lane: Lane) -> QueueStats {
    QueueStats { lane, depth: 0, oldest_ms: None, running: 0, ended_last_minute: 0, failed_last_minute: 0 }
}

async fn queues_are_counted_from_the_mailboxes(store: &Store) {
    assert_eq!(store.queue_stats().await.unwrap(), [Lane::Chat, Lane::Inject, Lane::Maintenance].map(empty));
    let (sessions, jobs) = one_of_each(store).await;
    let more = [enqueue(store, sessions[3], "a").await, enqueue(store, sessions[3], "b").await];

    let stats = store.queue_stats().await.unwrap();

    let chat = QueueStats {
        depth: 2,
        oldest_ms: Some(job(store, more[0]).await.created_ms),
        running: 1,
        ended_last_minute: 3,
        failed_last_minute: 1,
        ..empty(Lane::Chat)
    };
    let oldest_ms = Some(job(store, jobs[4]).await.created_ms);
    let inject = QueueStats { depth: 1, oldest_ms, ..empty(Lane::Inject) };
    assert_eq!(stats, [chat, inject, empty(Lane::Maintenance)]);
}

async fn only_the_last_minute_counts_as_the_last_minute(db: &Database) {
    one_of_each(&db.store).await;
    db.execute("UPDATE jobs SET ended_ms = ended_ms - 60001 WHERE state <> 'failed'").await;
    let stats = db.store.queue_stats().await.unwrap();
    assert_eq!((stats[0].ended_last_minute, stats[0].failed_last_minute), (1, 1));
    db.execute("UPDATE jobs SET ended_ms = ended_ms - 60001 WHERE state = 'failed'").await;
    let stats = db.store.queue_stats().await.unwrap();
    assert_eq!((stats[0].ended_last_minute, stats[0].failed_last_minute), (0, 0));
}
