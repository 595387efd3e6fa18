//! Reading what a model gave a tool.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::files::Problem;

/// Unknown fields are left alone: models add some. Everything else has to be as the schema says.
pub(super) fn read<T: DeserializeOwned>(input: Value) -> Result<T, Problem> {
    if !input.is_object() {
        return Err(Problem::new("The input is not valid: it has to be a JSON object."));
    }
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => Problem::new(format!("The input is not valid: {}.", error.inner())),
            _ => Problem::new(format!("The input is not valid: `{path}`: {}.", error.inner())),
        }
    })
}

/// The schema of an object with these properties.
pub(super) fn schema(properties: &Value, required: &[&str]) -> Value {
    serde_json::json!({ "type": "object", "properties": properties, "required": required })
}
