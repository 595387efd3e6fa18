//! Short ways to a situation, with defaults for what a case does not care about.

use roundhouse_shared::domain::{
    ContextSource, EngineKind, Job, JobId, Lease, MessageId, OnBusy, Role, SessionId, SessionJob, TokenUsage,
    TurnId, Usage, Worker, WorkerId,
};
use roundhouse_shared::store::{
    Admission, Begin, Ended, Idempotency, Mail, MessagePage, NewSession, Outcome, Spawn, Store, StoreError,
    Sweep, Target, TurnEnd, TurnOutcome, WrittenMessage,
};

/// How long a lease lasts that must not run out while a case runs.
pub(crate) const LONG_MS: i64 = 3_600_000;

/// The lease of a worker that is declared dead as soon as it has a session.
pub(crate) const DEAD_MS: i64 = -1;

/// A session to be created.
pub(crate) fn new_session() -> NewSession {
    NewSession {
        id: SessionId::generate(),
        agent: "helper".to_owned(),
        engine: EngineKind::OpenAi,
        model: None,
        title: None,
        cwd: String::new(),
        metadata: serde_json::json!({}),
    }
}

/// A session that exists.
pub(crate) async fn session(store: &Store) -> SessionId {
    store.create_session(&new_session()).await.unwrap().id
}

/// A message for a session, injected where it is at work.
pub(crate) fn message(session: SessionId, text: &str) -> Admission {
    message_to(Target::Existing(session), text)
}

/// The same for any target.
pub(crate) fn message_to(target: Target, text: &str) -> Admission {
    Admission {
        job: JobId::generate(),
        target,
        message: text.to_owned(),
        attachments: None,
        origin: "user".to_owned(),
        model: None,
        on_busy: OnBusy::Inject,
        idempotency: None,
    }
}

/// The same message with a client's key.
pub(crate) fn with_key(admission: Admission, key: &str, hash: &str) -> Admission {
    Admission { idempotency: Some(Idempotency { key: key.to_owned(), hash: hash.to_owned() }), ..admission }
}

/// Admits a message, to be injected where the session is at work.
pub(crate) async fn admit(store: &Store, session: SessionId, text: &str) -> JobId {
    store.admit(&message(session, text)).await.unwrap().job
}

/// Admits a message that gets a turn of its own.
pub(crate) async fn enqueue(store: &Store, session: SessionId, text: &str) -> JobId {
    store.admit(&Admission { on_busy: OnBusy::Enqueue, ..message(session, text) }).await.unwrap().job
}

/// Begins a session that has mail, as a new worker, with a lease that does not run out.
pub(crate) async fn begin(store: &Store, session: SessionId) -> (Lease, Mail) {
    begin_as(store, session, WorkerId::generate(), LONG_MS).await
}

/// Begins a session whose worker dies at once.
pub(crate) async fn begin_and_die(store: &Store, session: SessionId) -> (Lease, Mail) {
    begin_as(store, session, WorkerId::generate(), DEAD_MS).await
}

/// Tries to begin a session, as a worker that can run every agent. One that nobody knows is registered first; one with a
/// lease of [`DEAD_MS`] dies as soon as it has the session.
pub(crate) async fn try_begin(
    store: &Store,
    session: SessionId,
    worker: WorkerId,
    lease_ms: i64,
) -> Result<Begin, StoreError> {
    let begun = match store.begin(session, worker, |_| true).await {
        Err(StoreError::LeaseLost) => {
            store.register_worker(&Worker { id: worker, ..self::worker("host") }, LONG_MS).await?;
            store.begin(session, worker, |_| true).await?
        }
        begun => begun?,
    };
    if lease_ms < 0 && matches!(begun, Begin::Started(..) | Begin::Maintenance(..)) {
        assert!(store.declare_dead(worker, None).await?);
    }
    Ok(begun)
}

/// Begins a session that has mail.
pub(crate) async fn begin_as(
    store: &Store,
    session: SessionId,
    worker: WorkerId,
    lease_ms: i64,
) -> (Lease, Mail) {
    match try_begin(store, session, worker, lease_ms).await.unwrap() {
        Begin::Started(lease, mail) => (lease, mail),
        other => panic!("not started: {other:?}"),
    }
}

/// A session at work on its first message.
pub(crate) async fn running(store: &Store) -> (SessionId, JobId, Lease, Mail) {
    let session = session(store).await;
    let job = admit(store, session, "first").await;
    let (lease, mail) = begin(store, session).await;
    (session, job, lease, mail)
}

/// The end of a turn that answered with one message.
pub(crate) fn answered(turn: TurnId, text: &str) -> TurnEnd {
    TurnEnd {
        turn,
        outcome: TurnOutcome::Answered,
        messages: vec![WrittenMessage { content: text.to_owned(), ..WrittenMessage::default() }],
        model: Some("model".to_owned()),
        iterations: 1,
        usage: Usage::default(),
        context_source: ContextSource::Replay,
        undelivered: Vec::new(),
    }
}

/// A worker as it registers.
pub(crate) fn worker(host: &str) -> Worker {
    Worker {
        id: WorkerId::generate(),
        host: host.to_owned(),
        pid: 4711,
        version: "1.2.3".to_owned(),
        slots: 3,
        agents: Vec::new(),
        stopping: false,
        started_ms: 0,
        seen_ms: 0,
        expires_ms: 0,
        leases: Vec::new(),
    }
}

