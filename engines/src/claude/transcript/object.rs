//! An object of a transcript, above all a line, kept as it was written.
//!
//! Only the object's own fields are taken apart; their values stay the JSON text that they are. So what is copied is
//! copied to the byte, also what no Rust type holds: the order of fields, long numbers, half a surrogate pair. And what
//! is read is read field by field: one of an unexpected type spoils no other.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::openai::lenient::repaired;

/// A JSON object: names and the JSON texts of their values, in the order in which they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Object {
    fields: Vec<(String, String)>,
}

impl Object {
    /// The object that a text is; `None` where it is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_str(&String::from_utf8_lossy(bytes)).ok()
    }

    /// The JSON text of a field.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// A field as that type; `None` where it is missing, null or another type.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let raw = self.raw(name)?;
        let value: Option<T> =
            serde_json::from_str(raw).or_else(|_| serde_json::from_str(&repaired(raw.as_bytes()))).ok()?;
        value
    }

    /// Whether a field is `true`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.raw(name) == Some("true")
    }

    /// Whether a field is there, also where it is null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// Sets a field in its place, or behind all others.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into().to_string();
        match self.fields.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name.to_owned(), value)),
        }
    }

    /// The object with one field more, or another value of it.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    /// Takes a field away.
    pub(super) fn remove(&mut self, name: &str) {
        self.fields.retain(|(key, _)| key != name);
    }

    /// The JSON texts of all fields.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.fields.iter_mut().map(|(_, value)| value)
    }
}

/// The JSON text, without a line break.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.fields.iter().enumerate() {
            let comma = if index == 0 { "{" } else { "," };
            write!(f, "{comma}{}:{value}", Value::from(&**name))?;
        }
        f.write_str(if self.fields.is_empty() { "{}" } else { "}" })
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            fields.push((name, String::from(Box::<str>::from(value))));
        }
        Ok(Object { fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_touched_stays_to_the_byte() {
        let text =
            r#"{"z":1e400,"a":"\ud83d half","n":123456789012345678901234567890,"q\"":{"b":1,"a":[ 2 ]}}"#;
        let mut object = Object::parse(text.as_bytes()).unwrap();
        assert_eq!(object.to_string(), text);
        object.set("a", "whole");
        object.set("new", Value::Null);
        object.remove("n");
        assert_eq!(object.to_string(), r#"{"z":1e400,"a":"whole","q\"":{"b":1,"a":[ 2 ]},"new":null}"#);
    }

    #[test]
    fn half_a_surrogate_pair_is_read_as_a_replacement_character() {
        let object = Object::parse(br#"{"a":"\ud83d half","b":7,"c":null}"#).unwrap();
        assert_eq!(object.get::<String>("a").as_deref(), Some("\u{fffd} half"));
        assert_eq!(
            (object.get::<String>("b"), object.get::<String>("c"), object.has("c")),
            (None, None, true)
        );
    }

    #[test]
    fn what_is_no_object_is_none() {
        for text in ["", "[]", "\"a\"", "{\"a\":1", "{\"a\":1}{", "nonsense"] {
            assert_eq!(Object::parse(text.as_bytes()), None, "{text}");
        }
    }
}
