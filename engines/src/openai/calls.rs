//! Puts tool calls together from their pieces.

use std::collections::HashSet;

use serde_json::Value;
use uuid::Uuid;

use crate::contract::ToolCall;
use crate::tools::text::without_nul;

/// The longest id that a server is taken at.
const MAX_ID_BYTES: usize = 128;

/// The calls of one answer, under construction.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// A piece of a call: any part of it may be missing.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: Option<&'a Value>,
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
        }
    }
}

impl Calls {
    /// Takes one element of a delta's `tool_calls`.
    pub(super) fn take(&mut self, piece: &Value) {
        let piece = Piece::read(piece);
        if piece.id.is_empty() && piece.name.is_empty() && piece.arguments.is_none() {
            return;
        }
        let at = self.find(&piece).unwrap_or_else(|| {
            self.0.push(Call { index: piece.index, ..Call::default() });
            self.0.len() - 1
        });
        self.0[at].add(&piece);
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
    pub(super) fn finish(self, taken: &mut HashSet<String>) -> Vec<ToolCall> {
        let finish = |call: Call| {
            let is_usable = |id: &String| !id.is_empty() && id.len() <= MAX_ID_BYTES && !taken.contains(id);
            let id = Some(without_nul(call.id)).filter(is_usable);
            let id = id.unwrap_or_else(|| format!("call_{}", Uuid::now_v7().simple()));
            taken.insert(id.clone());
            ToolCall { id, name: without_nul(call.name), arguments: without_nul(call.arguments) }
        };
        self.0.into_iter().map(finish).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Call {
    /// Whether a piece with a name that comes behind this call, and not with another index, begins a call of its own.
    /// The index alone does not tell: some count each call as the first. Nor does the id: others make one for each piece.
    fn has_another_behind(&self, piece: &Piece<'_>) -> bool {
        if !piece.id.is_empty() {
            return !self.id.is_empty() && piece.id != self.id;
        }
        piece.index.is_none() || (piece.name != self.name && !self.arguments.is_empty())
    }

    fn add(&mut self, piece: &Piece<'_>) {
        if self.id.is_empty() {
            piece.id.clone_into(&mut self.id);
        }
        // A name may come in pieces, or again and again.
        if self.arguments.is_empty() && self.name != piece.name {
            self.name.push_str(piece.name);
        }
        match piece.arguments {
            Some(Value::String(text)) => self.arguments.push_str(text),
            // Whole, and by some also behind the pieces.
            Some(whole) if self.arguments.is_empty() => self.arguments = whole.to_string(),
            None | Some(_) => {}
        }
    }
}
