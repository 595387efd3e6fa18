//! What every text from a client has to be.

use roundhouse_shared::code::Code;
use roundhouse_shared::problem::Problem;
use serde_json::{Map, Value};

use crate::problem::field_problem;

const TITLE_MOST: usize = 200;
const MODEL_MOST: usize = 200;
const CWD_MOST: usize = 4096;
const METADATA_MOST: usize = 16 << 10;

const TEXT_MOST: usize = 64 << 10;
const OBJECT_MOST: usize = 256 << 10;

const NUL: &str = "must not contain NUL";

pub(crate) fn message(text: &str) -> Result<(), Problem> {
    if text.contains('\0') {
        return Err(Problem::field("message", NUL));
    }
    if text.trim().is_empty() {
        return Err(field_problem(Code::EmptyMessage, "message", "must not be empty"));
    }
    Ok(())
}

pub(crate) fn title(text: Option<&str>) -> Result<(), Problem> {
    short("title", text, TITLE_MOST)
}

pub(crate) fn model(text: Option<&str>) -> Result<(), Problem> {
    if text.is_some_and(|text| text.trim().is_empty()) {
        return Err(Problem::field("model", "must not be empty"));
    }
    // Engines that are programs get it as an argument.
    if text.is_some_and(|text| text.trim_start().starts_with('-') || text.contains(char::is_control)) {
        return Err(Problem::field("model", "must not begin with `-` or contain control characters"));
    }
    short("model", text, MODEL_MOST)
}

pub(crate) fn cwd(text: Option<&str>) -> Result<(), Problem> {
    short("cwd", text, CWD_MOST)
}

fn short(path: &str, text: Option<&str>, most: usize) -> Result<(), Problem> {
    let Some(text) = text else { return Ok(()) };
    if text.contains('\0') {
        return Err(Problem::field(path, NUL));
    }
    if most < text.chars().count() {
        return Err(Problem::field(path, format!("must have at most {most} characters")));
    }
    Ok(())
}

/// A text of an answer.
pub(crate) fn text(path: &str, text: Option<&str>) -> Result<(), Problem> {
    short(path, text, TEXT_MOST)
}

pub(crate) fn metadata(object: Option<&Map<String, Value>>) -> Result<(), Problem> {
    bounded("metadata", object, METADATA_MOST)
}

/// An object of an answer.
pub(crate) fn object(path: &str, object: Option<&Map<String, Value>>) -> Result<(), Problem> {
    bounded(path, object, OBJECT_MOST)
}

fn bounded(path: &str, object: Option<&Map<String, Value>>, most: usize) -> Result<(), Problem> {
    let Some(object) = object else { return Ok(()) };
    if object.iter().any(|(key, value)| key.contains('\0') || has_nul(value)) {
        return Err(Problem::field(path, NUL));
    }
    let bytes = serde_json::to_vec(object).map_or(usize::MAX, |json| json.len());
    if most < bytes {
        return Err(Problem::field(path, format!("must have at most {most} bytes as JSON")));
    }
    Ok(())
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(object) => object.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
