//! The boundary between a conversation and a request: what every provider can take, and what this one needs.
//!
//! | in the conversation | in the request |
//! |---|---|
//! | a message of the model without text and calls (it thought only, or said white space) | a text that says that there is none |
//! | white space beside calls | `content: null` |
//! | a result without text | a text that says so |
//! | members that only their maker understands | with the messages and calls that they came with, to their maker alone |
//! | reasoning in words (`reasoning_content`, `reasoning`) | with the messages of exchanges in which tools were called, unless `compat.reasoning` says otherwise |
//! | a summary before the model's first message | a person's message: some models take no other beginning |
//! | `compat.roles = "alternate"` | messages of one role become one; between a result and a person's message stands a short one of the model |
//! | `compat.system = "first"`, `"none"` | system messages become one at the beginning, or a person's |
//! | `compat.call_ids = "short"` | ids of calls are made anew, the same in a call and its result |

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::call_ids::Ids;
use super::conversation::Entry;
use super::message::{Called, Content, Message};
use super::needs::{Needs, ReasoningReplay, RoleOrder, SystemPlace};
use super::opaque::{REASONING, Record};
use super::sent::{Assistant, Call, Piece, Said, Sent};

const NO_ANSWER: &str = "(I gave no answer.)";
const NO_RESULT: &str = "(no output)";
const RESULTS_SEEN: &str = "(I have the results.)";
const BEGINNING: &str = "(The beginning of the conversation is not shown.)";

/// What Google documents for calls that another model has made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The messages of a request.
pub(super) fn messages<'a>(instructions: &'a str, entries: &'a [Entry], needs: &'a Needs) -> Vec<Sent<'a>> {
    let mut sent = Vec::with_capacity(entries.len() + 1);
    if !instructions.is_empty() {
        sent.push(Sent { entries: Vec::new(), said: Said::System(instructions.into()) });
    }
    let mut ids = Ids::of(needs);
    let with_calls = exchanges_with_calls(entries);
    let spoken = spoken_by_user(entries);
    for (at, entry) in entries.iter().enumerate() {
        let said = match &entry.message {
            Message::System { content } if spoken == Some(at) => {
                Said::User(vec![Piece::Text(content.into())])
            }
            Message::System { content } => Said::System(content.into()),
            Message::User { content } => Said::User(pieces(content)),
            Message::Assistant { content, tool_calls, record } => Said::Assistant(assistant(
                content,
                tool_calls,
                record.as_deref(),
                with_calls[at],
                needs,
                &mut ids,
            )),
            Message::Tool { tool_call_id, content } => Said::Tool {
                tool_call_id: ids.sent(tool_call_id),
                content: if content.trim().is_empty() { NO_RESULT } else { content },
            },
        };
        sent.push(Sent { entries: vec![at], said });
    }
    let sent = place_system(sent, needs.system);
    if needs.roles == RoleOrder::Alternate { alternate(sent) } else { sent }
}

/// The names of the opaque members that a request with these messages has.
pub(super) fn opaque_names<'a>(sent: &'a [Sent<'_>]) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for sent in sent {
        let Said::Assistant(assistant) = &sent.said else { continue };
        names.extend(assistant.members.iter().map(|(name, _)| *name));
        for call in &assistant.calls {
            names.extend(call.members.iter().map(|(name, _)| *name));
            names.extend(call.of_function.iter().map(|(name, _)| *name));
        }
    }
    names
}

fn pieces(content: &Content) -> Vec<Piece<'_>> {
    match content {
        Content::Text(text) => vec![Piece::Text(text.into())],
        Content::Parts(parts) => parts.iter().map(Piece::Part).collect(),
    }
}

/// For each message whether it belongs to an exchange in which tools were called: what is between two messages of a person.
fn exchanges_with_calls(entries: &[Entry]) -> Vec<bool> {
    let is_user = |entry: &Entry| matches!(entry.message, Message::User { .. });
    let calls = |entry: &Entry| matches!(&entry.message, Message::Assistant { tool_calls, .. } if !tool_calls.is_empty());
    let mut with_calls = Vec::with_capacity(entries.len());
    for exchange in entries.chunk_by(|_, next| !is_user(next)) {
        with_calls.resize(with_calls.len() + exchange.len(), exchange.iter().any(calls));
    }
    with_calls
}

/// Some models take no conversation that does not begin with a person's message. Where a summary has replaced it, the
/// summary is sent as one.
fn spoken_by_user(entries: &[Entry]) -> Option<usize> {
    let first = entries.iter().position(|entry| !matches!(entry.message, Message::System { .. }))?;
    if matches!(entries[first].message, Message::User { .. }) { None } else { first.checked_sub(1) }
}

