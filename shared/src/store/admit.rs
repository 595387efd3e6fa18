//! *admit*: a message becomes a job, in one transaction that holds the session.

use super::cancel::{Cancelled, Reach, cancel_in};
use super::db::{Tx, values};
use super::messages::{NewMessage, insert_message};
use super::tx::{Locked, SessionTx, live_worker};
use super::{Store, StoreError};
use crate::domain::{EngineKind, JobId, JobKind, Message, MessageId, OnBusy, Role, SessionId};

/// A message that asks for an answer.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The id its job will have.
    pub job: JobId,
    /// The session it is for.
    pub target: Target,
    /// Its text.
    pub message: String,
    /// Files that come with it: a JSON array of `{name, mediaType, size, data}`.
    pub attachments: Option<serde_json::Value>,
    /// Where it came from.
    pub origin: String,
    /// The model it asks for, for its own turn.
    pub model: Option<String>,
    /// What becomes of it where the session is at work.
    pub on_busy: OnBusy,
    /// The client's key, by which a repeated request is known.
    pub idempotency: Option<Idempotency>,
}

/// The session that a message is for.
#[derive(Debug, Clone)]
pub enum Target {
    /// One that exists.
    Existing(SessionId),
    /// One that is created in the same transaction.
    New(NewSession),
}

/// A session to be created.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// Its agent.
    pub agent: String,
    /// Its engine, for life.
    pub engine: EngineKind,
    /// Its own choice of a model.
    pub model: Option<String>,
    /// A title for people.
    pub title: Option<String>,
    /// Its working directory; empty for a fresh one.
    pub cwd: String,
    /// The client's own data, a JSON object.
    pub metadata: serde_json::Value,
}

/// A client's key and the fingerprint of what it was sent with.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// The key.
    pub key: String,
    /// The fingerprint of the request.
    pub hash: String,
}

/// What was admitted.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The job.
    pub job: JobId,
    /// Its session.
    pub session: SessionId,
    /// What became of the message.
    pub kind: JobKind,
    /// The message as stored; `None` where the same request was admitted before.
    pub message: Option<Message>,
    /// What the message interrupted.
    pub interrupted: Option<Cancelled>,
}

impl Store {
    /// Admits a message: stores it once, with the job that will answer it.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`]; [`StoreError::SessionBusy`] where the message must not wait;
    /// [`StoreError::IdempotencyConflict`]. Nothing is stored then.
    pub async fn admit(&self, admission: &Admission) -> Result<Admitted, StoreError> {
        self.transact(|| self.admit_once(admission)).await
    }

    async fn admit_once(&self, admission: &Admission) -> Result<Admitted, StoreError> {
        let (mut tx, locked) = match &admission.target {
            Target::Existing(session) => {
                let SessionTx { tx, row } = self.lock(*session).await?;
                (tx, Some(row))
            }
            Target::New(_) => (self.db.begin().await?, None),
        };
        if let Some(known) = admitted_before(&mut tx, admission.idempotency.as_ref()).await? {
            return Ok(known);
        }
        let mut row = match (locked, &admission.target) {
            (Some(row), _) => row,
            (None, Target::New(new)) => {
                let now_ms = tx.now_ms().await?;
                insert_session(&mut tx, new, now_ms).await?;
                Locked::fresh(new, now_ms)
            }
            (None, Target::Existing(_)) => return Err(StoreError::SessionNotFound),
        };
        let (kind, interrupted) = place(&mut tx, &mut row, admission.on_busy).await?;
        let message = NewMessage {
            job: Some(admission.job),
            content: admission.message.clone(),
            attachments: admission.attachments.clone(),
            origin: admission.origin.clone(),
            ..NewMessage::of(Role::User)
        };
        let message = insert_message(&mut tx, &mut row, message).await?;
        let idempotency = admission.idempotency.as_ref();
        let new = NewJob {
            id: admission.job,
            kind,
            message: Some(message.id),
            model: admission.model.as_deref(),
            request: None,
            idempotency,
        };
        if !insert_job(&mut tx, &mut row, new).await? {
            // Another request with the same key was faster, in a session of its own.
            drop(tx);
            let mut tx = self.db.begin().await?;
            return admitted_before(&mut tx, idempotency).await?.ok_or(StoreError::IdempotencyConflict);
        }
        let sql = "UPDATE sessions SET last_seq = $2, message_count = message_count + 1, last_message_id = $3, \
                   updated_ms = $4, enqueued_ms = $4 WHERE id = $1";
        tx.run(sql, values![row.id.0, row.last_seq, message.id.0, row.now_ms]).await?;
        tx.commit().await?;
        Ok(Admitted { job: admission.job, session: row.id, kind, message: Some(message), interrupted })
    }
}

