//! One tool call: its arguments, the leave to make it, and the tool itself.

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::host::Host;
use super::host_tools;
use super::lenient::repaired;
use super::settings::Settings;
use super::toolbox::{Tool, Toolbox};
use super::turn::Place;
use crate::contract::{Answer, Asked, EngineEvent, ToolCall};
use crate::permissions::{Gate, Verdict};
use crate::tools::{ToolContext, ToolOutcome, ToolSource, bounded};

/// How many pieces of a tool's output wait to be told.
const OUTPUT_PIECES: usize = 16;

/// Runs a call to its end. Whatever goes wrong is told to the model.
pub(super) async fn run(
    call: &ToolCall,
    toolbox: &Toolbox,
    settings: &Settings,
    place: &Place,
    host: &mut Host,
) -> ToolOutcome {
    let outcome = match try_run(call, toolbox, settings, place, host).await {
        Ok(outcome) => outcome,
        Err(reason) => ToolOutcome::failure(reason),
    };
    ToolOutcome { text: bounded::result(outcome.text), ..outcome }
}

async fn try_run(
    call: &ToolCall,
    toolbox: &Toolbox,
    settings: &Settings,
    place: &Place,
    host: &mut Host,
) -> Result<ToolOutcome, String> {
    let tool = toolbox
        .get(&call.name)
        .ok_or_else(|| format!("There is no tool `{}`. {}", call.name, toolbox.names()))?;
    let input = arguments(&call.arguments)?;
    let (input, note) = match (leave(call, tool, &input, &place.gate, host).await?, input) {
        (None, input) => (input, String::new()),
        (Some(other), _) => {
            let note = format!("[The call was changed before it ran. Its arguments were: {other}]\n");
            (other, note)
        }
    };
    let started = if note.is_empty() {
        call.clone()
    } else {
        ToolCall { arguments: input.to_string(), ..call.clone() }
    };
    host.tell(EngineEvent::ToolStarted(started)).await;
    let outcome = match tool {
        Tool::AskUser => ToolOutcome::success(host.ask_for_text(host_tools::question(input)?).await?),
        Tool::SpawnAgent => {
            let agents = settings.spawn_agent.as_deref().unwrap_or_default();
            let asked = host_tools::spawn(&call.id, input, agents)?;
            ToolOutcome::success(host.ask_for_text(asked).await?)
        }
        Tool::Sourced(source, name) => follow(&**source, name, input, &call.id, place, host).await,
    };
    Ok(ToolOutcome { text: note + &outcome.text, ..outcome })
}

/// The arguments as an object.
fn arguments(written: &str) -> Result<Value, String> {
    if written.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let read = |text: &str| {
        serde_json::from_str::<Value>(text).or_else(|_| serde_json::from_str(&repaired(text.as_bytes())))
    };
    let value = read(written).map_err(|error| format!("The arguments are no valid JSON: {error}."))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        // Written twice over.
        Value::String(text) => read(&text).ok().filter(Value::is_object).ok_or_else(no_object),
        _ => Err(no_object()),
    }
}

fn no_object() -> String {
    "The arguments have to be a JSON object.".to_owned()
}

/// Whether the call may be made, and with which other arguments; else why not.
async fn leave(
    call: &ToolCall,
    tool: &Tool,
    input: &Value,
    gate: &Gate,
    host: &mut Host,
) -> Result<Option<Value>, String> {
    let denied = |input: &Value| {
        let why = gate.refusal(&call.name, input);
        why.unwrap_or_else(|| format!("This call of `{}` is not permitted.", call.name))
    };
    match gate.decide(&call.name, input) {
        Verdict::Deny => return Err(denied(input)),
        Verdict::Allow => return Ok(None),
        // To ask whether a question may be asked is to ask too much.
        Verdict::Ask if matches!(tool, Tool::AskUser) => return Ok(None),
        Verdict::Ask => {}
    }
    match host.ask(Asked::Permission { call: call.clone() }).await {
        Answer::Allow { input: None } => Ok(None),
        Answer::Allow { input: Some(other) } if !other.is_object() => {
            Err(format!("The call was to run with arguments that are no object, and did not: {other}"))
        }
        // Whoever may change a call may not do what nobody may.
        Answer::Allow { input: Some(other) } if gate.decide(&call.name, &other) == Verdict::Deny => {
            Err(denied(&other))
        }
        Answer::Allow { input: Some(other) } => Ok((other != *input).then_some(other)),
        Answer::Deny(reason) | Answer::Text(reason) if reason.trim().is_empty() => Err(denied(input)),
        Answer::Deny(reason) | Answer::Text(reason) => Err(reason),
        Answer::Given { .. } => Err(denied(input)),
    }
}

/// Runs a source's tool and tells what it says meanwhile.
async fn follow(
    source: &dyn ToolSource,
    name: &str,
    input: Value,
    id: &str,
    place: &Place,
    host: &Host,
) -> ToolOutcome {
    let (output, mut said) = mpsc::channel(OUTPUT_PIECES);
    let cancel = CancellationToken::new();
    // For what a source does elsewhere than in the future, which ends by being dropped.
    let _guard = cancel.clone().drop_guard();
    let context = ToolContext { cwd: place.cwd.clone(), owner: Some(place.owner.clone()), output, cancel };
    let event = |text: String| EngineEvent::ToolOutput { id: id.to_owned(), text: bounded::result(text) };
    let mut running = source.call(name, input, &context);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(text) = said.recv() => host.tell(event(text)).await,
            outcome = &mut running => break outcome,
        }
    };
    while let Ok(text) = said.try_recv() {
        host.tell(event(text)).await;
    }
    outcome
}
