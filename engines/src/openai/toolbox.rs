//! The tools that a turn offers its model.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use futures::future::join_all;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::conversation::Tokens;
use super::host_tools;
use super::settings::Settings;
use crate::contract::EngineError;
use crate::tools::{ToolSource, ToolSpec};

/// The longest name that servers take.
const MAX_NAME: usize = 64;

/// What a tool's name stands for.
#[derive(Clone)]
pub(super) enum Tool {
    /// A tool of a source, with the name that it has there.
    Sourced(Arc<dyn ToolSource>, String),
    AskUser,
    SpawnAgent,
}

/// The tools of a turn. They are listed by name, so that prompt caches hold whatever order their sources have.
#[derive(Default)]
pub(super) struct Toolbox {
    tools: BTreeMap<String, (Tool, Wire)>,
}

/// A tool as the request has it.
#[derive(Serialize)]
struct Wire {
    r#type: &'static str,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    name: String,
    description: String,
    parameters: Value,
}

impl Toolbox {
    /// The tools of a turn that begins: each source gets ready first.
    pub(super) async fn of(settings: &Settings) -> Self {
        join_all(settings.sources.iter().map(|source| source.prepare())).await;
        let mut toolbox = Self::default();
        if settings.ask_user {
            toolbox.add(Tool::AskUser, host_tools::ask_user());
        }
        if let Some(agents) = &settings.spawn_agent {
            toolbox.add(Tool::SpawnAgent, host_tools::spawn_agent(agents));
        }
        for source in &settings.sources {
            for spec in source.tools() {
                toolbox.add(Tool::Sourced(Arc::clone(source), spec.name.clone()), spec);
            }
        }
        toolbox
    }

    fn add(&mut self, tool: Tool, spec: ToolSpec) {
        let name = wire_name(&spec.name);
        match self.tools.entry(name.clone()) {
            Entry::Vacant(vacant) => {
                let function =
                    Function { name, description: spec.description, parameters: schema(spec.input_schema) };
                vacant.insert((tool, Wire { r#type: "function", function }));
            }
            Entry::Occupied(_) => tracing::warn!(name, "a second tool of this name is left out"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name).map(|(tool, _)| tool)
    }

    /// What there is, for a model that has called something else.
    pub(super) fn names(&self) -> String {
        if self.is_empty() {
            return "There are none now.".to_owned();
        }
        let names: Vec<_> = self.tools.keys().map(String::as_str).collect();
        format!("There are: {}.", names.join(", "))
    }

    /// The list for the request; `None`: there are no tools.
    pub(super) fn list(&self) -> Result<Option<Arc<RawValue>>, EngineError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tools: Vec<_> = self.tools.values().map(|(_, wire)| wire).collect();
        match to_raw_value(&tools) {
            Ok(list) => Ok(Some(list.into())),
            Err(error) => Err(EngineError::Unavailable(format!("the tools cannot be listed: {error}"))),
        }
    }
}

/// About how many tokens a list of tools costs.
pub(super) fn tokens(list: Option<&RawValue>) -> Tokens {
    Tokens::of(list.map(RawValue::get).unwrap_or_default())
}

/// The name as servers take it: letters, digits, `_` and `-`, at most 64.
pub(super) fn wire_name(name: &str) -> String {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let name: String = name.chars().take(MAX_NAME).map(|c| if is_taken(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// The schema as servers take it: of an object, and without the name of its dialect.
fn schema(schema: Value) -> Value {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.remove("$schema");
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    Value::Object(schema)
}
