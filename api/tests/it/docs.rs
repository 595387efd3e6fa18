//! The documents that are made from the code.

use std::collections::BTreeSet;
use std::path::Path;

use roundhouse_shared::code::Code;
use serde_json::Value;

/// Compares a document with its file; rewrites it where that is asked for.
fn compare(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the product")]
    let update = std::env::var("UPDATE_DOCS").is_ok();
    if update {
        std::fs::write(&path, made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{name} is not what the code says: UPDATE_DOCS=1 cargo test -p roundhouse-api");
}

#[test]
fn the_openapi_document_is_up_to_date() {
    compare("openapi.json", &roundhouse_api::openapi_json());
}

#[test]
fn the_table_of_errors_is_up_to_date() {
    compare("docs/errors.md", &roundhouse_api::errors_markdown());
}

#[test]
fn every_operation_is_described() {
    let document: Value = serde_json::from_str(&roundhouse_api::openapi_json()).unwrap();
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(operations.insert(name.to_owned()), "{name} twice");
            assert!(operation["summary"].is_string(), "{method} {path}");
        }
    }
    assert_eq!(operations.len(), 24, "{operations:?}");
    let codes = document["components"]["schemas"]["Code"]["enum"].as_array().unwrap();
    let codes: Vec<_> = codes.iter().map(|code| code.as_str().unwrap()).collect();
    assert_eq!(codes, Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>());
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name} is named but not described");
    }
}
