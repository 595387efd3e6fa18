//! Jobs as clients and operators read them.

use super::db::{Row, values};
use super::rows::{JOB_COLUMNS, job};
use super::{Store, StoreError};
use crate::domain::{ChatResult, CutResult, Job, JobId, JobKind, JobResult, JobState, Lane, SessionId};
use crate::problem::Problem;

/// The final answer to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// An answer, or the word that it was cancelled.
    Answered(Box<ChatResult>),
    /// What came of a fork, a trim or a reset.
    Cut(CutResult),
    /// A fork, a trim or a reset was cancelled before it began: nothing came of it.
    Cancelled,
    /// An error.
    Failed(Problem),
}

/// Which jobs to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobFilter {
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only of this kind.
    pub kind: Option<JobKind>,
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only older ones than this.
    pub before: Option<JobId>,
    /// At most so many.
    pub limit: i64,
}

/// What a queue holds, counted from the mailboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStats {
    /// The queue.
    pub lane: Lane,
    /// Jobs that wait.
    pub depth: i64,
    /// When the one that waits longest was admitted.
    pub oldest_ms: Option<i64>,
    /// Jobs that a turn has taken.
    pub running: i64,
    /// Jobs that ended in the last minute.
    pub ended_last_minute: i64,
    /// Of those, how many failed.
    pub failed_last_minute: i64,
}

impl Store {
    /// A job.
    pub async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        let sql = concat!(
            "SELECT ",
            JOB_COLUMNS!(),
            " FROM jobs j JOIN sessions s ON s.id = j.session_id WHERE j.id = $1"
        );
        self.db.first(sql, values![id.0]).await?.as_ref().map(job).transpose()
    }

    /// Jobs, the newest first.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>, StoreError> {
        let sql = concat!(
            "SELECT ",
            JOB_COLUMNS!(),
            " FROM jobs j JOIN sessions s ON s.id = j.session_id \
             WHERE ($1 = '' OR j.state = $1) AND ($2 = '' OR j.kind = $2) AND (j.session_id = $3 OR $4) \
             AND j.id < $5 ORDER BY j.id DESC LIMIT $6"
        );
        let values = values![
            filter.state.map_or("", JobState::as_str),
            filter.kind.map_or("", JobKind::as_str),
            filter.session.map_or(uuid::Uuid::nil(), |session| session.0),
            filter.session.is_none(),
            filter.before.map_or(uuid::Uuid::max(), |job| job.0),
            filter.limit,
        ];
        self.db.all(sql, values).await?.iter().map(job).collect()
    }

    /// The answers of those of the given jobs that have ended, in one query for all who wait in this process.
    /// A job that is not there any more, because its session was deleted, has its answer for some minutes, and then
    /// `JOB_NOT_FOUND`.
    pub async fn outcomes(&self, jobs: &[JobId]) -> Result<Vec<(JobId, Outcome)>, StoreError> {
        // A JSON array is the one list that both databases take as a single value.
        let list = super::finish::to_json(&jobs.iter().map(ToString::to_string).collect::<Vec<_>>());
        let sql = self.db.dialect().jobs_by_ids;
        let mut found = Vec::new();
        let mut known = std::collections::HashSet::with_capacity(jobs.len());
        for row in self.db.all(sql, values![list]).await? {
            let id = JobId(row.get("id")?);
            known.insert(id);
            found.extend(outcome(&row, id)?.map(|outcome| (id, outcome)));
        }
        for job in jobs.iter().filter(|job| !known.contains(job)) {
            let outcome = match self.last_answer(*job).await? {
                Some(outcome) => outcome,
                None => Outcome::Failed(Problem::new(crate::code::Code::JobNotFound)),
            };
            found.push((*job, outcome));
        }
        Ok(found)
    }

    /// The answer of a job whose session was deleted a while ago.
    async fn last_answer(&self, job: JobId) -> Result<Option<Outcome>, StoreError> {
        let sql = "SELECT state, result, problem FROM last_answers WHERE job_id = $1";
        match self.db.first(sql, values![job.0]).await? {
            Some(row) => outcome(&row, job),
            None => Ok(None),
        }
    }

    /// What each queue holds.
    pub async fn queue_stats(&self) -> Result<Vec<QueueStats>, StoreError> {
        let open = "SELECT kind, state, cast(count(*) AS bigint) AS n, min(created_ms) AS oldest_ms FROM jobs \
                    WHERE state IN ('pending', 'claimed') GROUP BY kind, state";
        let ended = "SELECT kind, state, cast(count(*) AS bigint) AS n FROM jobs \
                     WHERE ended_ms IS NOT NULL AND ended_ms > $1 GROUP BY kind, state";
        let mut stats: Vec<QueueStats> = Lane::ALL.iter().copied().map(QueueStats::empty).collect();
        for row in self.db.all(open, values![]).await? {
            let Some(of) = of_lane(&mut stats, &row.get::<String>("kind")?) else { continue };
            let n: i64 = row.get("n")?;
            if row.get::<String>("state")? == JobState::Pending.as_str() {
                of.depth += n;
                let oldest: Option<i64> = row.get("oldest_ms")?;
                of.oldest_ms = [of.oldest_ms, oldest].into_iter().flatten().min();
            } else {
                of.running += n;
            }
        }
        let since = self.now_ms().await? - 60_000;
        for row in self.db.all(ended, values![since]).await? {
            let Some(of) = of_lane(&mut stats, &row.get::<String>("kind")?) else { continue };
            let n: i64 = row.get("n")?;
            of.ended_last_minute += n;
            if row.get::<String>("state")? == JobState::Failed.as_str() {
                of.failed_last_minute += n;
            }
        }
        Ok(stats)
    }
}

/// The answer that a row with a job's state, result and problem has.
pub(super) fn outcome(row: &Row, job: JobId) -> Result<Option<Outcome>, StoreError> {
    let parsed = |column| StoreError::inconsistent("jobs", column, job);
    if let Some(result) = row.get::<Option<String>>("result")? {
        return Ok(Some(match serde_json::from_str(&result).map_err(|_| parsed("result"))? {
            JobResult::Chat(result) => Outcome::Answered(result),
            JobResult::Cut(result) => Outcome::Cut(result),
        }));
    }
    if let Some(problem) = row.get::<Option<String>>("problem")? {
        let problem = serde_json::from_str(&problem).map_err(|_| parsed("problem"))?;
        return Ok(Some(Outcome::Failed(problem)));
    }
    let cancelled = row.get::<String>("state")? == JobState::Cancelled.as_str();
    Ok(cancelled.then_some(Outcome::Cancelled))
}

impl QueueStats {
    const fn empty(lane: Lane) -> Self {
        Self { lane, depth: 0, oldest_ms: None, running: 0, ended_last_minute: 0, failed_last_minute: 0 }
    }
}

fn of_lane<'s>(stats: &'s mut [QueueStats], kind: &str) -> Option<&'s mut QueueStats> {
    let lane = JobKind::from_name(kind)?.lane();
    stats.iter_mut().find(|of| of.lane == lane)
}
