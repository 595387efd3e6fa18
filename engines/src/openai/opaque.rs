//! What a provider gives with its messages and calls that only it understands, and has to get back with them.
//!
//! Reasoning that has to stand beside the calls it led to (`reasoning_content`, `reasoning_details`), signatures
//! (`extra_content` with a `thought_signature`), encrypted content: whatever member of a message or of a call is not
//! known here is kept, and stored with the message as a [`Record`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Members of a message that are read, or that a request never repeats.
const OWN_OF_MESSAGE: [&str; 18] = [
    "role",
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "tool_call_id",
    "name",
    "id",
    "index",
    "object",
    "type",
    "error",
    "finish_reason",
    "stop_reason",
    "logprobs",
    "token_ids",
    "annotations",
    "audio",
];

/// Members of a call that are read.
const OWN_OF_CALL: [&str; 6] = ["id", "type", "index", "function", "name", "arguments"];

/// Members that are reasoning in words, in pieces.
pub(super) const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Members of the elements of a list that come in pieces.
const TEXTS: [&str; 4] = ["text", "summary", "thinking", "content"];

/// Who made a message: what only that provider understands is sent to no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Maker {
    /// The API's address, without what may be secret in it.
    pub(super) provider: Arc<str>,
    /// The model that was asked for.
    pub(super) model: Arc<str>,
}

/// What is stored with a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// Whose it is.
    pub(super) provider: String,
    pub(super) model: String,
    /// Members of the message.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) message: Map<String, Value>,
    /// Members of each of its calls; those of `function` are in a member of that name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<Map<String, Value>>,
    /// The message was cut short: its calls never run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_cut: bool,
    /// What of the message the provider refuses to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<Refused>,
}

/// What of a message a provider refuses to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Refused {
    Images,
    Text,
}

impl Record {
    pub(super) fn of(maker: &Maker) -> Self {
        Self {
            provider: maker.provider.as_ref().to_owned(),
            model: maker.model.as_ref().to_owned(),
            ..Self::default()
        }
    }

    /// The record as stored; `None` where it says nothing.
    pub(super) fn into_value(mut self) -> Option<Value> {
        if self.calls.iter().all(Map::is_empty) {
            self.calls.clear();
        }
        let is_empty =
            self.message.is_empty() && self.calls.is_empty() && !self.is_cut && self.refused.is_none();
        if is_empty { None } else { serde_json::to_value(self).ok() }
    }

    /// What was stored, as far as it concerns this provider.
    pub(super) fn read(stored: Option<Value>, maker: &Maker) -> Option<Self> {
        let record: Self = serde_json::from_value(stored?).ok()?;
        if *record.provider == *maker.provider && *record.model == *maker.model {
            return Some(record);
        }
        record.is_cut.then(|| Self { is_cut: true, ..Self::default() })
    }
}

/// Takes a member of a piece of a message.
pub(super) fn take_of_message(into: &mut Map<String, Value>, name: &str, value: Value) -> bool {
    !OWN_OF_MESSAGE.contains(&name) && take(into, name, value)
}

/// Takes a member of a piece of a call.
pub(super) fn take_of_call(into: &mut Map<String, Value>, name: &str, value: &Value) {
    if !OWN_OF_CALL.contains(&name) {
        take(into, name, value.clone());
    }
}

