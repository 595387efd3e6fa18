//! What clients see of sessions, jobs, queues and workers. The domain is plain data; here it gets its wire form.

use roundhouse_shared::clock::{now_ms, rfc3339};
use roundhouse_shared::domain::{
    AgentStatus, EngineKind, HeldLease, Job, JobId, JobKind, JobResult, JobState, Lane, MessageId, Session,
    SessionId, SessionStatus, TokenUsage, TurnId, Worker, WorkerId,
};
use roundhouse_shared::store::QueueStats;
use serde::Serialize;

use crate::problem::ProblemBody;

/// A session.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
pub(crate) struct SessionView {
    /// Its id.
    id: SessionId,
    /// Its agent.
    agent: String,
    /// Its engine, for life.
    engine: EngineKind,
    /// The model of its turns.
    model: Option<String>,
    /// A title for people.
    title: Option<String>,
    /// Its working directory; `null`: a fresh one of its own.
    cwd: Option<String>,
    /// What it does.
    status: SessionStatus,
    /// The engine's own id of the conversation.
    native_session_id: Option<String>,
    /// The session it was forked from or spawned by.
    parent_session_id: Option<SessionId>,
    /// The message it was forked at.
    forked_from_message_id: Option<MessageId>,
    /// How many messages it has.
    message_count: i64,
    /// How many messages the newest summary stands for.
    compact_size: i64,
    /// Grows with every cut.
    history_version: i64,
    /// What all its turns used together.
    usage: TokenUsage,
    /// The turn that runs now.
    active_turn_id: Option<TurnId>,
    /// Its newest message.
    last_message_id: Option<MessageId>,
    /// When it was created.
    created_at: String,
    /// When something last happened in it.
    updated_at: String,
    /// When an engine was last connected to it.
    connected_at: Option<String>,
    /// Put away by its user.
    archived: bool,
    /// The client's own data.
    #[schema(value_type = Object)]
    metadata: serde_json::Value,
}

impl From<Session> for SessionView {
    fn from(session: Session) -> Self {
        Self {
            id: session.id,
            agent: session.agent,
            engine: session.engine,
            model: session.model,
            title: session.title,
            cwd: Some(session.cwd).filter(|cwd| !cwd.is_empty()),
            status: session.status,
            native_session_id: session.native_session,
            parent_session_id: session.parent,
            forked_from_message_id: session.forked_from,
            message_count: session.message_count,
            compact_size: session.compact_size,
            history_version: session.history_version,
            usage: TokenUsage::total(session.usage),
            active_turn_id: session.active_turn,
            last_message_id: session.last_message,
            created_at: rfc3339(session.created_ms),
            updated_at: rfc3339(session.updated_ms),
            connected_at: session.connected_ms.map(rfc3339),
            archived: session.archived,
            metadata: session.metadata,
        }
    }
}

/// A job.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Job)]
pub(crate) struct JobView {
    /// Its id, which is also the correlation id.
    id: JobId,
    /// The session whose mailbox it lies in.
    session_id: SessionId,
    /// Its agent.
    agent: String,
    /// What it asks for.
    kind: JobKind,
    /// Where it is.
    state: JobState,
    /// How often it was started.
    attempt: i64,
    /// The turn that took it.
    turn_id: Option<TurnId>,
    /// The user's message that came with it.
    message_id: Option<MessageId>,
    /// The worker that took it last.
    worker_id: Option<WorkerId>,
    /// When it was admitted.
    created_at: String,
    /// When it was taken first.
    started_at: Option<String>,
    /// When it ended.
    ended_at: Option<String>,
    /// How long it waited for a turn, in milliseconds; so far, where it still waits.
    waited_ms: i64,
    /// How long it ran, in milliseconds; so far, where it still runs.
    ran_ms: Option<i64>,
    /// The answer, also the word that it was cancelled, or what came of a fork, a trim or a reset.
    result: Option<JobResult>,
    /// The error, once it failed.
    problem: Option<ProblemBody>,
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        let now_ms = now_ms();
        let until = job.ended_ms.unwrap_or(now_ms);
        Self {
            id: job.id,
            session_id: job.session,
            agent: job.agent,
            kind: job.kind,
            state: job.state,
            attempt: job.attempt,
            turn_id: job.turn,
            message_id: job.message,
            worker_id: job.worker,
            created_at: rfc3339(job.created_ms),
            started_at: job.started_ms.map(rfc3339),
            ended_at: job.ended_ms.map(rfc3339),
            waited_ms: (job.started_ms.unwrap_or(until) - job.created_ms).max(0),
            ran_ms: job.started_ms.map(|started_ms| (until - started_ms).max(0)),
            result: job.result,
            problem: job.problem.map(Into::into),
        }
    }
}

