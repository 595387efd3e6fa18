//! What a model is told of a tool's input: checked for each tool, since a provider refuses the whole request for one bad
//! schema.
//!
//! | the schema | what becomes of it |
//! |---|---|
//! | is missing, null or `true` | an object without properties |
//! | has no `type`, or several with `object` among them | `type` is `object` |
//! | has no `properties`, or null | none |
//! | has an array without `items`, or with a list of them | anything, or any of them |
//! | has `true` or null in the place of a schema | anything |
//! | has null for a keyword, `"type": "any"`, or a description that is no text | the keyword is removed |
//! | is no object, or describes something else than one | the tool is left out |
//! | has `oneOf`, `anyOf`, `allOf`, `not`, `enum` or `const` at its root, which providers refuse | the tool is left out |
//! | has a keyword with a value that it cannot have: `properties` that are a list, `required` that are no names | the tool is left out |
//! | has a `$ref` that leads nowhere, out of the schema, or only to itself | the tool is left out |
//! | is nested deeper or larger than below | the tool is left out |

use serde_json::{Map, Value, json};

/// Deeper schemas are refused by providers, or cost them their stack.
const MAX_DEPTH: usize = 32;
/// The most JSON of one schema.
const MAX_BYTES: usize = 64 * 1024;

/// What providers refuse at the root.
const NOT_AT_ROOT: [&str; 6] = ["oneOf", "anyOf", "allOf", "not", "enum", "const"];

const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// The kind of value that a keyword has.
enum Kind {
    /// A schema.
    Schema,
    /// Schemas by names.
    Named,
    /// A list of schemas, not empty.
    Several,
    /// A list of names.
    Names,
    /// A list of anything, not empty.
    Choices,
    Number,
    Text,
}

fn kind(keyword: &str) -> Option<Kind> {
    Some(match keyword {
        "items"
        | "additionalProperties"
        | "additionalItems"
        | "contains"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "unevaluatedProperties"
        | "unevaluatedItems" => Kind::Schema,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => Kind::Named,
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => Kind::Several,
        "required" => Kind::Names,
        "enum" => Kind::Choices,
        "minimum" | "maximum" | "multipleOf" | "minLength" | "maxLength" | "minItems" | "maxItems"
        | "minProperties" | "maxProperties" => Kind::Number,
        "pattern" | "format" | "$ref" => Kind::Text,
        _ => return None,
    })
}

/// The schema as a provider takes it; else why the tool has to be left out.
pub(super) fn mended(schema: Option<&Value>) -> Result<Value, String> {
    let mut root = match schema {
        None | Some(Value::Null | Value::Bool(true)) => Map::new(),
        Some(Value::Object(root)) => root.clone(),
        Some(other) => return Err(format!("its inputSchema is no object: {}", shown(other))),
    };
    // Strict model servers refuse it.
    root.remove("$schema");
    let is_object = match root.get("type") {
        None | Some(Value::Null) => true,
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(_) => false,
    };
    if !is_object {
        return Err(format!("its inputSchema describes no object: its type is {}", shown(&root["type"])));
    }
    root.insert("type".to_owned(), json!("object"));
    if root.get("properties").is_none_or(Value::is_null) {
        root.insert("properties".to_owned(), json!({}));
    }
    if let Some(refused) = NOT_AT_ROOT.iter().find(|name| root.contains_key(**name)) {
        return Err(format!("its inputSchema has `{refused}` at its root, which providers refuse"));
    }
    if depth(&Value::Object(root.clone()), 0) > MAX_DEPTH {
        return Err(format!("its inputSchema is nested deeper than {MAX_DEPTH}"));
    }
    let mut schema = Value::Object(root);
    if schema.to_string().len() > MAX_BYTES {
        return Err(format!("its inputSchema has more than {MAX_BYTES} bytes"));
    }
    mend(&mut schema)?;
    check_references(&schema, &schema)?;
    Ok(schema)
}