/// Adds a member to those of earlier pieces, and tells whether it says anything.
fn take(into: &mut Map<String, Value>, name: &str, value: Value) -> bool {
    if is_empty(&value) {
        return false;
    }
    match (into.get_mut(name), value) {
        (Some(Value::String(text)), Value::String(more)) => add_text(text, more, REASONING.contains(&name)),
        (Some(Value::Array(list)), Value::Array(more)) => {
            for one in more {
                add_element(list, one);
            }
        }
        (Some(Value::Object(object)), Value::Object(more)) => add_members(object, more),
        (_, Value::Array(first)) => {
            let mut list = Vec::with_capacity(first.len());
            for one in first {
                add_element(&mut list, one);
            }
            into.insert(name.to_owned(), Value::Array(list));
        }
        (_, value) => {
            into.insert(name.to_owned(), value);
        }
    }
    true
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Text comes in pieces. Signatures and the like come whole, and by some servers again and again, or growing.
fn add_text(text: &mut String, more: String, in_pieces: bool) {
    if !in_pieces && more.starts_with(text.as_str()) {
        *text = more;
    } else {
        text.push_str(&more);
    }
}

/// Elements of one index and one type are pieces of one.
fn add_element(list: &mut Vec<Value>, element: Value) {
    let Value::Object(element) = element else {
        list.push(element);
        return;
    };
    let is_same = |other: &&mut Map<String, Value>| {
        element.get("index").is_some_and(|index| !index.is_null() && other.get("index") == Some(index))
            && other.get("type") == element.get("type")
    };
    match list.iter_mut().filter_map(Value::as_object_mut).find(is_same) {
        Some(same) => {
            for (name, value) in element {
                match (same.get_mut(&name), value) {
                    (_, value) if is_empty(&value) => {}
                    (Some(Value::String(text)), Value::String(more))
                        if name != "id" && name != "format" && name != "type" =>
                    {
                        add_text(text, more, TEXTS.contains(&name.as_str()));
                    }
                    (_, value) => {
                        same.insert(name, value);
                    }
                }
            }
        }
        None => list.push(Value::Object(element)),
    }
}

fn add_members(object: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (object.get_mut(&name), value) {
            (Some(Value::Object(inner)), Value::Object(more)) => add_members(inner, more),
            (_, value) if is_empty(&value) => {}
            (_, value) => {
                object.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken(name: &str, pieces: &[Value]) -> Value {
        let mut members = Map::new();
        for piece in pieces {
            take_of_message(&mut members, name, piece.clone());
        }
        members.remove(name).unwrap_or_default()
    }

    #[test]
    fn pieces_of_members_become_what_was_meant() {
        let cases = [
            ("reasoning_content", vec![json!("a"), json!("a"), json!(""), json!("b")], json!("aab")),
            ("signature", vec![json!("ab"), json!("ab")], json!("ab")),
            ("signature", vec![json!("ab"), json!("cd")], json!("abcd")),
            ("role", vec![json!("assistant")], Value::Null),
            (
                "reasoning_details",
                vec![
                    json!([{"type": "reasoning.text", "index": 0, "text": "a", "format": "f"}]),
                    json!([{"type": "reasoning.text", "index": 0, "text": "b", "format": "f"}]),
                    json!([{"type": "reasoning.text", "index": 0, "text": null, "signature": "s"}, {"type": "reasoning.encrypted", "index": 0, "data": "d"}]),
                ],
                json!([{"type": "reasoning.text", "index": 0, "text": "ab", "format": "f", "signature": "s"}, {"type": "reasoning.encrypted", "index": 0, "data": "d"}]),
            ),
            (
                "extra_content",
                vec![
                    json!({"google": {"thought_signature": "old"}}),
                    json!({"google": {"thought_signature": "new"}}),
                ],
                json!({"google": {"thought_signature": "new"}}),
            ),
        ];
        for (name, pieces, expected) in cases {
            assert_eq!(taken(name, &pieces), expected, "{name} {pieces:?}");
        }
    }

    #[test]
    fn a_record_is_read_by_its_maker_alone_and_a_cut_by_all() {
        let maker = |model: &str| Maker { provider: "http://h/v1".into(), model: model.into() };
        let record = Record {
            message: Map::from_iter([("x".to_owned(), json!(1))]),
            is_cut: true,
            ..Record::of(&maker("m"))
        };
        let stored = record.clone().into_value();

        assert_eq!(Record::read(stored.clone(), &maker("m")), Some(record));
        let other = Record::read(stored, &maker("n")).unwrap();
        assert!(other.message.is_empty() && other.is_cut);
        assert_eq!(Record::of(&maker("m")).into_value(), None);
    }
}
