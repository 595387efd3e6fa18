//! Transcripts with what a session of today has rarely or no longer, written by hand: the vendor's SDK says what becomes of
//! it in a copy.

use std::fs;

use serde_json::{Value, json};

use crate::place::{Place, copy_folder, new_id, parsed};
use crate::sdk;

fn uuid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// An entry with more fields.
fn entry(number: u32, parent: Option<u32>, kind: &str, more: Value) -> Value {
    let mut entry = json!({
        "parentUuid": parent.map(uuid), "isSidechain": false, "type": kind, "uuid": uuid(number),
        "timestamp": "2026-01-01T00:00:00.000Z", "slug": "a-b-c", "turnAttributionKey": "t",
    });
    let Value::Object(more) = more else { panic!("no object: {more}") };
    entry.as_object_mut().unwrap().extend(more);
    entry
}

fn user(text: &str) -> Value {
    json!({"message": {"role": "user", "content": text}})
}

fn model(text: &str) -> Value {
    json!({"message": {"role": "assistant", "id": text, "model": "m", "content": [{"type": "text", "text": text}]}})
}

/// Writes the session and compares its copies at every entry that can be copied.
async fn compare(lines: Vec<Value>) {
    let (place, theirs) = (Place::new(), Place::new());
    let native = place.named(&new_id());
    let with_session = lines.into_iter().map(|mut line| {
        line.as_object_mut().unwrap().entry("sessionId").or_insert(native.id.clone().into());
        line
    });
    let lines: Vec<Value> = with_session.collect();
    let path = place.transcripts().path(&native);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let source = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    fs::write(&path, &source).unwrap();
    copy_folder(&place.config(), &theirs.config());
    let is_point = |line: &&Value| line["uuid"].is_string() && line["isSidechain"] == false;
    let sent = |line: &Value| line["attachment"]["source_uuid"].as_str().map(str::to_owned);
    let mut points: Vec<String> =
        lines.iter().filter(is_point).map(|line| line["uuid"].as_str().unwrap().to_owned()).collect();
    points.extend(lines.iter().filter_map(sent));

    let vendors = sdk::forks(&theirs.config(), &native.id, &points).await;
    for (point, vendors) in points.iter().zip(&vendors) {
        let (ours, _) = place.fork(&native, point);
        let vendors = fs::read_to_string(theirs.transcripts().path(&place.named(vendors))).unwrap();
        let (ours, vendors) = (place.lines(&ours), parsed(&vendors));
        assert_eq!(sdk::comparable(ours, &source), sdk::comparable(vendors, &source), "cut at {point}");
    }
}

#[tokio::test]
async fn links_to_what_is_not_copied() {
    compare(vec![
        entry(1, None, "user", user("  a\nb  ")),
        entry(2, Some(1), "progress", json!({})),
        entry(3, Some(2), "progress", json!({})),
        entry(4, Some(3), "assistant", model("behind progress")),
        entry(5, Some(4), "assistant", json!({"isSidechain": true})),
        entry(6, Some(5), "user", user("behind a side chain")),
        entry(7, None, "user", user("behind nothing")),
        entry(
            8,
            Some(7),
            "assistant",
            json!({"requestSessionId": "older", "forkedFrom": {"sessionId": "s", "messageUuid": "m"}}),
        ),
        entry(9, Some(8), "system", json!({"subtype": "local_command", "logicalParentUuid": null})),
    ])
    .await;
}

#[tokio::test]
async fn compactions_that_keep_messages() {
    let kept = json!({"anchorUuid": uuid(5), "uuids": [uuid(2), uuid(77)], "allUuids": [uuid(2)]});
    let metadata = json!({
        "trigger": "auto", "preTokens": 5, "postTokens": 7, "preservedMessages": kept,
        "preservedSegment": {"headUuid": uuid(2), "anchorUuid": uuid(5), "tailUuid": uuid(2)},
    });
    let boundary =
        json!({"subtype": "compact_boundary", "logicalParentUuid": uuid(2), "compactMetadata": metadata});
    let folded = json!({"attachment": {"type": "queued_command", "source_uuid": uuid(44), "prompt": "p"}});
    let mut summary = user("a summary");
    summary["isCompactSummary"] = true.into();
    compare(vec![
        entry(1, None, "user", user("X = 5")),
        entry(2, Some(1), "assistant", model("X = 5")),
        entry(3, None, "system", boundary),
        entry(4, Some(3), "attachment", folded),
        entry(5, Some(4), "user", summary),
        entry(6, Some(5), "attachment", json!({"attachment": {"type": "date"}})),
        entry(7, Some(6), "user", user("<command-name>/compact</command-name>")),
        entry(8, Some(7), "assistant", model("on")),
    ])
    .await;
}

#[tokio::test]
async fn lines_beside_the_entries() {
    let replaced = |id: &str| json!({"type": "content-replacement", "replacements": [{"kind": "tool-result", "toolUseId": id}]});
    let of_others = json!({"type": "tools-used", "sessionId": uuid(1), "tools": ["Z"]});
    compare(vec![
        replaced("a"),
        entry(1, None, "user", user("X = 5")),
        json!({"type": "tools-used", "tools": ["A", "B"]}),
        json!({"type": "atis-latch", "atis": "p"}),
        replaced("b"),
        json!({"type": "tools-used", "tools": ["C"]}),
        json!({"type": "ai-title", "aiTitle": "made up"}),
        json!({"type": "mode", "mode": "plan"}),
        json!({"type": "cost-state", "totalCostUSD": 7.5}),
        of_others,
    ])
    .await;
}

#[tokio::test]
async fn titles() {
    let custom = |title: &str| json!({"type": "custom-title", "customTitle": title});
    let long = "x".repeat(199) + " y z";
    let blocks = json!({"message": {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "behind"}]}});
    let mut meta = user("a note");
    meta["isMeta"] = true.into();
    for entries in [
        vec![entry(1, None, "user", user("first")), custom("a"), custom(" b ")],
        vec![entry(1, None, "user", user("first")), custom("a"), custom("")],
        vec![
            entry(1, None, "user", user("[Request interrupted by user]")),
            entry(2, Some(1), "user", user("second")),
        ],
        vec![entry(1, None, "user", meta), entry(2, Some(1), "user", user("<b>bold</b>"))],
        vec![entry(1, None, "user", user(&long))],
        vec![entry(1, None, "user", user(&("é".repeat(198) + "😀😀😀")))],
        vec![entry(1, None, "user", blocks)],
    ] {
        compare(entries).await;
    }
}