/// A registered worker that lives.
pub(crate) async fn registered(store: &Store) -> WorkerId {
    let worker = worker("host");
    store.register_worker(&worker, LONG_MS).await.unwrap();
    worker.id
}

/// A job's row.
pub(crate) async fn job(store: &Store, job: JobId) -> Job {
    store.job(job).await.unwrap().unwrap()
}

/// The ids of jobs that ended.
pub(crate) fn ids(ended: &[Ended]) -> Vec<JobId> {
    ended.iter().map(|ended| ended.job).collect()
}

/// The jobs of a turn.
pub(crate) fn jobs_of(mail: &Mail) -> Vec<JobId> {
    mail.jobs.iter().map(|claimed| claimed.job).collect()
}

/// The texts of a turn.
pub(crate) fn texts_of(mail: &Mail) -> Vec<&str> {
    mail.jobs.iter().map(|claimed| claimed.text.as_str()).collect()
}

/// What a job was answered, and whether as cancelled; an error's code where it failed.
pub(crate) fn answer(outcome: &Outcome) -> (&str, bool) {
    match outcome {
        Outcome::Answered(result) => (&result.content, result.cancelled),
        Outcome::Cut(result) => panic!("a cut: {result:?}"),
        Outcome::Cancelled => ("", true),
        Outcome::Failed(problem) => (problem.code.as_str(), false),
    }
}

/// All messages of a session, as far as a case has any.
pub(crate) async fn contents(store: &Store, session: SessionId) -> Vec<String> {
    let page = MessagePage { limit: 1000, ..MessagePage::default() };
    let messages = store.messages(session, page).await.unwrap();
    messages.into_iter().map(|message| message.content).collect()
}

/// What a turn used, as clients see it.
pub(crate) fn tokens(outcome: &Outcome) -> TokenUsage {
    match outcome {
        Outcome::Answered(result) => result.token_usage,
        other => panic!("no answer: {other:?}"),
    }
}

/// What a model call used.
pub(crate) const USAGE: Usage =
    Usage { input_tokens: 10, output_tokens: 20, cache_tokens: 5, cost_nanos: Some(1_500_000_000) };

/// What so many such calls used.
pub(crate) const fn times(calls: i64) -> Usage {
    Usage {
        input_tokens: 10 * calls,
        output_tokens: 20 * calls,
        cache_tokens: 5 * calls,
        cost_nanos: Some(1_500_000_000 * calls),
    }
}

/// A message of the model that calls tools.
pub(crate) fn calls(text: &str, ids: &[&str]) -> WrittenMessage {
    let calls = ids.iter().map(|id| serde_json::json!({"id": id, "name": "look", "input": {}})).collect();
    WrittenMessage {
        content: text.to_owned(),
        tool_calls: Some(calls),
        usage: USAGE,
        ..WrittenMessage::default()
    }
}

/// What a tool said to a call.
pub(crate) fn result(call: &str, text: &str) -> WrittenMessage {
    WrittenMessage {
        role: Role::Tool,
        content: text.to_owned(),
        tool_call_id: Some(call.to_owned()),
        ..WrittenMessage::default()
    }
}

/// Starts a child whose answer wakes the session that runs.
pub(crate) async fn start_child(store: &Store, lease: &Lease, turn: TurnId, call: &str) -> SessionJob {
    let written = [calls("go on without me", &[call]), result(call, "started")];
    let asking = store.append(lease, turn, &written).await.unwrap()[0].id;
    store.spawn(lease, &child(turn, asking, call)).await.unwrap()
}

/// A child whose answer wakes its parent.
pub(crate) fn child(turn: TurnId, message: MessageId, call: &str) -> Spawn {
    let session = NewSession { agent: "child".to_owned(), ..new_session() };
    Spawn {
        turn,
        message,
        call: call.to_owned(),
        session,
        text: "work".to_owned(),
        wakes: true,
        rules_above: None,
    }
}

/// What the model is shown: who says what.
pub(crate) async fn told(store: &Store, session: SessionId) -> Vec<(Role, String)> {
    let context = store.context(session).await.unwrap();
    context.into_iter().map(|entry| (entry.role, entry.content)).collect()
}

/// The same as a case writes it.
pub(crate) fn said<const N: usize>(entries: [(Role, &str); N]) -> [(Role, String); N] {
    entries.map(|(role, content)| (role, content.to_owned()))
}

/// Fails unless the lease was lost.
#[track_caller]
pub(crate) fn assert_lost<T: std::fmt::Debug>(result: &Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::LeaseLost)), "{result:?}");
}

/// The jobs that a sweep rings for, whichever lane, agent and engine they need.
pub(crate) async fn rung_again(store: &Store, age_ms: i64, limit: i64) -> Vec<SessionJob> {
    let due = store.sweep(sweeping(&["child", "helper", "writer"], age_ms, limit)).await.unwrap();
    due.into_iter().map(|due| due.job).collect()
}

/// What a worker with these agents and every engine looks for.
pub(crate) const fn sweeping<'a>(agents: &'a [&'a str], age_ms: i64, limit: i64) -> Sweep<'a> {
    Sweep {
        agents,
        engines: &[EngineKind::OpenAi, EngineKind::ClaudeCli],
        chat_ms: age_ms,
        inject_ms: age_ms,
        maintenance_ms: age_ms,
        limit,
    }
}
