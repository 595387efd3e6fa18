//! Calls and their results. Servers refuse a context in which one is without the other, and such can come of single
//! messages that were deleted.

use std::collections::VecDeque;

use super::ContextEntry;
use crate::domain::Role;

/// What stands for a result that is no longer there.
const GONE: &str = "(the result is no longer there)";

/// Leaves out results without calls, and gives calls without results one that says so; but not the last ones: where a
/// turn goes on, those have yet to be run.
pub(super) fn paired(entries: Vec<ContextEntry>) -> Vec<ContextEntry> {
    let mut entries = VecDeque::from(entries);
    let mut paired = Vec::with_capacity(entries.len());
    while let Some(entry) = entries.pop_front() {
        let mut open = calls(&entry);
        let after = entry.consumed_seq;
        if entry.role != Role::Tool {
            paired.push(entry);
        }
        while let Some(result) = entries.pop_front_if(|next| next.role == Role::Tool) {
            if let Some(found) = open.iter().position(|call| Some(call) == result.tool_call_id.as_ref()) {
                open.remove(found);
                paired.push(result);
            }
        }
        if !entries.is_empty() {
            paired.extend(open.into_iter().map(|call| gone(call, after)));
        }
    }
    paired
}

fn calls(entry: &ContextEntry) -> Vec<String> {
    let calls = entry.tool_calls.as_ref().and_then(|calls| calls.as_array());
    calls.into_iter().flatten().filter_map(|call| Some(call.get("id")?.as_str()?.to_owned())).collect()
}

fn gone(call: String, consumed_seq: i64) -> ContextEntry {
    ContextEntry {
        role: Role::Tool,
        content: GONE.to_owned(),
        tool_calls: None,
        tool_call_id: Some(call),
        attachments: None,
        consumed_seq,
        turn: None,
        opaque: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(role: Role, content: &str, calls: &[&str], answers: Option<&str>) -> ContextEntry {
        let calls: Vec<_> = calls.iter().map(|id| serde_json::json!({ "id": id })).collect();
        ContextEntry {
            role,
            content: content.to_owned(),
            tool_calls: Some(calls.into()),
            tool_call_id: answers.map(str::to_owned),
            attachments: None,
            consumed_seq: 1,
            turn: None,
            opaque: None,
        }
    }

    #[test]
    fn no_call_is_without_a_result_and_no_result_without_a_call() {
        let asked = |calls: &[&str]| entry(Role::Assistant, "look", calls, None);
        let result = |call: &str| entry(Role::Tool, call, &[], Some(call));
        let user = || entry(Role::User, "hi", &[], None);
        let cases = [
            (vec![user(), asked(&["a", "b"]), result("a"), result("b"), user()], "hi look a b hi"),
            (vec![user(), asked(&["a", "b"]), result("b"), user()], "hi look b GONE hi"),
            (vec![asked(&["a"]), user()], "look GONE hi"),
            (vec![asked(&["a"]), asked(&["a"]), result("a")], "look GONE look a"),
            // A turn that goes on begins with these.
            (vec![user(), asked(&["a", "b"]), result("a")], "hi look a"),
            (vec![result("a"), user(), result("b")], "hi"),
            (vec![user(), asked(&["a"]), result("b"), result("a"), result("a"), user()], "hi look a hi"),
            (Vec::new(), ""),
        ];
        for (entries, expected) in cases {
            let told = paired(entries);
            let told: Vec<_> = told.iter().map(|entry| entry.content.replace(GONE, "GONE")).collect();
            assert_eq!(told.join(" "), expected);
        }
    }
}
