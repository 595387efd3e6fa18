//! The engine session of a turn: the one that was kept warm, or a new one, and what it is given.

use roundhouse_engines::contract::{
    Capabilities, ContextKind, Earlier, Engine, EngineError, EngineEvent, EngineSession, InputMessage,
    Intake, OpenSession, TurnInput,
};
use roundhouse_engines::permissions::Permissions;
use roundhouse_engines::process::kill_owned;
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{ContextSource, EventKind, LeaseToken, Scope, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{ContextEntry, StoreError};

use crate::between::Heard;
use crate::outbox::Standing;
use crate::session::persist;
use crate::turn::Turn;
use crate::workspace::{prepare, workspace};
use crate::{Runnable, translate};

/// What a turn runs on.
pub(crate) struct Opened {
    pub(crate) engine: Box<dyn EngineSession>,
    /// With what it was opened.
    pub(crate) spec: OpenSession,
    pub(crate) input: TurnInput,
    pub(crate) intake: Intake,
    /// Where the model's memory comes from.
    pub(crate) source: ContextSource,
    /// What the engine said before the turn, of its own accord.
    pub(crate) untold: Option<EngineEvent>,
    /// Where each message of the context that it is given stands in the order of consumption.
    pub(crate) places: Vec<i64>,
}

/// Why a turn has no engine.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// The store's word.
    Store(StoreError),
    /// What the caller is told.
    Problem(Problem),
}

impl From<StoreError> for NotOpened {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<EngineError> for NotOpened {
    fn from(error: EngineError) -> Self {
        Self::Problem(translate::problem(&error))
    }
}

/// Opens the engine session for a turn.
pub(crate) async fn open(turn: Turn<'_>) -> Result<Opened, NotOpened> {
    let Turn { worker, run, mail, .. } = turn;
    let session = run.lease.session;
    // A session keeps its engine for life, whatever its agent is configured with now.
    let Some(Runnable { engine, .. }) =
        worker.engines.get(&mail.agent).filter(|here| here.agent.engine == mail.engine)
    else {
        let detail = format!("this worker does not run the agent {:?} with {}", mail.agent, mail.engine);
        return Err(NotOpened::Problem(Problem::with_detail(Code::EngineUnavailable, detail)));
    };
    let capabilities = engine.capabilities();
    let cwd = workspace(worker, session, &mail.cwd);
    let cwd = prepare(worker, session, cwd, capabilities).await.map_err(NotOpened::Problem)?;
    let spec = OpenSession {
        session: session.to_string(),
        native_session: mail.native_session.clone(),
        anchor: None,
        model: mail.model.clone(),
        cwd,
        owner: Some(owner(session, run.lease.token)),
        above: above(turn).await?,
    };
    let earlier = if mail.continued { Some(earlier(turn).await?) } else { None };
    let messages = translate::inputs(&mail.unsent, &mail.jobs);
    match capabilities.context {
        ContextKind::Replayed => {
            let store = &worker.store;
            let context = persist(run, || store.context(session)).await?;
            // A turn that is alone in its context remembers nothing.
            let source = if context.len() <= 1 { ContextSource::Empty } else { ContextSource::Replay };
            let engine = engine.open(spec.clone()).await?;
            Ok(given(engine, spec, capabilities, source, context, messages, earlier))
        }
        ContextKind::Native => native(turn, &**engine, spec, capabilities, messages, earlier).await,
    }
}

/// The permissions of the agents that have started this session.
pub(crate) async fn above(turn: Turn<'_>) -> Result<Vec<Permissions>, NotOpened> {
    let (store, session) = (&turn.worker.store, turn.run.lease.session);
    let Some(rules) = persist(turn.run, || store.rules_above(session)).await? else { return Ok(Vec::new()) };
    // Not to be understood is not to be free of them.
    serde_json::from_str(&rules).map_err(|error| {
        tracing::error!(session.id = %session, %error, "the permissions of the agents above cannot be read");
        let detail = "the permissions of the agents that have started this session cannot be read";
        NotOpened::Problem(Problem::with_detail(Code::EngineUnavailable, detail))
    })
}

/// The engine's own conversation: as it was left, or a new one that begins with what is stored.
async fn native(
    turn: Turn<'_>,
    engine: &dyn Engine,
    mut spec: OpenSession,
    capabilities: Capabilities,
    messages: Vec<InputMessage>,
    earlier: Option<Earlier>,
) -> Result<Opened, NotOpened> {
    let Turn { worker, run, outbox, mail, .. } = turn;
    let (store, lease) = (&worker.store, &run.lease);
    // What was cut off may have left more behind than its process knew.
    if mail.continued {
        worker.warm.end(worker, lease.session).await;
    } else if let Some(Heard { engine, untold }) = worker.warm.take(worker, lease, &spec).await {
        let source = ContextSource::Native;
        let opened = given(engine, spec, capabilities, source, Vec::new(), messages, earlier);
        return Ok(Opened { untold, ..opened });
    }
    // What another worker of this host has kept warm would be a second process on one conversation.
    if let Some(native) = &spec.native_session {
        end_owned(lease.session, LeaseToken(lease.token.0 - 1)).await;
        let (engine, turn) = (mail.engine, mail.turn);
        spec.anchor = persist(run, || store.newest_anchor(engine, lease.session, native, turn)).await?;
    }
    let (opened, reset) = match engine.open(spec.clone()).await {
        Ok(opened) => (opened, None),
        Err(error) => {
            // Without a native session nothing can be lost of one.
            let reason = spec.native_session.take().and_then(|_| reset_reason(&error));
            let Some(reason) = reason else { return Err(error.into()) };
            tracing::warn!(session.id = %lease.session, %error, reason, "the conversation begins anew");
            spec.anchor = None;
            (engine.open(spec.clone()).await?, Some(reason))
        }
    };
    let (source, context) = if spec.native_session.is_some() {
        (ContextSource::Native, Vec::new())
    } else {
        let mut context = persist(run, || store.context(lease.session)).await?;
        context.retain(|entry| entry.turn != Some(mail.turn));
        let source = if context.is_empty() { ContextSource::Empty } else { ContextSource::Replay };
        if let Some(reason) = reset.filter(|_| !context.is_empty()) {
            let scope = Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() };
            outbox.push(Standing::Running, scope, EventKind::ContextReset { reason });
        }
        (source, context)
    };
    let id = opened.native_session().map(str::to_owned);
    if let Some(id) = id.filter(|id| mail.native_session.as_ref() != Some(id)) {
        persist(run, || store.adopt_native(lease, &id, &worker.host)).await?;
        spec.native_session = Some(id);
    }
    Ok(given(opened, spec, capabilities, source, context, messages, earlier))
}

