//! What the CLI asks before it runs a tool: decided by the permissions, or by a person, one question at a time.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::protocol::Ask;
use crate::contract::{Answer, Asked, EngineEvent, ToolCall};
use crate::permissions::{Gate, Verdict};

/// Asks a person, by its nature.
const QUESTION: &str = "AskUserQuestion";

/// Shows a plan to a person, by its nature.
const PLAN: &str = "ExitPlanMode";

/// Only loads the definitions of tools that are offered anyway. Denied, it is not offered itself.
const SEARCH: &str = "ToolSearch";

/// The most questions that wait; a CLI with more of them is refused.
const MAX_WAITING: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: VecDeque<Ask>,
    /// What a person is asked now.
    open: Option<Ask>,
}

/// What becomes of a question.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The CLI gets this line, and the call runs where there is one.
    Reply(Value, Option<ToolCall>),
    /// A person is asked.
    Asked(EngineEvent),
}

impl Asks {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes a question in; gives the answer at once where there are too many.
    pub(super) fn push(&mut self, ask: Ask) -> Option<Value> {
        if self.waiting.len() >= MAX_WAITING {
            return Some(deny(&ask, "There are too many questions."));
        }
        self.waiting.push_back(ask);
        None
    }

    /// The turn is over: what a person is asked now is asked again in the next one, if it is still wanted. Gives its id.
    pub(super) fn put_off(&mut self) -> Option<String> {
        let open = self.open.take()?;
        let id = open.id.clone();
        self.waiting.push_front(open);
        Some(id)
    }

    /// The CLI does not want an answer any more. Whether a person was asked.
    pub(super) fn cancel(&mut self, id: &str) -> bool {
        self.waiting.retain(|ask| ask.id != id);
        self.open.take_if(|open| open.id == id).is_some()
    }

    /// Decides the next question of which `may` holds, one for a person only where there is one to ask; `written` gives a
    /// call as the model wrote it.
    pub(super) fn decide(
        &mut self,
        gate: &Gate,
        may: impl Fn(&Ask) -> bool,
        can_ask: bool,
        written: impl Fn(&str) -> Option<Value>,
    ) -> Option<Outcome> {
        let verdict = |ask: &Ask| match &*ask.tool {
            QUESTION | PLAN => Verdict::Ask,
            SEARCH => Verdict::Allow,
            tool => gate.decide(tool, &ask.input),
        };
        // A question that a person is to answer keeps only other such questions waiting.
        let is_busy = self.open.is_some() || !can_ask;
        let at =
            self.waiting.iter().position(|ask| may(ask) && !(is_busy && verdict(ask) == Verdict::Ask))?;
        let ask = self.waiting.remove(at)?;
        Some(match verdict(&ask) {
            Verdict::Allow => allow(&ask, None),
            Verdict::Deny => {
                let reason = gate.refusal(&ask.tool, &ask.input).unwrap_or_else(|| denied(&ask));
                Outcome::Reply(deny(&ask, &reason), None)
            }
            Verdict::Ask => {
                let asked = match &*ask.tool {
                    QUESTION => Asked::Question(json!({"questions": ask.input["questions"]})),
                    // The CLI tells a plan only where it was written to its file.
                    PLAN if ask.input["plan"].is_null() => {
                        let call = written(&ask.call).unwrap_or_default();
                        Asked::Plan(json!({"plan": call["plan"]}))
                    }
                    PLAN => Asked::Plan(json!({"plan": ask.input["plan"]})),
                    _ => Asked::Permission { call: call(&ask, &ask.input) },
                };
                let id = ask.id.clone();
                self.open = Some(ask);
                Outcome::Asked(EngineEvent::Asked { id, asked })
            }
        })
    }

    /// A person's answer, if it is one to the open question.
    pub(super) fn answer(&mut self, id: &str, answer: Answer, gate: &Gate) -> Option<Outcome> {
        let ask = self.open.take_if(|open| open.id == id)?;
        let refuse = |reason: &str| {
            let reason = if reason.trim().is_empty() { denied(&ask) } else { reason.to_owned() };
            Outcome::Reply(deny(&ask, &reason), None)
        };
        Some(match (&*ask.tool, answer) {
            (QUESTION, Answer::Given { answers, message }) => {
                allow(&ask, Some(&answered(&ask, answers, message)))
            }
            (QUESTION, Answer::Text(text)) => allow(&ask, Some(&answered(&ask, Map::new(), Some(text)))),
            (QUESTION, Answer::Allow { input: None }) => refuse("There was no answer."),
            (_, Answer::Allow { input: None }) => allow(&ask, None),
            (_, Answer::Allow { input: Some(other) }) if !other.is_object() => refuse(&format!(
                "The call was to run with arguments that are no object, and did not: {other}"
            )),
            // Whoever may change a call may not do what nobody may.
            (QUESTION | PLAN, Answer::Allow { input: Some(other) }) => allow(&ask, Some(&other)),
            (tool, Answer::Allow { input: Some(other) }) => match gate.decide(tool, &other) {
                Verdict::Deny => refuse(&gate.refusal(tool, &other).unwrap_or_default()),
                _ => allow(&ask, Some(&other)),
            },
            (_, Answer::Deny(reason) | Answer::Text(reason)) => refuse(&reason),
            (_, Answer::Given { message, .. }) => refuse(&message.unwrap_or_default()),
        })
    }
}

/// The question's input with its answers, by the text of each question.
fn answered(ask: &Ask, answers: Map<String, Value>, message: Option<String>) -> Value {
    let mut answers: Map<_, _> =
        answers.into_iter().map(|(question, answer)| (question, Value::String(plain(&answer)))).collect();
    if let Some(message) = message.filter(|message| !message.trim().is_empty()) {
        let questions = ask.input["questions"].as_array().into_iter().flatten();
        let texts: Vec<_> = questions.filter_map(|question| question["question"].as_str()).collect();
        let open: Vec<_> = texts.iter().filter(|text| !answers.contains_key(**text)).collect();
        if open.is_empty() {
            // There is no other place for it.
            if let Some(Value::String(last)) = texts.last().and_then(|text| answers.get_mut(*text)) {
                *last = format!("{last} ({message})");
            }
        } else {
            let said = open.into_iter().map(|text| ((*text).to_owned(), Value::String(message.clone())));
            answers.extend(said.collect::<Vec<_>>());
        }
    }
    let mut input = ask.input.clone();
    input["answers"] = Value::Object(answers);
    input
}

fn plain(answer: &Value) -> String {
    match answer {
        Value::String(text) => text.clone(),
        Value::Array(several) => several.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn call(ask: &Ask, input: &Value) -> ToolCall {
    ToolCall { id: ask.call.clone(), name: ask.tool.clone(), arguments: input.to_string() }
}

fn denied(ask: &Ask) -> String {
    match &*ask.tool {
        QUESTION => "There was no answer.".to_owned(),
        PLAN => "The plan was not approved.".to_owned(),
        tool => format!("This call of `{tool}` is not permitted."),
    }
}

fn allow(ask: &Ask, other: Option<&Value>) -> Outcome {
    let input = other.unwrap_or(&ask.input);
    let started = (!ask.is_side_chain).then(|| call(ask, input));
    Outcome::Reply(reply(ask, &json!({"behavior": "allow", "updatedInput": input})), started)
}

fn deny(ask: &Ask, reason: &str) -> Value {
    reply(ask, &json!({"behavior": "deny", "message": reason}))
}

fn reply(ask: &Ask, response: &Value) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": ask.id, "response": response},
    })
}
