//! A chat request becomes an admission: everything that can be wrong with it is found before anything is stored.

use std::fmt::Write as _;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use roundhouse_shared::domain::{Agent, JobId, OnBusy, Session, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{Admission, Idempotency, NewSession, StoreError, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::attachments::AttachmentRequest;
use crate::problem::ApiProblem;
use crate::{attachments, check, cwd};

/// Longest idempotency key.
const KEY_MOST: usize = 200;

/// A message for an agent.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ChatRequest {
    /// The text.
    pub(crate) message: String,
    /// The session to go on with; without one, a session is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<SessionId>,
    /// The new session's working directory; without one it gets a fresh directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    /// The model: of the new session, or for this message only in one that exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// The new session's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// What becomes of the message where the session is at work; `inject` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_busy: Option<OnBusy>,
    /// Images and text files for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attachments: Option<Vec<AttachmentRequest>>,
    /// Whether the job is cancelled if the client goes away before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancel_on_disconnect: Option<bool>,
    /// The client's own data, for the new session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}

/// The header `Idempotency-Key`.
#[derive(Debug)]
pub(crate) struct IdempotencyKey(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let bytes = value.as_bytes();
        let sane = (1..=KEY_MOST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        match value.to_str() {
            Ok(key) if sane => Ok(Self(Some(key.to_owned()))),
            _ => {
                let why = format!("must be 1 to {KEY_MOST} visible ASCII characters");
                Err(Problem::field("Idempotency-Key", why).unreadable().into())
            }
        }
    }
}

impl IdempotencyKey {
    /// The key with the fingerprint of its request. Defaults that were left out and the order of fields do not matter.
    pub(crate) fn of(self, method: &str, path: &str, request: &impl Serialize) -> Option<Idempotency> {
        let key = self.0?;
        let body = serde_json::to_string(request).unwrap_or_default();
        let digest = Sha256::digest(format!("{method}\n{path}\n{body}"));
        let hash = digest.iter().fold(String::new(), |mut hash, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hash, "{byte:02x}");
            hash
        });
        Some(Idempotency { key, hash })
    }
}

/// The admission that a request asks for.
pub(crate) async fn admission(
    app: &App,
    agent: &str,
    key: IdempotencyKey,
    request: ChatRequest,
) -> Result<Admission, ApiProblem> {
    check::message(&request.message)?;
    check::title(request.title.as_deref())?;
    check::model(request.model.as_deref())?;
    check::cwd(request.cwd.as_deref())?;
    check::metadata(request.metadata.as_ref())?;
    let attachments = attachments::stored(request.attachments.as_deref().unwrap_or_default())?;
    let idempotency = key.of("POST", &format!("/agents/{agent}/chat"), &request);
    let known = app.agents.known(&app.store, agent).await?;
    let target = match request.session_id {
        Some(id) => {
            let session = app.store.session(id).await?.ok_or(StoreError::SessionNotFound)?;
            fits(app, &session, agent, &request).await?;
            Target::Existing(id)
        }
        None => Target::New(
            new_session(app, known, request.cwd, request.model.clone(), request.title, request.metadata)
                .await?,
        ),
    };
    app.agents.admits(&app.store, agent).await?;
    Ok(Admission {
        job: JobId::generate(),
        model: request.model.filter(|_| matches!(target, Target::Existing(_))),
        target,
        message: request.message,
        attachments,
        origin: "user".to_owned(),
        on_busy: request.on_busy.unwrap_or(OnBusy::Inject),
        idempotency,
    })
}

/// A session to be created, with what the client wants of it.
pub(crate) async fn new_session(
    app: &App,
    agent: Agent,
    cwd: Option<String>,
    model: Option<String>,
    title: Option<String>,
    metadata: Option<Map<String, Value>>,
) -> Result<NewSession, Problem> {
    let cwd = match cwd {
        Some(cwd) => cwd::resolve(&cwd, &app.limits).await?,
        None => String::new(),
    };
    Ok(NewSession {
        id: SessionId::generate(),
        agent: agent.name,
        engine: agent.engine,
        model: model.or(agent.model),
        title,
        cwd,
        metadata: Value::Object(metadata.unwrap_or_default()),
    })
}

/// Whether a request can be for this session: what belongs to a new one may only repeat what is.
async fn fits(app: &App, session: &Session, agent: &str, request: &ChatRequest) -> Result<(), Problem> {
    if session.agent != agent {
        let why = format!("the session belongs to the agent {:?}", session.agent);
        return Err(Problem::field("sessionId", why));
    }
    let fixed = |path| Err(Problem::field(path, "can only be chosen for a new session"));
    if let Some(cwd) = &request.cwd
        && *cwd != session.cwd
        && cwd::resolve(cwd, &app.limits).await? != session.cwd
    {
        return fixed("cwd");
    }
    if request.title.is_some() && request.title != session.title {
        return fixed("title");
    }
    match &request.metadata {
        Some(asked) if !asked.is_empty() && session.metadata.as_object() != Some(asked) => fixed("metadata"),
        _ => Ok(()),
    }
}

/// The session that a target names.
pub(crate) const fn session_of(target: &Target) -> SessionId {
    match target {
        Target::Existing(id) => *id,
        Target::New(new) => new.id,
    }
}