/// Mends a schema with all that are in it. Its depth is known.
fn mend(schema: &mut Value) -> Result<(), String> {
    if matches!(schema, Value::Null | Value::Bool(true)) {
        *schema = json!({});
    }
    let Value::Object(fields) = schema else {
        // `false` allows nothing: providers take it where properties may not be added, and it is kept there.
        return if *schema == Value::Bool(false) { Ok(()) } else { Err(wrong("a schema", schema)) };
    };
    fields.retain(|name, value| !(value.is_null() && (kind(name).is_some() || name == "type")));
    for name in ["description", "title"] {
        if fields.get(name).is_some_and(|text| !text.is_string()) {
            fields.remove(name);
        }
    }
    mend_type(fields)?;
    let is_list = fields.get("type").is_some_and(|name| name == "array");
    if is_list && !fields.contains_key("items") {
        fields.insert("items".to_owned(), json!({}));
    }
    if let Some(Value::Array(items)) = fields.get("items") {
        let any = if items.is_empty() { json!({}) } else { json!({ "anyOf": items }) };
        fields.insert("items".to_owned(), any);
    }
    for (name, value) in fields.iter_mut() {
        // A boolean here is a word on the object, not a schema.
        let is_word = value.is_boolean() && name.starts_with("additional")
            || value.is_boolean() && name.starts_with("unevaluated");
        match kind(name) {
            Some(_) if is_word => {}
            Some(kind) => mend_value(name, value, &kind)?,
            None => {}
        }
    }
    Ok(())
}

fn mend_value(name: &str, value: &mut Value, kind: &Kind) -> Result<(), String> {
    let is_right = match (kind, &mut *value) {
        (Kind::Schema, schema) => return mend(schema),
        (Kind::Named, Value::Object(schemas)) => return schemas.values_mut().try_for_each(mend),
        (Kind::Several, Value::Array(schemas)) if !schemas.is_empty() => {
            return schemas.iter_mut().try_for_each(mend);
        }
        (Kind::Names, Value::Array(names)) => {
            let mut seen = std::collections::HashSet::new();
            names.retain(|name| seen.insert(name.clone()));
            names.iter().all(Value::is_string)
        }
        (Kind::Choices, Value::Array(choices)) => !choices.is_empty(),
        (Kind::Number, value) => value.is_number(),
        (Kind::Text, value) => value.is_string(),
        _ => false,
    };
    if is_right { Ok(()) } else { Err(wrong(&format!("`{name}`"), value)) }
}

fn mend_type(fields: &mut Map<String, Value>) -> Result<(), String> {
    let is_type = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match fields.get("type") {
        Some(Value::String(any)) if any == "any" => drop(fields.remove("type")),
        Some(Value::Array(names)) if !names.is_empty() && names.iter().all(is_type) => {}
        Some(name) if !is_type(name) => return Err(wrong("`type`", name)),
        _ => {}
    }
    Ok(())
}

/// Every `$ref` leads to a schema in the root. One that leads back to where it stands is how trees are described; one that
/// leads to nothing but itself describes nothing.
fn check_references(root: &Value, value: &Value) -> Result<(), String> {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                let mut steps = 0;
                let mut next = reference;
                while let Some(Value::Object(found)) = target(root, next) {
                    steps += 1;
                    match found.get("$ref") {
                        Some(Value::String(further)) if found.len() == 1 && steps < MAX_DEPTH => {
                            next = further;
                        }
                        Some(_) if found.len() == 1 => {
                            return Err(format!("its inputSchema has a `$ref` to itself: {reference}"));
                        }
                        _ => return fields.values().try_for_each(|value| check_references(root, value)),
                    }
                }
                return Err(format!(
                    "its inputSchema has a `$ref` that leads nowhere: {}",
                    shown(&json!(next))
                ));
            }
            fields.values().try_for_each(|value| check_references(root, value))
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_references(root, value)),
        _ => Ok(()),
    }
}

/// What a reference within the schema leads to.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.contains('%') { None } else { root.pointer(pointer) }
}

/// How deep a value is nested, no deeper than matters.
fn depth(value: &Value, above: usize) -> usize {
    // A schema is two levels of JSON deeper than the one that it is a property of.
    if above > 2 * MAX_DEPTH {
        return above;
    }
    let deepest = match value {
        Value::Object(fields) => fields.values().map(|value| depth(value, above + 1)).max(),
        Value::Array(values) => values.iter().map(|value| depth(value, above + 1)).max(),
        _ => None,
    };
    let deepest = deepest.unwrap_or(above);
    if above == 0 { deepest.div_ceil(2) } else { deepest }
}

