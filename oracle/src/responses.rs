//! OpenAI Responses: `POST /v1/responses`.
//!
//! Codex frames what a command printed (`Wall time: …`, `Output:`); the oracle says what stands in the frame.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use crate::{
    chat::openai_error,
    context::Conversation,
    json::{Content, Str, ToolSpec},
    log::Protocol,
    reply::Reply,
    tools::Tool,
    wire::{Answer, CREATED, Events, Request, Wire, halves, push_typed},
};

/// The protocol.
pub(crate) struct Responses;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Str<'a>,
    #[serde(borrow, default)]
    instructions: Content<'a>,
    #[serde(borrow)]
    input: Input<'a>,
    #[serde(borrow, default)]
    tools: Option<Vec<ToolSpec<'a>>>,
    #[serde(borrow, default)]
    tool_choice: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<bool>,
}

/// Not `#[serde(untagged)]`: that reads everything twice, and cannot read raw values inside.
enum Input<'a> {
    Text(Cow<'a, str>),
    Items(Vec<Item<'a>>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Input<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputVisitor)
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = Input<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of items")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Input::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Input::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Input::Items(items))
    }
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow, default)]
    role: Str<'a>,
    #[serde(borrow, default)]
    content: Content<'a>,
    #[serde(borrow, default)]
    call_id: Str<'a>,
    #[serde(borrow, default)]
    name: Str<'a>,
    #[serde(borrow, default)]
    output: Content<'a>,
    #[serde(borrow, default)]
    tools: Option<Vec<ToolSpec<'a>>>,
}

impl Item<'_> {
    fn is_call(&self) -> bool {
        matches!(self.kind.as_str(), "function_call" | "custom_tool_call" | "local_shell_call")
    }
}

fn put<'a>(items: Vec<Item<'a>>, conversation: &mut Conversation<'a>) {
    // An assistant message right before a call is of the same response, so it is no final answer.
    let beside_call: Vec<bool> = (0..items.len())
        .map(|at| {
            items[at + 1..].iter().find(|item| item.kind.as_str() != "reasoning").is_some_and(Item::is_call)
        })
        .collect();
    for (item, beside_call) in items.into_iter().zip(beside_call) {
        match (item.kind.as_str(), item.role.as_str()) {
            ("" | "message", "user") => conversation.user(item.content.into_texts()),
            ("" | "message", "assistant") if !beside_call => {
                conversation.answer(&item.content.into_text());
            }
            ("" | "message", _) => conversation.aside(&item.content.into_text()),
            ("local_shell_call", _) => conversation.call(item.call_id.0, "shell"),
            ("function_call" | "custom_tool_call", _) => {
                conversation.call(item.call_id.0, item.name.as_str());
            }
            ("function_call_output" | "custom_tool_call_output" | "local_shell_call_output", _) => {
                let sent = item.output.into_text();
                conversation.result(item.call_id.0, &unframed(&sent), &sent);
            }
            // Codex' newer models get their tools so.
            ("additional_tools", _) => {
                Tool::read(item.tools.unwrap_or_default(), None, &mut conversation.tools);
            }
            _ => {}
        }
    }
}

/// The frame of an older Codex. The metadata tells it from JSON that a command printed.
#[derive(Deserialize)]
struct Framed {
    output: String,
    #[serde(rename = "metadata")]
    _metadata: Value,
}

/// What a command printed, without the frame that Codex puts around it.
fn unframed(text: &str) -> Cow<'_, str> {
    let framed = ["Chunk ID:", "Wall time", "Exit code:", "Script completed"];
    if framed.iter().any(|head| text.starts_with(head))
        && let Some((_, output)) = text.split_once("\nOutput:\n")
    {
        return Cow::Borrowed(output);
    }
    if text.starts_with('{')
        && let Ok(framed) = serde_json::from_str::<Framed>(text)
    {
        return Cow::Owned(framed.output);
    }
    Cow::Borrowed(text)
}

impl Wire for Responses {
    const PROTOCOL: Protocol = Protocol::Responses;

