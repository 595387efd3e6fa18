//! The vendor's own `forkSession`, and what its copies and ours are compared by.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use roundhouse_engines::process::{Environment, Process, Spec, Stdin};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cli::{TOO_LONG, variable};

/// Copies a session once for each uuid; the ids of the copies.
pub(crate) async fn forks(config: &Path, session: &str, at: &[String]) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcript/fork.mjs");
    let mut spec = Spec::new("node", config);
    spec.args = [script, &variable("ROUNDHOUSE_TEST_CLAUDE_SDK"), session].map(Into::into).into();
    spec.stdin = Stdin::Piped;
    let set = ["CLAUDE_CONFIG_DIR", "HOME"].map(|name| (name.into(), config.into()));
    spec.environment = Environment { pass: Vec::new(), set: set.into() };
    let mut process = Process::spawn(spec).unwrap();
    let mut stdin = process.take_stdin().unwrap();
    stdin.write_all(at.join("\n").as_bytes()).await.unwrap();
    drop(stdin);
    let (mut output, mut text) = (process.take_output().unwrap(), String::new());
    tokio::time::timeout(TOO_LONG, output.read_to_string(&mut text)).await.expect("an end in time").unwrap();
    process.end(Duration::ZERO).await;
    let ids: Vec<_> = text.lines().map(str::to_owned).collect();
    assert_eq!(ids.len(), at.len(), "{text}\n{}", process.stderr_tail());
    ids
}

/// The lines of a copy with what must differ between two copies made the same: new ids are numbered, new times blanked.
pub(crate) fn comparable(mut lines: Vec<Value>, source: &str) -> Vec<Value> {
    let mut numbers = HashMap::new();
    for line in &lines {
        for name in ["sessionId", "uuid"] {
            if let Some(id) = line[name].as_str().filter(|id| !source.contains(id)) {
                let number = format!("#{}", numbers.len());
                numbers.entry(id.to_owned()).or_insert(number);
            }
        }
    }
    for line in &mut lines {
        number(line, &numbers);
        if line["timestamp"].as_str().is_some_and(|time| !source.contains(time)) {
            line["timestamp"] = "now".into();
        }
    }
    lines
}

fn number(value: &mut Value, numbers: &HashMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(number) = numbers.get(text) {
                text.clone_from(number);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| number(value, numbers)),
        Value::Object(fields) => fields.values_mut().for_each(|value| number(value, numbers)),
        _ => {}
    }
}
