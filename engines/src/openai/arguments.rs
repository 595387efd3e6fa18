//! Puts the arguments of a call together as their sender meant them.
//!
//! | what comes | what is meant |
//! |---|---|
//! | pieces of one JSON value | the value |
//! | `{}` or `null` before or behind the real ones | the real ones |
//! | the whole again behind its pieces, or each piece with all before it | the whole |
//! | objects of which the last has all that the others have | the last |
//! | objects that differ otherwise | several calls of the same tool |
//! | anything else | that text; running the call says what is wrong with it |

use serde_json::{Deserializer, Value};

/// The arguments of one entry of `tool_calls`, under construction.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// All pieces.
    text: String,
    /// The last piece.
    last: String,
    /// Each piece so far begins with the one before it.
    grows: bool,
}

impl Arguments {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether they have begun and are no JSON yet.
    pub(super) fn are_unfinished(&self) -> bool {
        !self.text.trim().is_empty() && objects(&self.text).is_none()
    }

    /// Whether a piece begins other arguments behind these: those of another call.
    pub(super) fn are_followed_by(&self, piece: &Value) -> bool {
        let Some(mine) = objects(&self.text) else { return false };
        if mine.iter().all(is_placeholder) {
            return false;
        }
        match piece {
            Value::String(piece) => {
                piece.trim_start().starts_with('{') && !piece.starts_with(&self.text) && *piece != self.last
            }
            whole => {
                whole.is_object() && !is_placeholder(whole) && !mine.iter().any(|one| has_all_of(whole, one))
            }
        }
    }

    pub(super) fn add(&mut self, piece: &Value) {
        match piece {
            Value::String(piece) => {
                if piece.is_empty() {
                    return;
                }
                self.grows = piece.starts_with(&self.last) && (self.grows || self.text.is_empty());
                self.text.push_str(piece);
                piece.clone_into(&mut self.last);
            }
            // Whole, and by some also behind the pieces.
            whole if self.text.is_empty() || objects(&self.text).is_some() => {
                self.text.push_str(&whole.to_string());
            }
            _ => {}
        }
    }

    /// The arguments of each call that is meant; of one at least.
    pub(super) fn finish(self) -> Vec<String> {
        let Self { text, last, grows } = self;
        match objects(&text) {
            Some(objects) if objects.len() > 1 => meant(objects).iter().map(Value::to_string).collect(),
            None if grows && objects(&last).is_some() => vec![last],
            _ => vec![text],
        }
    }
}

/// The objects of which a text is made; `None`: it is made of something else, or not whole.
fn objects(text: &str) -> Option<Vec<Value>> {
    let read: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter().collect();
    read.ok().filter(|values| {
        !values.is_empty() && values.iter().all(|value| value.is_object() || value.is_null())
    })
}

fn meant(objects: Vec<Value>) -> Vec<Value> {
    let mut meant: Vec<Value> = Vec::new();
    for object in objects.into_iter().filter(|object| !is_placeholder(object)) {
        if meant.contains(&object) {
            continue;
        }
        match meant.last_mut() {
            Some(last) if has_all_of(&object, last) => *last = object,
            _ => meant.push(object),
        }
    }
    if meant.is_empty() {
        meant.push(Value::Object(serde_json::Map::new()));
    }
    meant
}

fn is_placeholder(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Whether an object has all members of another, or more.
fn has_all_of(object: &Value, other: &Value) -> bool {
    let (Some(object), Some(other)) = (object.as_object(), other.as_object()) else { return false };
    other.iter().all(|(name, value)| object.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_become_what_their_sender_meant() {
        let cases: &[(&[Value], &[&str])] = &[
            (&[json!(r#"{"a""#), json!(":1}")], &[r#"{"a":1}"#]),
            (&[json!("{}"), json!(r#"{"a""#), json!(":1}")], &[r#"{"a":1}"#]),
            (&[json!("{}"), json!({"a": 1})], &[r#"{"a":1}"#]),
            (&[json!(r#"{"a":1}"#), json!("{}")], &[r#"{"a":1}"#]),
            (&[json!(r#"null{"a":1}"#)], &[r#"{"a":1}"#]),
            (&[json!(r#"{"a""#), json!(":1}"), json!(r#"{"a": 1}"#)], &[r#"{"a":1}"#]),
            (&[json!(r#"{"a"#), json!(r#"{"a":1"#), json!(r#"{"a":1}"#)], &[r#"{"a":1}"#]),
            (&[json!(r#"{"a":"#), json!(r#"{"a":1}"#), json!("}")], &[r#"{"a":{"a":1}}"#]),
            (&[json!(r#"{"a":1}"#), json!(r#"{"a":1,"b":2}"#)], &[r#"{"a":1,"b":2}"#]),
            (&[json!(r#"{"a":1}{"a":2}"#)], &[r#"{"a":1}"#, r#"{"a":2}"#]),
            (&[json!("{}{}")], &["{}"]),
            (&[json!("")], &[""]),
            (&[json!(r#"{"a": echo}"#)], &[r#"{"a": echo}"#]),
        ];
        for (pieces, expected) in cases {
            let mut arguments = Arguments::default();
            pieces.iter().for_each(|piece| arguments.add(piece));
            assert_eq!(arguments.finish(), *expected, "{pieces:?}");
        }
    }
}