/// The job that the same key was admitted as, if any.
pub(super) async fn admitted_before(
    tx: &mut Tx,
    idempotency: Option<&Idempotency>,
) -> Result<Option<Admitted>, StoreError> {
    let Some(Idempotency { key, hash }) = idempotency else { return Ok(None) };
    let sql = "SELECT id, session_id, kind, request_hash FROM jobs WHERE idempotency_key = $1";
    let Some(row) = tx.first(sql, values![key.as_str()]).await? else { return Ok(None) };
    if row.get::<Option<String>>("request_hash")?.as_deref() != Some(hash) {
        return Err(StoreError::IdempotencyConflict);
    }
    let job = JobId(row.get("id")?);
    let kind = JobKind::from_name(&row.get::<String>("kind")?)
        .ok_or_else(|| StoreError::inconsistent("jobs", "kind", job))?;
    let session = SessionId(row.get("session_id")?);
    Ok(Some(Admitted { job, session, kind, message: None, interrupted: None }))
}

/// What becomes of a message: a turn of its own, or a part of what runs.
async fn place(
    tx: &mut Tx,
    row: &mut Locked,
    on_busy: OnBusy,
) -> Result<(JobKind, Option<Cancelled>), StoreError> {
    let sql = "SELECT seq FROM jobs WHERE session_id = $1 AND state IN ('pending', 'claimed') LIMIT 1";
    let busy = tx.first(sql, values![row.id.0]).await?.is_some() || live_worker(tx, row).await?.is_some();
    if !busy {
        return Ok((JobKind::Chat, None));
    }
    match on_busy {
        OnBusy::Inject => Ok((JobKind::Inject, None)),
        OnBusy::Enqueue => Ok((JobKind::Chat, None)),
        OnBusy::Interrupt => Ok((JobKind::Chat, Some(cancel_in(tx, row, Reach::Interrupt).await?))),
        OnBusy::Reject => Err(StoreError::SessionBusy),
    }
}

pub(super) async fn insert_session(tx: &mut Tx, new: &NewSession, now_ms: i64) -> Result<(), StoreError> {
    let sql = "INSERT INTO sessions (id, agent, engine, model, title, cwd, metadata, created_ms, updated_ms) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)";
    let values = values![
        new.id.0,
        new.agent.as_str(),
        new.engine.as_str(),
        new.model.as_deref(),
        new.title.as_deref(),
        new.cwd.as_str(),
        new.metadata.to_string(),
        now_ms,
    ];
    tx.run(sql, values).await.map(drop)
}

/// A job that a client has asked for.
pub(super) struct NewJob<'a> {
    pub(super) id: JobId,
    pub(super) kind: JobKind,
    pub(super) message: Option<MessageId>,
    pub(super) model: Option<&'a str>,
    /// What it asks for beside a message, as JSON.
    pub(super) request: Option<String>,
    pub(super) idempotency: Option<&'a Idempotency>,
}

/// Inserts a job; `false` where its idempotency key is taken.
pub(super) async fn insert_job(tx: &mut Tx, row: &mut Locked, new: NewJob<'_>) -> Result<bool, StoreError> {
    let sql = "INSERT INTO jobs (id, session_id, seq, kind, state, message_id, model, idempotency_key, request_hash, \
               created_ms, request) VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $9, $10) \
               ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING";
    let (key, hash) = match new.idempotency {
        Some(Idempotency { key, hash }) => (Some(key.as_str()), Some(hash.as_str())),
        None => (None, None),
    };
    let values = values![
        new.id.0,
        row.id.0,
        row.next_seq(),
        new.kind.as_str(),
        new.message.map(|id| id.0),
        new.model,
        key,
        hash,
        row.now_ms,
        new.request,
    ];
    Ok(tx.run(sql, values).await? == 1)
}

impl Locked {
    /// The row of a session that this transaction has just created: nobody else can see it.
    pub(super) fn fresh(new: &NewSession, now_ms: i64) -> Self {
        Self {
            id: new.id,
            agent: new.agent.clone(),
            engine: new.engine,
            model: new.model.clone(),
            cwd: new.cwd.clone(),
            native_session: None,
            native_host: None,
            last_seq: 0,
            last_message: None,
            lease_worker: None,
            lease_token: crate::domain::LeaseToken(0),
            active_turn: None,
            cancel_turn: None,
            last_step: None,
            now_ms,
        }
    }
}
