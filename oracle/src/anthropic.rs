//! Anthropic Messages: `POST /v1/messages`, and its `count_tokens`.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    clean,
    context::Conversation,
    json::{Content, Part, Str, ToolSpec},
    log::Protocol,
    reply::Reply,
    tools::Tool,
    wire::{Answer, Events, Request, Wire, halves, push_typed},
};

/// The protocol.
pub(crate) struct Messages;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Str<'a>,
    #[serde(borrow, default)]
    system: Content<'a>,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    #[serde(borrow, default)]
    tools: Option<Vec<ToolSpec<'a>>>,
    #[serde(borrow, default)]
    tool_choice: Option<Choice<'a>>,
    #[serde(default)]
    stream: Option<bool>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Str<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Str<'a>,
    #[serde(borrow, default)]
    content: Content<'a>,
}

impl<'a> Message<'a> {
    fn put(self, conversation: &mut Conversation<'a>) {
        match (self.role.as_str(), self.content) {
            ("user", Content::Parts(parts)) => user_parts(parts, conversation),
            ("user", content) => conversation.user(content.into_texts()),
            ("assistant", Content::Parts(parts)) => assistant_parts(parts, conversation),
            ("assistant", content) => conversation.answer(&content.into_text()),
            // So Claude Code passes on what the user says while a tool runs.
            (_, content) => {
                let (quoting, rest): (Vec<_>, Vec<_>) =
                    content.into_texts().into_iter().partition(|text| clean::is_quoting(text));
                for text in rest {
                    conversation.aside(&text);
                }
                conversation.user(quoting);
            }
        }
    }
}

/// Results come before the texts, whatever the order: what a user says beside a result, comes after the call.
fn user_parts<'a>(parts: Vec<Part<'a>>, conversation: &mut Conversation<'a>) {
    let mut texts = Vec::new();
    for part in parts {
        match part.kind.as_str() {
            "tool_result" => {
                let text = part.content.into_text();
                conversation.result(part.tool_use_id.0, &text, &text);
            }
            _ if !part.text.as_str().is_empty() => texts.push(part.text.0),
            _ => {}
        }
    }
    conversation.user(texts);
}

fn assistant_parts<'a>(parts: Vec<Part<'a>>, conversation: &mut Conversation<'a>) {
    // What was asked before it is still to be answered.
    let mut is_final = !parts.iter().any(|part| clean::is_placeholder(part.text.as_str()));
    for part in parts {
        if part.kind.as_str() == "tool_use" {
            is_final = false;
            conversation.call(part.id.0, part.name.as_str());
        } else {
            conversation.aside(part.text.as_str());
        }
    }
    if is_final {
        conversation.answer("");
    }
}

impl Wire for Messages {
    const PROTOCOL: Protocol = Protocol::Messages;

    fn read(body: &[u8]) -> Result<Request<'_>, String> {
        let body: Body<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let mut conversation = Conversation::default();
        conversation.aside(&body.system.into_text());
        for message in body.messages {
            message.put(&mut conversation);
        }
        if body.tool_choice.is_none_or(|choice| choice.kind.as_str() != "none") {
            Tool::read(body.tools.unwrap_or_default(), None, &mut conversation.tools);
        }
        let stream = body.stream.unwrap_or(false);
        Ok(Request { conversation, model: body.model.0, stream, include_usage: true })
    }

    fn whole(answer: &Answer<'_>) -> Value {
        let block = match answer.reply {
            Reply::Text(_) => json!({"type": "text", "text": answer.text}),
            // The arguments are JSON that the oracle made itself.
            Reply::Call { name, arguments, .. } => json!({
                "type": "tool_use",
                "id": format!("toolu_{}", answer.id),
                "name": name,
                "input": serde_json::from_str::<Value>(arguments).unwrap_or_default(),
            }),
        };
        let mut message = message(answer);
        message["content"] = json!([block]);
        message["stop_reason"] = json!(stop_reason(answer.reply));
        message
    }

    fn events(answer: &Answer<'_>) -> Events {
        let mut events = Events::default();
        let mut start = message(answer);
        // As the real one does: the output so far.
        start["usage"]["output_tokens"] = json!(1);
        push_typed(&mut events.head, &json!({"type": "message_start", "message": start}));
        let block = match answer.reply {
            Reply::Text(_) => json!({"type": "text", "text": ""}),
            Reply::Call { name, .. } => {
                json!({"type": "tool_use", "id": format!("toolu_{}", answer.id), "name": name, "input": {}})
            }
        };
        push_typed(
            &mut events.head,
            &json!({"type": "content_block_start", "index": 0, "content_block": block}),
        );
        let mut delta = |delta: Value| {
            let mut event = String::new();
            push_typed(&mut event, &json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            events.deltas.push(event);
        };
        match answer.reply {
            Reply::Text(chunks) => {
                for text in chunks {
                    delta(json!({"type": "text_delta", "text": text}));
                }
            }
            Reply::Call { arguments, .. } => {
                for half in halves(arguments) {
                    delta(json!({"type": "input_json_delta", "partial_json": half}));
                }
            }
        }
        push_typed(&mut events.tail, &json!({"type": "content_block_stop", "index": 0}));
        push_typed(
            &mut events.tail,
            &json!({
                "type": "message_delta",
                "delta": {"stop_reason": stop_reason(answer.reply), "stop_sequence": null},
                "usage": usage(answer),
            }),
        );
        push_typed(&mut events.tail, &json!({"type": "message_stop"}));
        events
    }

    fn error(status: u16, message: &str) -> Value {
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": message}})
    }
}

fn message(answer: &Answer<'_>) -> Value {
    json!({
        "id": format!("msg_{}", answer.id),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(answer),
    })
}

fn stop_reason(reply: &Reply) -> &'static str {
    match reply {
        Reply::Text(_) => "end_turn",
        Reply::Call { .. } => "tool_use",
    }
}

fn usage(answer: &Answer<'_>) -> Value {
    json!({
        "input_tokens": answer.usage.input_tokens - answer.usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.usage.cached_tokens,
        "output_tokens": answer.usage.output_tokens,
    })
}