    fn read(body: &[u8]) -> Result<Request<'_>, String> {
        let body: Body<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let mut conversation = Conversation::default();
        conversation.aside(&body.instructions.into_text());
        match body.input {
            Input::Text(text) => conversation.user(vec![text]),
            Input::Items(items) => put(items, &mut conversation),
        }
        Tool::read(body.tools.unwrap_or_default(), None, &mut conversation.tools);
        if body.tool_choice.is_some_and(|choice| choice.get() == "\"none\"") {
            conversation.tools.clear();
        }
        let stream = body.stream.unwrap_or(false);
        Ok(Request { conversation, model: body.model.0, stream, include_usage: true })
    }

    fn whole(answer: &Answer<'_>) -> Value {
        response(answer, "completed", Some(item(answer, true)))
    }

    fn events(answer: &Answer<'_>) -> Events {
        let mut number = 0;
        let mut push = |to: &mut String, mut event: Value| {
            event["sequence_number"] = json!(number);
            number += 1;
            push_typed(to, &event);
        };
        let mut events = Events::default();
        let (head, tail) = (&mut events.head, &mut events.tail);
        let (begun, done) = (item(answer, false), item(answer, true));
        let id = done["id"].clone();
        push(head, json!({"type": "response.created", "response": response(answer, "in_progress", None)}));
        push(head, json!({"type": "response.output_item.added", "output_index": 0, "item": begun}));
        let part =
            |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        let text_event = |kind: &str, key: &str, value: Value| {
            let mut event = json!({"type": kind, "item_id": id, "output_index": 0, "content_index": 0});
            event[key] = value;
            event
        };
        let (kind, pieces): (&str, Vec<&str>) = match answer.reply {
            Reply::Text(chunks) => {
                push(head, text_event("response.content_part.added", "part", part("")));
                ("response.output_text.delta", chunks.iter().map(String::as_str).collect())
            }
            Reply::Call { custom: true, arguments, .. } => {
                ("response.custom_tool_call_input.delta", halves(arguments).into())
            }
            Reply::Call { arguments, .. } => {
                ("response.function_call_arguments.delta", halves(arguments).into())
            }
        };
        for piece in pieces {
            let mut event = String::new();
            push(&mut event, text_event(kind, "delta", json!(piece)));
            events.deltas.push(event);
        }
        match answer.reply {
            Reply::Text(_) => {
                push(tail, text_event("response.output_text.done", "text", json!(answer.text)));
                push(tail, text_event("response.content_part.done", "part", part(answer.text)));
            }
            Reply::Call { custom: true, .. } => {
                push(tail, text_event("response.custom_tool_call_input.done", "input", json!(answer.text)));
            }
            Reply::Call { .. } => push(
                tail,
                text_event("response.function_call_arguments.done", "arguments", json!(answer.text)),
            ),
        }
        push(tail, json!({"type": "response.output_item.done", "output_index": 0, "item": done}));
        let whole = Self::whole(answer);
        push(tail, json!({"type": "response.completed", "response": whole}));
        events
    }

    fn error(status: u16, message: &str) -> Value {
        openai_error(status, message)
    }
}

fn response(answer: &Answer<'_>, status: &str, item: Option<Value>) -> Value {
    let usage = (status == "completed").then(|| {
        json!({
            "input_tokens": answer.usage.input_tokens,
            "input_tokens_details": {"cached_tokens": answer.usage.cached_tokens},
            "output_tokens": answer.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.usage.input_tokens + answer.usage.output_tokens,
        })
    });
    json!({
        "id": format!("resp_{}", answer.id),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": null,
        "incomplete_details": null,
        "model": answer.model,
        "output": item.into_iter().collect::<Vec<_>>(),
        "usage": usage,
    })
}

/// The one item of an answer, finished or as it begins.
fn item(answer: &Answer<'_>, finished: bool) -> Value {
    let status = if finished { "completed" } else { "in_progress" };
    let Reply::Call { name, namespace, custom, arguments } = answer.reply else {
        let part = json!({"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []});
        let content = if finished { json!([part]) } else { json!([]) };
        return json!({
            "type": "message", "id": format!("msg_{}", answer.id), "role": "assistant",
            "status": status, "content": content,
        });
    };
    let (kind, prefix, key) =
        if *custom { ("custom_tool_call", "ctc", "input") } else { ("function_call", "fc", "arguments") };
    let mut item = json!({
        "type": kind, "id": format!("{prefix}_{}", answer.id), "call_id": format!("call_{}", answer.id),
        "name": name, "status": status,
    });
    item[key] = json!(if finished { arguments.as_str() } else { "" });
    if let Some(namespace) = namespace {
        item["namespace"] = json!(namespace);
    }
    item
}

#[cfg(test)]
mod tests;