/// Why a session begins anew with its stored messages, where it has to because of this error.
const fn reset_reason(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::ResumeDropped(_) => Some("resume_dropped"),
        EngineError::Behind(_) => Some("transcript_behind"),
        _ => None,
    }
}

fn given(
    engine: Box<dyn EngineSession>,
    spec: OpenSession,
    capabilities: Capabilities,
    source: ContextSource,
    context: Vec<ContextEntry>,
    messages: Vec<InputMessage>,
    earlier: Option<Earlier>,
) -> Opened {
    let places = context.iter().map(|entry| entry.consumed_seq).collect();
    let context = context.into_iter().map(translate::context).collect();
    let input = TurnInput { context, messages, earlier };
    Opened { engine, spec, input, intake: capabilities.intake, source, untold: None, places }
}

async fn earlier(turn: Turn<'_>) -> Result<Earlier, StoreError> {
    let Turn { worker, run, mail, .. } = turn;
    let store = &worker.store;
    let so_far = persist(run, || store.so_far(mail.engine, mail.turn)).await?;
    Ok(translate::earlier(so_far, mail.handed_back))
}

/// The mark of all processes that a run starts, by which they are found after a crash.
pub(crate) fn owner(session: SessionId, token: LeaseToken) -> String {
    format!("{session}/{}", token.0)
}

/// Ends what runs of a session under this lease and before it have left on this host, whichever worker has started it.
/// Returns how many processes.
pub(crate) async fn end_owned(session: SessionId, up_to: LeaseToken) -> usize {
    let kill = move || kill_owned(|mark| owned_by(mark, session, up_to));
    tokio::task::spawn_blocking(kill).await.unwrap_or_default()
}

/// Whether a mark is that of a run of this session under this lease or one before it: an engine that was kept warm carries
/// the mark of the run that opened it.
fn owned_by(mark: &str, session: SessionId, up_to: LeaseToken) -> bool {
    let token = mark.split_once('/').filter(|(of, _)| *of == session.to_string());
    token.and_then(|(_, token)| token.parse().ok()).is_some_and(|token: i64| token <= up_to.0)
}