fn assistant<'a>(
    content: &'a str,
    called: &'a [Called],
    record: Option<&'a Record>,
    has_calls_around: bool,
    needs: &Needs,
    ids: &mut Ids<'a>,
) -> Assistant<'a> {
    let is_blank = content.trim().is_empty();
    let content = match (is_blank, called.is_empty()) {
        (false, _) => Some(content.into()),
        (true, true) => Some(NO_ANSWER.into()),
        (true, false) => None,
    };
    let sends_reasoning = match needs.reasoning {
        ReasoningReplay::Calls | ReasoningReplay::Required => has_calls_around,
        ReasoningReplay::All => true,
        ReasoningReplay::None => false,
    };
    let is_sent =
        |name: &str| !needs.dropped.contains(name) && (sends_reasoning || !REASONING.contains(&name));
    let members = record.into_iter().flat_map(|record| &record.message);
    let members =
        members.filter(|(name, _)| is_sent(name)).map(|(name, value)| (&**name, Cow::Borrowed(value)));
    let mut members: Vec<(&str, Cow<'_, Value>)> = members.collect();
    let has_reasoning = members.iter().any(|(name, _)| *name == REASONING[0]);
    if needs.reasoning == ReasoningReplay::Required && !called.is_empty() && !has_reasoning {
        members.push((REASONING[0], Cow::Owned(Value::from(" "))));
    }
    let calls = called.iter().enumerate().map(|(nth, called)| {
        let kept = record.and_then(|record| record.calls.get(nth));
        call(called, kept, needs, ids.sent(&called.id))
    });
    Assistant { content, calls: calls.collect(), members }
}

fn call<'a>(
    called: &'a Called,
    kept: Option<&'a Map<String, Value>>,
    needs: &Needs,
    id: Cow<'a, str>,
) -> Call<'a> {
    let is_sent = |name: &String| !needs.dropped.contains(name);
    let kept_members = kept.into_iter().flatten();
    let members = kept_members.filter(|(name, _)| *name != "function" && is_sent(name));
    let mut members: Vec<(&str, Cow<'_, Value>)> =
        members.map(|(name, value)| (&**name, Cow::Borrowed(value))).collect();
    if needs.wants_signatures && members.is_empty() {
        let none = json!({"google": {"thought_signature": NO_SIGNATURE}});
        members.push(("extra_content", Cow::Owned(none)));
    }
    let of_function =
        kept.and_then(|kept| kept.get("function")).and_then(Value::as_object).into_iter().flatten();
    let of_function =
        of_function.filter(|(name, _)| is_sent(name)).map(|(name, value)| (&**name, value)).collect();
    Call { id, called, members, of_function }
}

/// Puts system messages where the provider takes them.
fn place_system(sent: Vec<Sent<'_>>, place: SystemPlace) -> Vec<Sent<'_>> {
    if place == SystemPlace::Any {
        return sent;
    }
    let mut placed: Vec<Sent<'_>> = Vec::with_capacity(sent.len());
    for mut one in sent {
        let Said::System(text) = &mut one.said else {
            placed.push(one);
            continue;
        };
        let text = std::mem::take(text);
        match placed.last_mut() {
            Some(Sent { entries, said: Said::System(first) }) => {
                *first = format!("{first}\n\n{text}").into();
                entries.append(&mut one.entries);
            }
            None if place == SystemPlace::First => placed.push(Sent { said: Said::System(text), ..one }),
            _ => placed.push(Sent { said: Said::User(vec![Piece::Text(text)]), ..one }),
        }
    }
    // Instructions that a person's message follows are its beginning.
    merge(placed)
}

/// Lets a person's messages and the model's take turns.
fn alternate(sent: Vec<Sent<'_>>) -> Vec<Sent<'_>> {
    let ours = |said| Sent { entries: Vec::new(), said };
    let mut turns: Vec<Sent<'_>> = Vec::with_capacity(sent.len());
    for one in merge(sent) {
        match (turns.last().map(|last| &last.said), &one.said) {
            (None | Some(Said::System(_)), Said::Assistant(_)) => {
                turns.push(ours(Said::User(vec![Piece::Text(BEGINNING.into())])));
            }
            (Some(Said::Tool { .. }), Said::User(_)) => {
                let content = Some(RESULTS_SEEN.into());
                turns.push(ours(Said::Assistant(Assistant {
                    content,
                    calls: Vec::new(),
                    members: Vec::new(),
                })));
            }
            _ => {}
        }
        turns.push(one);
    }
    turns
}

/// Makes one message of those of a person that follow one another; and of the model's, where the first calls nothing.
fn merge(sent: Vec<Sent<'_>>) -> Vec<Sent<'_>> {
    let mut merged: Vec<Sent<'_>> = Vec::with_capacity(sent.len());
    for mut one in sent {
        let last = merged.last_mut();
        match (last.map(|last| (&mut last.said, &mut last.entries)), &mut one.said) {
            (Some((Said::User(first), entries)), Said::User(more)) => {
                first.append(more);
                entries.append(&mut one.entries);
            }
            (Some((Said::Assistant(first), entries)), Said::Assistant(more)) if first.calls.is_empty() => {
                let texts = first.content.iter().chain(&more.content).map(|text| &**text).collect::<Vec<_>>();
                first.content = Some(texts.join("\n\n").into());
                first.calls.append(&mut more.calls);
                // One message has each member once: the later ones stand beside the calls.
                first.members.retain(|(name, _)| !more.members.iter().any(|(other, _)| other == name));
                first.members.append(&mut more.members);
                entries.append(&mut one.entries);
            }
            _ => merged.push(one),
        }
    }
    merged
}