fn wrong(what: &str, value: &Value) -> String {
    format!("its inputSchema has {what} that is none: {}", shown(value))
}

/// The beginning of a value.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    let end = text.floor_char_boundary(80);
    if end < text.len() { format!("{}…", &text[..end]) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_is_mended() {
        let nothing = json!({"type": "object", "properties": {}});
        for schema in
            [None, Some(json!(null)), Some(json!(true)), Some(json!({})), Some(json!({"properties": null}))]
        {
            assert_eq!(mended(schema.as_ref()), Ok(nothing.clone()), "{schema:?}");
        }
        let of = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for (given, expected) in [
            (json!({"type": "array"}), json!({"type": "array", "items": {}})),
            (
                json!({"type": "array", "items": [{"type": "string"}]}),
                json!({"type": "array", "items": {"anyOf": [{"type": "string"}]}}),
            ),
            (json!(true), json!({})),
            (json!({"type": "any", "description": 5}), json!({})),
            (json!({"type": ["string", "null"], "enum": null}), json!({"type": ["string", "null"]})),
            (
                json!({"type": "object", "additionalProperties": false}),
                json!({"type": "object", "additionalProperties": false}),
            ),
        ] {
            assert_eq!(mended(Some(&of(given.clone()))), Ok(of(expected)), "{given}");
        }
        let several = json!({"type": ["object", "null"], "$schema": "x", "required": ["a", "a"], "additionalProperties": true});
        let plain =
            json!({"type": "object", "required": ["a"], "additionalProperties": true, "properties": {}});
        assert_eq!(mended(Some(&several)), Ok(plain));
    }

    #[test]
    fn what_is_good_stays_as_it_is() {
        let tree = json!({"type": "object", "properties": {"type": {"type": "string"}, "root": {"$ref": "#/$defs/node"}}, "required": ["root"],
            "$defs": {"node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}, "all": {"$ref": "#"}}}},
            "additionalProperties": false});
        assert_eq!(mended(Some(&tree)), Ok(tree.clone()));
    }

    #[test]
    fn what_no_provider_takes_is_left_out_and_says_why() {
        let nested = (0..200).fold(
            json!({"type": "string"}),
            |inner, _| json!({"type": "object", "properties": {"a": inner}}),
        );
        let large: Map<_, _> =
            (0..3000).map(|n| (format!("property{n}"), json!({"type": "string"}))).collect();
        for (schema, says) in [
            (json!("object"), "is no object"),
            (json!([]), "is no object"),
            (json!(false), "is no object"),
            (json!({"type": "string"}), "describes no object"),
            (json!({"type": 5}), "describes no object"),
            (json!({"type": "object", "oneOf": [{}]}), "`oneOf` at its root"),
            (json!({"anyOf": [{"type": "object"}]}), "`anyOf` at its root"),
            (json!({"allOf": []}), "`allOf` at its root"),
            (json!({"properties": []}), "`properties`"),
            (json!({"properties": {"a": "string"}}), "a schema"),
            (json!({"properties": {"a": {"type": "strin"}}}), "`type`"),
            (json!({"properties": {"a": {"type": []}}}), "`type`"),
            (json!({"properties": {"a": {"enum": []}}}), "`enum`"),
            (json!({"properties": {"a": {"anyOf": []}}}), "`anyOf`"),
            (json!({"properties": {"a": {"minimum": "1"}}}), "`minimum`"),
            (json!({"properties": {"a": {"type": "array", "items": "string"}}}), "a schema"),
            (json!({"required": "a"}), "`required`"),
            (json!({"required": [1]}), "`required`"),
            (json!({"required": true}), "`required`"),
            (json!({"$ref": "#/$defs/none"}), "leads nowhere"),
            (json!({"properties": {"a": {"$ref": "#/definitions/none"}}}), "leads nowhere"),
            (json!({"properties": {"a": {"$ref": "http://example.com/schema"}}}), "leads nowhere"),
            (json!({"properties": {"a": {"$ref": 5}}}), "`$ref`"),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
                "to itself",
            ),
            (nested, "nested deeper"),
            (json!({"properties": large}), "more than"),
        ] {
            let why = mended(Some(&schema)).unwrap_err();
            assert!(why.contains(says) && why.len() < 250, "{why}");
        }
    }
}
