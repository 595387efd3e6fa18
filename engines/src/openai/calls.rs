//! Puts tool calls together from their pieces.

use std::collections::HashSet;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::arguments::Arguments;
use super::opaque;
use crate::contract::ToolCall;
use crate::tools::text::without_nul;

/// The longest id that a server is taken at.
const MAX_ID_BYTES: usize = 128;

/// The calls of one choice, under construction.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Arguments,
    /// What is to be sent back with it.
    members: Map<String, Value>,
}

/// A call, and the members that are sent back with it.
#[derive(Debug, PartialEq)]
pub(super) struct Made {
    pub(super) call: ToolCall,
    pub(super) members: Map<String, Value>,
}

/// A piece of a call: any part of it may be missing.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: Option<&'a Value>,
    whole: &'a Value,
}

impl<'a> Piece<'a> {
    fn read(piece: &'a Value) -> Self {
        // Some leave `function` out and put its members beside the id.
        let function = piece.get("function").filter(|function| function.is_object()).unwrap_or(piece);
        let text = |value: Option<&'a Value>| value.and_then(Value::as_str).unwrap_or_default();
        let index =
            piece.get("index").and_then(|index| index.as_u64().or_else(|| index.as_str()?.parse().ok()));
        Self {
            index,
            id: text(piece.get("id")),
            name: text(function.get("name")),
            arguments: function.get("arguments").filter(|arguments| !arguments.is_null()),
            whole: piece,
        }
    }
}

impl Calls {
    /// Takes one element of a delta's `tool_calls`, and tells whether it says anything.
    pub(super) fn take(&mut self, piece: &Value) -> bool {
        let piece = Piece::read(piece);
        if piece.id.is_empty()
            && piece.name.is_empty()
            && piece.arguments.is_none()
            && !piece.whole.is_object()
        {
            return false;
        }
        let says_nothing = piece.id.is_empty() && piece.name.is_empty() && piece.arguments.is_none();
        let at = match self.find(&piece) {
            Some(at) => at,
            None if says_nothing => return false,
            None => {
                self.0.push(Call { index: piece.index, ..Call::default() });
                self.0.len() - 1
            }
        };
        self.0[at].add(&piece);
        !says_nothing
    }

    /// The call that a piece belongs to; `None`: a new one.
    fn find(&self, piece: &Piece<'_>) -> Option<usize> {
        let found = match piece.index {
            Some(index) => self.0.iter().rposition(|call| call.index == Some(index))?,
            None if !piece.id.is_empty() => match self.0.iter().rposition(|call| call.id == piece.id) {
                Some(found) => return Some(found),
                None => self.0.len().checked_sub(1)?,
            },
            None => self.0.len().checked_sub(1)?,
        };
        let call = &self.0[found];
        let is_new = !piece.name.is_empty() && !call.name.is_empty() && call.has_another_behind(piece);
        (!is_new).then_some(found)
    }

    /// The calls. Each has an id that none of `taken` is, and is one of them afterwards.
    pub(super) fn finish(self, taken: &mut HashSet<String>) -> Vec<Made> {
        let mut made = Vec::with_capacity(self.0.len());
        for Call { id, name, arguments, mut members, .. } in self.0 {
            let (id, name) = (without_nul(id), without_nul(name));
            for (nth, arguments) in arguments.finish().into_iter().enumerate() {
                let is_usable = |id: &String| {
                    nth == 0 && !id.is_empty() && id.len() <= MAX_ID_BYTES && !taken.contains(id)
                };
                let id = Some(id.clone()).filter(is_usable);
                let id = id.unwrap_or_else(|| format!("call_{}", Uuid::now_v7().simple()));
                taken.insert(id.clone());
                let call = ToolCall { id, name: name.clone(), arguments: without_nul(arguments) };
                made.push(Made { call, members: std::mem::take(&mut members) });
            }
        }
        made
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Call {
    /// Whether a piece with a name that comes behind this call, and not with another index, begins a call of its own.
    /// The index alone does not tell: some count each call as the first. Nor does the id: others make one for each piece.
    /// But what has begun and is no JSON yet goes on.
    fn has_another_behind(&self, piece: &Piece<'_>) -> bool {
        let is_named_apart = piece.index.is_none() && !piece.id.is_empty() && piece.id != self.id;
        if self.arguments.are_unfinished() && !is_named_apart {
            return false;
        }
        if !piece.id.is_empty() {
            return !self.id.is_empty() && piece.id != self.id;
        }
        piece.index.is_none()
            || (piece.name != self.name && !self.arguments.is_empty())
            || piece.arguments.is_some_and(|arguments| self.arguments.are_followed_by(arguments))
    }

    fn add(&mut self, piece: &Piece<'_>) {
        if self.id.is_empty() {
            piece.id.clone_into(&mut self.id);
        }
        // A name may come in pieces, growing, or again and again.
        if self.arguments.is_empty() {
            if piece.name.starts_with(&self.name) {
                piece.name.clone_into(&mut self.name);
            } else {
                self.name.push_str(piece.name);
            }
        }
        if let Some(arguments) = piece.arguments {
            self.arguments.add(arguments);
        }
        self.add_members(piece.whole);
    }

    fn add_members(&mut self, piece: &Value) {
        for (name, value) in piece.as_object().into_iter().flatten() {
            opaque::take_of_call(&mut self.members, name, value);
        }
        let mut inner = match self.members.remove("function") {
            Some(Value::Object(inner)) => inner,
            _ => Map::new(),
        };
        for (name, value) in piece.get("function").and_then(Value::as_object).into_iter().flatten() {
            opaque::take_of_call(&mut inner, name, value);
        }
        if !inner.is_empty() {
            self.members.insert("function".to_owned(), Value::Object(inner));
        }
    }
}
