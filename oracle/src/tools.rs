//! The tools of the engines, by name, and the arguments that they want.

use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    context::ToolInput,
    json::{Str, ToolSpec},
};

/// What a tool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Shell,
    Ask,
    Plan,
    Spawn,
}

/// Names in order of preference, as they are offered by Codex, Claude Code and ourselves. `exec` is Codex' tool that
/// runs JavaScript, which in turn calls `exec_command`.
const NAMES: [(Kind, &[&str]); 4] = [
    (Kind::Shell, &["exec_command", "shell_command", "bash", "shell", "run_command", "terminal", "exec"]),
    (Kind::Ask, &["askuserquestion", "ask_user", "request_user_input"]),
    (Kind::Plan, &["exitplanmode", "exit_plan_mode"]),
    (Kind::Spawn, &["spawn_agent", "agent", "task"]),
];

impl Kind {
    /// The kind of the tool of that name, if it is one that the oracle uses.
    pub(crate) fn of(name: &str) -> Option<Kind> {
        NAMES
            .iter()
            .find(|(_, names)| names.iter().any(|n| n.eq_ignore_ascii_case(name)))
            .map(|(kind, _)| *kind)
    }

    /// What is said where the engine has no such tool.
    pub(crate) fn missing(self) -> &'static str {
        match self {
            Kind::Shell => "I have no shell",
            Kind::Ask => "I have no question tool",
            Kind::Plan => "I have no plan tool",
            Kind::Spawn => "I have no agent tool",
        }
    }

    /// The tool to use for this, of those offered.
    pub(crate) fn pick<'t, 'a>(self, tools: &'t [Tool<'a>]) -> Option<&'t Tool<'a>> {
        let (_, names) = NAMES.iter().find(|(kind, _)| *kind == self)?;
        names.iter().find_map(|name| tools.iter().find(|tool| tool.name().eq_ignore_ascii_case(name)))
    }
}

/// A tool offered in a request.
#[derive(Debug, Clone)]
pub(crate) struct Tool<'a> {
    name: Str<'a>,
    /// The namespace it is in (Responses only).
    pub(crate) namespace: Option<String>,
    /// It takes plain text, not JSON (Responses only).
    pub(crate) custom: bool,
    schema: Option<&'a RawValue>,
}

impl<'a> Tool<'a> {
    /// Puts the tools of a request, those in namespaces too, behind `tools`.
    pub(crate) fn read(specs: Vec<ToolSpec<'a>>, namespace: Option<&str>, tools: &mut Vec<Tool<'a>>) {
        for spec in specs {
            if let Some(inner) = spec.tools {
                // Nothing nests deeper than one namespace.
                if namespace.is_none() {
                    Tool::read(inner, Some(spec.name.as_str()), tools);
                }
                continue;
            }
            let (name, schema) = match spec.function {
                Some(function) => (function.name, function.parameters),
                None => (spec.name, spec.input_schema.or(spec.parameters)),
            };
            let custom = spec.kind.as_str() == "custom";
            tools.push(Tool { name, namespace: namespace.map(str::to_owned), custom, schema });
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The arguments (JSON, or text for a custom tool) with which this tool does what is wanted.
    pub(crate) fn arguments(&self, kind: Kind, input: &ToolInput) -> String {
        if self.custom {
            let command = json!({"cmd": input.text, "yield_time_ms": 30_000});
            return format!(
                "const r = await tools.exec_command({command});\ntext(typeof r === \"object\" && r !== null && \"output\" in r ? r.output : r);\n"
            );
        }
        let wants = Wants::new(self);
        match kind {
            Kind::Shell => wants.shell(self.name(), input),
            Kind::Ask => wants.question(self.name(), &input.text),
            Kind::Plan => json!({"plan": input.text}),
            // Claude Code's; the name says what the work is, and one kind of agent does it.
            Kind::Spawn if wants.has("prompt") => json!({
                "description": input.agent,
                "prompt": input.text,
                "subagent_type": "general-purpose",
                "run_in_background": input.later,
            }),
            Kind::Spawn => {
                let mode = if input.later { "async" } else { "wait" };
                json!({"agent": input.agent, "message": input.text, "mode": mode})
            }
        }
        .to_string()
    }
}

/// The properties that a tool's schema has, if it has a schema.
struct Wants(Option<Map<String, Value>>);

impl Wants {
    fn new(tool: &Tool<'_>) -> Wants {
        // A definition is read only when its tool is used: the other thirty of a CLI cost nothing.
        let schema = tool.schema.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        Wants(match schema {
            Some(Value::Object(mut schema)) => match schema.remove("properties") {
                Some(Value::Object(properties)) => Some(properties),
                _ => None,
            },
            _ => None,
        })
    }

    fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|properties| properties.contains_key(name))
    }

    fn is_list(&self, name: &str) -> bool {
        self.0.as_ref().and_then(|properties| properties.get(name)).is_some_and(|p| p["type"] == "array")
    }

    fn shell(&self, name: &str, input: &ToolInput) -> Value {
        let by_name = if name == "exec_command" { "cmd" } else { "command" };
        let key = ["command", "cmd", "script"].into_iter().find(|key| self.has(key)).unwrap_or(by_name);
        let mut arguments = Map::new();
        // Claude Code refuses to run a long `sleep` that something follows, unless that is a group of its own.
        let text = if name == "Bash" { format!("({})", input.text) } else { input.text.clone() };
        let command = if self.is_list(key) { json!(["bash", "-lc", text]) } else { json!(text) };
        arguments.insert(key.to_owned(), command);
        if self.has("description") {
            arguments.insert("description".to_owned(), json!("Run a command"));
        }
        if input.later && self.has("run_in_background") {
            arguments.insert("run_in_background".to_owned(), json!(true));
        }
        if self.has("yield_time_ms") {
            arguments.insert("yield_time_ms".to_owned(), json!(30_000));
        }
        // The tools give up after some time of their own, which a long sleep must not meet.
        let patience = input.seconds.saturating_add(60).saturating_mul(1000).min(600_000);
        for key in ["timeout", "timeout_ms"] {
            if input.seconds >= 5 && self.has(key) && name != "exec_command" && !name.eq("shell") {
                arguments.insert(key.to_owned(), json!(patience));
            }
        }
        Value::Object(arguments)
    }

    fn question(&self, name: &str, question: &str) -> Value {
        let options = json!([
            {"label": "yes", "description": "Go on"},
            {"label": "no", "description": "Stop"},
        ]);
        let single =
            self.has("question") || (!self.has("questions") && name.eq_ignore_ascii_case("ask_user"));
        if !single {
            let mut one = json!({"question": question, "header": "Question", "options": options});
            // Codex knows a question by an id, Claude Code by its text.
            if name.eq_ignore_ascii_case("request_user_input") {
                one["id"] = json!("q1");
            } else {
                one["multiSelect"] = json!(false);
            }
            return json!({"questions": [one]});
        }
        let mut arguments = json!({"question": question});
        if let Some(wanted) = self.0.as_ref().and_then(|properties| properties.get("options")) {
            let plain = wanted["items"]["type"] == "string";
            arguments["options"] = if plain { json!(["yes", "no"]) } else { options };
        }
        arguments
    }
}

/// The text as one word of a shell's `echo`, quoted only where the shell would read something into it.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || " _-.,:/=+@%".contains(c);
    if text.chars().all(plain) && !text.starts_with('-') && !text.contains("  ") {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests;
