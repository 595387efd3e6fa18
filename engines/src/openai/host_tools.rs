//! The tools that whoever runs the engine answers: `ask_user` and `spawn_agent`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::contract::Asked;
use crate::tools::ToolSpec;

pub(super) fn ask_user() -> ToolSpec {
    let option = json!({
        "type": "object",
        "properties": {
            "label": {"type": "string", "description": "The answer, in a few words."},
            "description": {"type": "string", "description": "What it means."},
        },
        "required": ["label"],
    });
    let question = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The whole question."},
            "header": {"type": "string", "description": "A title of a word or two."},
            "options": {"type": "array", "items": option, "description": "Answers to choose from, if there are such."},
            "multiSelect": {"type": "boolean", "description": "Whether more than one option may be chosen."},
        },
        "required": ["question"],
    });
    ToolSpec {
        name: "ask_user".to_owned(),
        description: "Asks the user and waits for the answer. For what only the user can decide.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {"questions": {"type": "array", "minItems": 1, "items": question}},
            "required": ["questions"],
        }),
    }
}

pub(super) fn spawn_agent(agents: &[String]) -> ToolSpec {
    let mut agent = json!({"type": "string", "description": "The agent's name."});
    if !agents.is_empty() {
        agent["enum"] = json!(agents);
    }
    ToolSpec {
        name: "spawn_agent".to_owned(),
        description: "Gives work to another agent, which sees nothing of this conversation but the message."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "agent": agent,
                "message": {"type": "string", "description": "All that the agent has to know and to do."},
                "mode": {
                    "type": "string",
                    "enum": ["wait", "async"],
                    "description": "`wait` (unless given): returns what the agent answers. `async`: returns at once, \
                                    and the answer comes later as a message.",
                },
            },
            "required": ["agent", "message"],
        }),
    }
}

/// What a call of `ask_user` asks, or why it asks nothing.
pub(super) fn question(input: Value) -> Result<Asked, String> {
    let Value::Object(mut input) = input else {
        return Err("The arguments have to be an object.".to_owned());
    };
    let questions = match input.remove("questions") {
        Some(Value::Array(questions)) => questions,
        Some(one @ (Value::Object(_) | Value::String(_))) => vec![one],
        // One question, written without the list around it.
        _ => vec![Value::Object(input)],
    };
    let questions: Option<Vec<_>> = questions.into_iter().map(one_question).collect();
    match questions.filter(|questions| !questions.is_empty()) {
        Some(questions) => Ok(Asked::Question(json!({"questions": questions}))),
        None => {
            Err("`questions` has to be a list of objects, each with a `question` that is a text.".to_owned())
        }
    }
}

fn one_question(value: Value) -> Option<Value> {
    let mut given = match value {
        Value::Object(given) => given,
        Value::String(text) => Map::from_iter([("question".to_owned(), Value::String(text))]),
        _ => return None,
    };
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    let mut question = Map::new();
    question.insert("question".to_owned(), given.remove("question").filter(is_text)?);
    if let Some(header) = given.remove("header").filter(is_text) {
        question.insert("header".to_owned(), header);
    }
    if let Some(Value::Array(options)) = given.remove("options") {
        let options: Vec<_> = options.into_iter().filter_map(option).collect();
        if !options.is_empty() {
            question.insert("options".to_owned(), options.into());
        }
    }
    if let Some(several @ Value::Bool(_)) = given.remove("multiSelect") {
        question.insert("multiSelect".to_owned(), several);
    }
    Some(Value::Object(question))
}

fn option(value: Value) -> Option<Value> {
    match value {
        Value::String(label) => Some(json!({"label": label})),
        Value::Object(option) => {
            let text = |key: &str| option.get(key).and_then(Value::as_str);
            let label = text("label")?;
            Some(match text("description") {
                Some(description) => json!({"label": label, "description": description}),
                None => json!({"label": label}),
            })
        }
        _ => None,
    }
}

/// What the call of `spawn_agent` with this id asks for, or why it asks for nothing.
/// `agents` are those that may be named, none: any.
pub(super) fn spawn(call: &str, input: Value, agents: &[String]) -> Result<Asked, String> {
    #[derive(Deserialize)]
    struct Input {
        agent: String,
        message: String,
        #[serde(default)]
        mode: Mode,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        #[default]
        Wait,
        Async,
    }

    let Input { agent, message, mode } =
        serde_json::from_value(input).map_err(|error| format!("The arguments are not right: {error}."))?;
    if agent.trim().is_empty() || message.trim().is_empty() {
        return Err("`agent` and `message` may not be empty.".to_owned());
    }
    if !agents.is_empty() && !agents.contains(&agent) {
        return Err(format!(
            "there is no agent {agent:?} that this agent may start; there are: {}",
            agents.join(", ")
        ));
    }
    Ok(Asked::Spawn { call: call.to_owned(), agent, message, wait: matches!(mode, Mode::Wait) })
}
