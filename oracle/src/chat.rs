//! OpenAI Chat Completions: `POST /v1/chat/completions`.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    context::Conversation,
    json::{Content, Str, ToolSpec},
    log::Protocol,
    reply::Reply,
    tools::Tool,
    usage::Usage,
    wire::{Answer, CREATED, Events, Request, Wire, halves, push},
};

/// The protocol.
pub(crate) struct Chat;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Str<'a>,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    #[serde(borrow, default)]
    tools: Option<Vec<ToolSpec<'a>>>,
    #[serde(borrow, default)]
    tool_choice: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Str<'a>,
    #[serde(borrow, default)]
    content: Content<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Call<'a>>>,
    #[serde(borrow, default)]
    tool_call_id: Str<'a>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    id: Str<'a>,
    #[serde(borrow, default)]
    function: Function<'a>,
}

#[derive(Default, Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Str<'a>,
}

impl<'a> Message<'a> {
    fn put(self, conversation: &mut Conversation<'a>) {
        match self.role.as_str() {
            "user" => conversation.user(self.content.into_texts()),
            "assistant" => match self.tool_calls.filter(|calls| !calls.is_empty()) {
                Some(calls) => {
                    conversation.aside(&self.content.into_text());
                    for call in calls {
                        conversation.call(call.id.0, call.function.name.as_str());
                    }
                }
                None => conversation.answer(&self.content.into_text()),
            },
            "tool" => {
                let text = self.content.into_text();
                conversation.result(self.tool_call_id.0, &text, &text);
            }
            _ => conversation.aside(&self.content.into_text()),
        }
    }
}

impl Wire for Chat {
    const PROTOCOL: Protocol = Protocol::Chat;

    fn read(body: &[u8]) -> Result<Request<'_>, String> {
        let body: Body<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let mut conversation = Conversation::default();
        for message in body.messages {
            message.put(&mut conversation);
        }
        if body.tool_choice.is_none_or(|choice| choice.get() != "\"none\"") {
            Tool::read(body.tools.unwrap_or_default(), None, &mut conversation.tools);
        }
        Ok(Request {
            conversation,
            model: body.model.0,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        })
    }

    fn whole(answer: &Answer<'_>) -> Value {
        let mut message = json!({"role": "assistant", "content": answer.text, "refusal": null});
        if let Reply::Call { name, arguments, .. } = answer.reply {
            message["content"] = Value::Null;
            message["tool_calls"] = json!([{
                "id": format!("call_{}", answer.id),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }]);
        }
        json!({
            "id": format!("chatcmpl-{}", answer.id),
            "object": "chat.completion",
            "created": CREATED,
            "model": answer.model,
            "choices": [{
                "index": 0,
                "message": message,
                "logprobs": null,
                "finish_reason": finish_reason(answer.reply),
            }],
            "usage": usage(answer.usage),
        })
    }

    fn events(answer: &Answer<'_>) -> Events {
        let mut events = Events::default();
        push(&mut events.head, &chunk(answer, &json!({"role": "assistant", "content": ""}), None));
        let mut delta = |delta: Value| {
            let mut event = String::new();
            push(&mut event, &chunk(answer, &delta, None));
            events.deltas.push(event);
        };
        match answer.reply {
            Reply::Text(chunks) => {
                for text in chunks {
                    delta(json!({"content": text}));
                }
            }
            Reply::Call { name, arguments, .. } => {
                let id = format!("call_{}", answer.id);
                let function = json!({"name": name, "arguments": ""});
                delta(
                    json!({"tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}]}),
                );
                for half in halves(arguments) {
                    delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": half}}]}));
                }
            }
        }
        push(&mut events.tail, &chunk(answer, &json!({}), Some(finish_reason(answer.reply))));
        if answer.include_usage {
            let mut last = chunk(answer, &json!({}), None);
            last["choices"] = json!([]);
            last["usage"] = usage(answer.usage);
            push(&mut events.tail, &last);
        }
        events.tail.push_str("data: [DONE]\n\n");
        events
    }

    fn error(status: u16, message: &str) -> Value {
        openai_error(status, message)
    }
}

fn chunk(answer: &Answer<'_>, delta: &Value, finish_reason: Option<&str>) -> Value {
    json!({
        "id": format!("chatcmpl-{}", answer.id),
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": answer.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    })
}

fn finish_reason(reply: &Reply) -> &'static str {
    match reply {
        Reply::Text(_) => "stop",
        Reply::Call { .. } => "tool_calls",
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

/// An error as OpenAI sends it, in both of its protocols.
pub(crate) fn openai_error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        429 => ("rate_limit_error", Some("rate_limit_exceeded")),
        401 => ("authentication_error", Some("invalid_api_key")),
        400..=499 => ("invalid_request_error", None),
        _ => ("server_error", None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}
