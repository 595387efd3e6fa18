//! Copies of trees of any shape.

use std::collections::{HashMap, HashSet};
use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::place::Place;

/// An entry: what it is, and how many entries before it its parent is (0, or one before the first: none).
fn shapes() -> impl Strategy<Value = Vec<(usize, usize, bool)>> {
    prop::collection::vec((0..6_usize, 0..4_usize, prop::bool::weighted(0.1)), 1..40)
}

const KINDS: [&str; 6] = ["user", "assistant", "attachment", "system", "progress", "queue-operation"];

fn uuid(index: usize) -> String {
    format!("00000000-0000-4000-8000-{index:012}")
}

fn tree(session: &str, shapes: &[(usize, usize, bool)]) -> Vec<Value> {
    let line = |(index, (kind, back, is_side)): (usize, &(usize, usize, bool))| {
        let parent = index.checked_sub(*back).filter(|_| *back > 0).map(uuid);
        let role = if KINDS[*kind] == "assistant" { "assistant" } else { "user" };
        json!({
            "type": KINDS[*kind], "uuid": uuid(index), "parentUuid": parent, "isSidechain": is_side,
            "sessionId": session, "timestamp": "2026-01-01T00:00:00.000Z", "n": index,
            "message": {"role": role, "id": format!("msg_{}", index / 2), "content": [{"type": "text", "text": "a"}]},
        })
    };
    shapes.iter().enumerate().map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn a_copy_of_a_tree_is_the_same_tree_of_new_entries(shapes in shapes(), at in any::<prop::sample::Index>()) {
        let place = Place::new();
        let native = place.session();
        let tree = tree(&native.id, &shapes);
        let path = place.transcripts().path(&native);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, tree.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")).unwrap();
        let is_copied = |line: &&Value| line["isSidechain"] == false && KINDS[..4].iter().any(|kind| line["type"] == *kind);
        let points: Vec<&Value> = tree.iter().filter(is_copied).collect();
        prop_assume!(!points.is_empty());
        let cut = at.index(points.len());

        let (copy, forked) = place.fork(&native, points[cut]["uuid"].as_str().unwrap());

        let text = place.text(&copy);
        let entries = place.entries(&copy);
        let old: HashMap<String, usize> = points.iter().map(|line| (text_of(line, "uuid"), number(line))).collect();
        let new: HashMap<String, usize> = entries.iter().map(|line| (text_of(line, "uuid"), number(line))).collect();
        // The same entries in the same order, each with an id of its own that no entry of the source has.
        let numbers = |lines: &[&Value]| lines.iter().map(|line| number(line)).collect::<Vec<_>>();
        prop_assert_eq!(numbers(&entries.iter().collect::<Vec<_>>()), numbers(&points[..=cut]));
        prop_assert_eq!(new.len(), entries.len());
        prop_assert!(new.keys().all(|uuid| !old.contains_key(uuid)));
        // Each hangs where it did; where that is not copied it is a first one, or hangs before the progress between.
        for entry in &entries {
            let parent = entry["parentUuid"].as_str().map(|parent| new[parent]);
            prop_assert_eq!(parent, expected_parent(&tree, &old, &tree[number(entry)]), "{}", entry);
            prop_assert_eq!(entry["sessionId"].as_str(), Some(&*copy.id));
        }
        // Of the source's ids only the note of where it comes from is left.
        for line in text.lines() {
            let mut line: Value = serde_json::from_str(line).unwrap();
            line.as_object_mut().unwrap().remove("forkedFrom");
            line.as_object_mut().unwrap().remove("requestSessionId");
            prop_assert!(!line.to_string().contains("00000000-0000-4000-8000-"), "{}", line);
            prop_assert!(!line.to_string().contains(&native.id), "{}", line);
        }
        let anchors: HashSet<(usize, usize)> = forked.anchors.iter().map(|(from, to)| (old[from], new[to])).collect();
        let models: HashSet<(usize, usize)> =
            entries.iter().filter(|line| line["type"] == "assistant").map(|line| (number(line), number(line))).collect();
        prop_assert_eq!(anchors, models);
    }
}

/// The entry on which this one has to hang in a copy.
fn expected_parent(tree: &[Value], copied: &HashMap<String, usize>, line: &Value) -> Option<usize> {
    let parent = line["parentUuid"].as_str()?;
    if let Some(number) = copied.get(parent) {
        return Some(*number);
    }
    let between = tree.iter().find(|line| line["uuid"] == parent)?;
    let is_passed_over = between["type"] == "progress" && between["isSidechain"] == false;
    if is_passed_over { expected_parent(tree, copied, between) } else { None }
}

fn text_of(line: &Value, name: &str) -> String {
    line[name].as_str().unwrap().to_owned()
}

fn number(line: &Value) -> usize {
    usize::try_from(line["n"].as_u64().unwrap()).unwrap()
}