/// A queue.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Queue)]
pub(crate) struct QueueView {
    /// Its name.
    name: Lane,
    /// Jobs that wait.
    depth: i64,
    /// When the one that waits longest was admitted.
    oldest_at: Option<String>,
    /// How long that one has waited, in milliseconds.
    age_ms: Option<i64>,
    /// Jobs that a turn has taken.
    running: i64,
    /// Jobs that ended in the last minute.
    ended_last_minute: i64,
    /// Of those, how many failed.
    failed_last_minute: i64,
    /// Rings in the queue itself; `null` where it does not answer.
    bells: Option<u64>,
}

impl QueueView {
    pub(crate) fn new(stats: QueueStats, bells: Option<u64>) -> Self {
        let now_ms = now_ms();
        Self {
            name: stats.lane,
            depth: stats.depth,
            oldest_at: stats.oldest_ms.map(rfc3339),
            age_ms: stats.oldest_ms.map(|oldest_ms| (now_ms - oldest_ms).max(0)),
            running: stats.running,
            ended_last_minute: stats.ended_last_minute,
            failed_last_minute: stats.failed_last_minute,
            bells,
        }
    }
}

/// A worker process.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Worker)]
pub(crate) struct WorkerView {
    /// Its id.
    id: WorkerId,
    /// The host it runs on.
    host: String,
    /// Its process id there.
    pid: i64,
    /// The version of its binary.
    version: String,
    /// How many turns it runs at once.
    slots: i64,
    /// The engines that it can run now.
    engines: Vec<EngineKind>,
    /// Its agents.
    agents: Vec<AgentStatus>,
    /// Whether it is being stopped and takes no more work.
    stopping: bool,
    /// When it started.
    started_at: String,
    /// When it was last heard of.
    seen_at: String,
    /// Until when it counts as alive.
    expires_at: String,
    /// The sessions it runs.
    leases: Vec<LeaseView>,
}

/// A session that a worker runs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Lease)]
pub(crate) struct LeaseView {
    /// The session.
    session_id: SessionId,
    /// The lease's token.
    token: i64,
    /// The turn that runs.
    turn_id: Option<TurnId>,
    /// The turn that somebody asked to cancel.
    cancel_turn_id: Option<TurnId>,
    /// When the lease ends unless it is renewed.
    expires_at: String,
}

impl From<Worker> for WorkerView {
    fn from(worker: Worker) -> Self {
        let mut engines = Vec::new();
        for status in worker.agents.iter().filter(|status| status.available) {
            if !engines.contains(&status.agent.engine) {
                engines.push(status.agent.engine);
            }
        }
        Self {
            id: worker.id,
            host: worker.host,
            pid: worker.pid,
            version: worker.version,
            slots: worker.slots,
            engines,
            agents: worker.agents,
            stopping: worker.stopping,
            started_at: rfc3339(worker.started_ms),
            seen_at: rfc3339(worker.seen_ms),
            expires_at: rfc3339(worker.expires_ms),
            leases: worker.leases.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<HeldLease> for LeaseView {
    fn from(lease: HeldLease) -> Self {
        Self {
            session_id: lease.session,
            token: lease.token.0,
            turn_id: lease.turn,
            cancel_turn_id: lease.cancel_turn,
            expires_at: rfc3339(lease.expires_ms),
        }
    }
}
