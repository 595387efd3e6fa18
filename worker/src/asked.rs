//! What an engine asks of us: a person's word, or another agent's work. Its turn waits, without its slot.

use std::collections::BTreeMap;
use std::time::Duration;

use roundhouse_engines::contract::{Answer, Asked, ToolCall};
use roundhouse_engines::permissions::Permissions;
use roundhouse_shared::bus::Notice;
use roundhouse_shared::domain::{
    Agent, Decision, EventKind, Interaction, InteractionAnswer, InteractionId, InteractionKind,
    InteractionState, JobId, MessageId, Scope, SessionId,
};
use roundhouse_shared::store::{NewInteraction, NewSession, Outcome, Spawn, StoreError};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::time::{Instant, timeout_at};

use crate::outbox::Standing;
use crate::session::{persist, persist_once};
use crate::turn::Turn;
use crate::workspace::workspace;
use crate::{Runnable, events, translate};

/// How often the store is read while nothing rings.
const LOOK: Duration = Duration::from_secs(2);
/// How deep children may have children.
const DEPTH: u32 = 16;

/// Finds out what the engine asked for.
pub(crate) async fn find_out(
    turn: Turn<'_>,
    calling: Option<MessageId>,
    id: String,
    asked: Asked,
) -> Result<Option<(String, Answer)>, StoreError> {
    let answer = match asked {
        // It was allowed before the turn was cut off.
        Asked::Permission { call } if has_child(turn, calling, &call).await? => Answer::Allow { input: None },
        Asked::Permission { call } => {
            let payload = permission(&call);
            permitted(ask(turn, InteractionKind::Permission, payload).await?)
        }
        Asked::Plan(plan) => permitted(ask(turn, InteractionKind::Plan, plan).await?),
        Asked::Question(questions) => answered(ask(turn, InteractionKind::Question, questions).await?),
        Asked::Spawn { call, agent, message, wait } => match calling_message(turn, calling).await? {
            Some(calling) => spawn(turn, calling, &call, &agent, message, wait).await?,
            None => Answer::Deny("no message asked for this".to_owned()),
        },
    };
    turn.resume().await;
    Ok(Some((id, answer)))
}

/// The message whose tools are called. A turn that goes on after a crash has its calls from the store.
async fn calling_message(
    turn: Turn<'_>,
    calling: Option<MessageId>,
) -> Result<Option<MessageId>, StoreError> {
    let (store, turn_id) = (&turn.worker.store, turn.mail.turn);
    match calling {
        Some(calling) => Ok(Some(calling)),
        None => persist(turn.run, || store.calling(turn_id)).await,
    }
}

/// Whether an attempt of this turn that was cut off has had this call done by a child.
async fn has_child(turn: Turn<'_>, calling: Option<MessageId>, call: &ToolCall) -> Result<bool, StoreError> {
    let store = &turn.worker.store;
    if !turn.mail.continued {
        return Ok(false);
    }
    let Some(calling) = calling_message(turn, calling).await? else { return Ok(false) };
    persist(turn.run, || store.has_child(calling, &call.id)).await
}

fn permission(call: &ToolCall) -> Value {
    json!({ "toolCallId": call.id, "tool": call.name, "input": translate::arguments(&call.arguments) })
}

fn permitted(asked: Interaction) -> Answer {
    match asked.answer {
        Some(InteractionAnswer { decision: Decision::Allow, updated_input, .. }) => {
            Answer::Allow { input: updated_input.map(Value::Object) }
        }
        Some(InteractionAnswer { message, .. }) => {
            Answer::Deny(message.unwrap_or_else(|| "a person has denied this call".to_owned()))
        }
        None => Answer::Deny("nobody has allowed this call in time".to_owned()),
    }
}

fn answered(asked: Interaction) -> Answer {
    match asked.answer {
        Some(InteractionAnswer { decision: Decision::Allow, answers, message, .. }) => {
            Answer::Given { answers: answers.unwrap_or_default(), message }
        }
        Some(InteractionAnswer { message, .. }) => {
            Answer::Deny(message.unwrap_or_else(|| "the person does not want to answer".to_owned()))
        }
        None => Answer::Deny("nobody has answered in time".to_owned()),
    }
}

/// Asks a person, and waits for the first answer or until the time is up. The answer is used up with that.
async fn ask(turn: Turn<'_>, kind: InteractionKind, payload: Value) -> Result<Interaction, StoreError> {
    let Turn { worker, run, outbox, mail, .. } = turn;
    let (store, lease) = (&worker.store, &run.lease);
    let patience = worker.limits.interaction_timeout;
    let new = NewInteraction { turn: mail.turn, kind, payload, open_ms: patience.millis() };
    let mut notices = worker.bus.notices();
    let mut asked = persist_once(worker, run, None, |store| {
        let new = new.clone();
        async move { store.ask(lease, new).await }
    })
    .await?;
    let scope = Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() };
    if asked.state == InteractionState::Open {
        let requested = EventKind::InteractionRequested { interaction: Box::new(asked.clone().into()) };
        outbox.push(Standing::Running, scope, requested);
        turn.rest();
    }
    let until = Instant::now() + patience.0;
    while asked.state == InteractionState::Open {
        let look = until.min(Instant::now() + LOOK);
        let rung = |notice: &Notice| matches!(notice, Notice::Resolved(_, id) if *id == asked.id);
        let _ = timeout_at(look, heard(&mut notices, rung)).await;
        asked = read(turn, lease.session, asked.id).await?;
        if asked.state == InteractionState::Open && until <= Instant::now() {
            asked = persist(run, || store.expire(lease, asked.id)).await?;
        }
    }
    persist(run, || store.take_answer(lease, asked.id)).await?;
    let decision = asked.answer.as_ref().map(|answer| answer.decision);
    let kind = EventKind::InteractionResolved { interaction_id: asked.id, state: asked.state, decision };
    outbox.push(Standing::Fact, scope, kind);
    Ok(asked)
}

async fn read(turn: Turn<'_>, session: SessionId, id: InteractionId) -> Result<Interaction, StoreError> {
    let store = &turn.worker.store;
    persist(turn.run, || store.interaction(session, id)).await?.ok_or(StoreError::LeaseLost)
}

/// The engine does not want the answer any more. A turn that `goes_on` needs its slot again.
pub(crate) async fn withdraw(turn: Turn<'_>, goes_on: bool) -> Result<Option<(String, Answer)>, StoreError> {
    let Turn { worker, run, outbox, mail, .. } = turn;
    let lease = &run.lease;
    let withdrawn =
        persist_once(worker, run, None, |store| async move { store.withdraw(lease).await }).await?;
    let scope = Scope { turn: Some(mail.turn), attempt: Some(mail.attempt), ..Scope::default() };
    for kind in events::closed(&withdrawn, InteractionState::Cancelled) {
        outbox.push(Standing::Fact, scope, kind);
    }
    if goes_on {
        turn.resume().await;
    }
    Ok(None)
}

/// Waits until the bell rings for this, or may have.
async fn heard(notices: &mut Receiver<Notice>, rung: impl Fn(&Notice) -> bool) {
    use tokio::sync::broadcast::error::RecvError;
    loop {
        match notices.recv().await {
            Ok(notice) if rung(&notice) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Has another agent work in a session of its own.
async fn spawn(
    turn: Turn<'_>,
    calling: MessageId,
    call: &str,
    agent: &str,
    text: String,
    wait: bool,
) -> Result<Answer, StoreError> {
    let Turn { worker, run, mail, .. } = turn;
    let (store, lease) = (&worker.store, &run.lease);
    let known = match known(turn, agent).await? {
        Ok(known) => known,
        Err(why) => return Ok(Answer::Deny(why)),
    };
    if persist(run, || store.depth(lease.session, DEPTH)).await? == DEPTH {
        return Ok(Answer::Deny(format!("agents that start agents are nested {DEPTH} deep already")));
    }
    let rules_above = match rules_for_child(turn).await? {
        Ok(rules) => rules,
        Err(why) => return Ok(Answer::Deny(why)),
    };
    let spawn = Spawn {
        turn: mail.turn,
        message: calling,
        call: call.to_owned(),
        session: NewSession {
            id: SessionId::generate(),
            agent: known.name.clone(),
            engine: known.engine,
            model: known.model.clone(),
            title: None,
            // They work on the same files.
            cwd: workspace(worker, lease.session, &mail.cwd).display().to_string(),
            metadata: json!({}),
        },
        text,
        wakes: !wait,
        rules_above,
    };
    let notices = worker.bus.notices();
    let child = persist(run, || store.spawn(lease, &spawn)).await?;
    events::ring(worker, child).await;
    if !wait {
        let session = child.session;
        return Ok(Answer::Text(format!("started in session {session}; its answer will come as a message")));
    }
    turn.rest();
    Ok(match ended(turn, child.job, notices).await? {
        Outcome::Answered(result) if result.cancelled => Answer::Deny(result.content),
        Outcome::Answered(result) => Answer::Text(result.content),
        Outcome::Cut(_) | Outcome::Cancelled => Answer::Deny("the agent was not asked".to_owned()),
        Outcome::Failed(problem) => {
            let why = problem.detail.unwrap_or_else(|| problem.code.title().to_owned());
            Answer::Deny(format!("the agent failed: {why}"))
        }
    })
}

/// The permissions that bind a child beside its own: those that bind us, and ours.
async fn rules_for_child(turn: Turn<'_>) -> Result<Result<Option<String>, String>, StoreError> {
    let Turn { worker, run, mail, .. } = turn;
    let (store, session) = (&worker.store, run.lease.session);
    let stored = persist(run, || store.rules_above(session)).await?;
    let rules: Result<Vec<Permissions>, _> = stored.as_deref().map_or(Ok(Vec::new()), serde_json::from_str);
    let Ok(mut rules) = rules else {
        return Ok(Err("what the agents above this one may do cannot be read".to_owned()));
    };
    let own = worker.engines.get(&mail.agent).map(|runnable| runnable.engine.permissions());
    if let Some(own) = own.filter(|own| !own.is_open() && !rules.contains(own)) {
        rules.push(own);
    }
    if rules.is_empty() {
        return Ok(Ok(None));
    }
    Ok(serde_json::to_string(&rules)
        .map(Some)
        .map_err(|error| format!("what it may do cannot be stored: {error}")))
}

/// An agent that a child can have, or what the model is told instead. It may be one that only another worker can run.
async fn known(turn: Turn<'_>, agent: &str) -> Result<Result<Agent, String>, StoreError> {
    let Turn { worker, run, .. } = turn;
    if let Some(Runnable { agent, .. }) = worker.engines.get(agent) {
        return Ok(Ok(agent.clone()));
    }
    let workers = persist(run, || worker.store.workers()).await?;
    let all: BTreeMap<_, _> = workers
        .iter()
        .flat_map(|worker| &worker.agents)
        .filter(|status| status.available)
        .map(|status| (status.agent.name.as_str(), &status.agent))
        .collect();
    Ok(all.get(agent).map(|&found| found.clone()).ok_or_else(|| {
        let names: Vec<_> = all.keys().copied().collect();
        format!("there is no agent {agent:?} that can work now; there are: {}", names.join(", "))
    }))
}

async fn ended(turn: Turn<'_>, job: JobId, mut notices: Receiver<Notice>) -> Result<Outcome, StoreError> {
    let store = &turn.worker.store;
    loop {
        let found = persist(turn.run, || store.outcomes(std::slice::from_ref(&job))).await?;
        if let Some((_, outcome)) = found.into_iter().next() {
            return Ok(outcome);
        }
        let rung = |notice: &Notice| matches!(notice, Notice::Ended(_, ended) if *ended == job);
        let _ = timeout_at(Instant::now() + LOOK, heard(&mut notices, rung)).await;
    }
}
