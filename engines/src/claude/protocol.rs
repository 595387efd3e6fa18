//! What the CLI says, line by line, read leniently: what is unknown, missing or of another shape is no error.

use std::time::Duration;

use serde_json::Value;

/// How many bytes of a text that is only shown are kept.
const SHOWN_BYTES: usize = 4096;

/// One line, as far as it matters here.
#[derive(Debug)]
pub(super) enum Line {
    /// What has become of a line that we wrote.
    Command { uuid: String, state: CommandState },
    /// Nothing runs and nothing waits.
    Idle,
    /// A piece of the message that the model is writing; of the main chain.
    Stream(Value),
    /// One block of a message of the main chain.
    Block(Block),
    /// A tool of the main chain has ended.
    ToolResult(Ended),
    /// A sub-agent, for the call that started it.
    SideChain { call: String, text: String },
    /// The context was replaced by its summary, which follows.
    Compacted,
    /// The summary, or another text that the CLI writes for the user.
    Synthetic(String),
    /// The provider failed, and is asked again.
    Retry { attempt: u32, delay: Duration, status: Option<u16> },
    /// A turn of the CLI has ended.
    Result(Box<TurnResult>),
    /// May a tool be called?
    Ask(Ask),
    /// A question is not wanted any more.
    CancelAsk(String),
    /// The CLI asks for something that we do not have.
    Unsupported { id: String, subtype: String },
    /// What we asked for.
    Reply { id: String, result: Result<Value, String> },
    /// Nothing that matters here.
    Other,
}

/// See `command_lifecycle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandState {
    /// It is given to the model.
    Started,
    /// Nothing more will come of it. Of one that was never started: it was dropped, or the CLI has had it before.
    Over,
    Other,
}

/// One content block of a message.
#[derive(Debug)]
pub(super) struct Block {
    /// The entry in the transcript.
    pub(super) uuid: Option<String>,
    /// The message that it is a part of: `message.id`.
    pub(super) message: String,
    pub(super) model: Option<String>,
    pub(super) content: Vec<Value>,
    pub(super) usage: Value,
    /// The message was cut off by an interrupt.
    pub(super) is_aborted: bool,
    /// It was not written by the model but by the CLI.
    pub(super) is_synthetic: bool,
}

/// What a tool has returned.
#[derive(Debug)]
pub(super) struct Ended {
    /// The call.
    pub(super) id: String,
    pub(super) is_error: bool,
    pub(super) text: String,
    /// The entry of the transcript.
    pub(super) uuid: Option<String>,
}

/// A `result` line.
#[derive(Debug, Default)]
pub(super) struct TurnResult {
    pub(super) subtype: String,
    pub(super) is_error: bool,
    pub(super) text: String,
    pub(super) errors: Vec<String>,
    pub(super) status: Option<u16>,
    /// The lines of ours that it answers.
    pub(super) answers: Vec<String>,
    pub(super) usage: Value,
    /// The total of the process so far, in US dollars.
    pub(super) total_cost: Option<f64>,
    /// The totals of the process so far, by model.
    pub(super) model_usage: Value,
}

/// A `can_use_tool` request.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) input: Value,
    /// The call.
    pub(super) call: String,
    /// A sub-agent asks.
    pub(super) is_side_chain: bool,
}

impl Line {
    pub(super) fn read(line: &Value) -> Self {
        let parent = line["parent_tool_use_id"].as_str();
        match (text(&line["type"]), parent) {
            ("assistant" | "user", Some(call)) => {
                Self::SideChain { call: call.to_owned(), text: shown(&line["message"]["content"]) }
            }
            ("assistant", None) => Self::Block(Block::read(line)),
            ("user", None) => user(line),
            ("stream_event", None) => Self::Stream(line["event"].clone()),
            ("result", _) => Self::Result(Box::new(TurnResult::read(line))),
            ("system", _) => system(line),
            ("command_lifecycle", _) => Self::Command {
                uuid: owned(&line["command_uuid"]),
                state: match text(&line["state"]) {
                    "started" => CommandState::Started,
                    "cancelled" | "completed" => CommandState::Over,
                    _ => CommandState::Other,
                },
            },
            ("control_request", _) => request(line),
            ("control_cancel_request", _) => Self::CancelAsk(owned(&line["request_id"])),
            ("control_response", _) => {
                let response = &line["response"];
                let result = match text(&response["subtype"]) {
                    "success" => Ok(response["response"].clone()),
                    _ => Err(owned(&response["error"])),
                };
                Self::Reply { id: owned(&response["request_id"]), result }
            }
            _ => Self::Other,
        }
    }
}

impl Block {
    fn read(line: &Value) -> Self {
        let message = &line["message"];
        let model = message["model"].as_str();
        let content = match &message["content"] {
            Value::Array(blocks) => blocks.clone(),
            Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
            _ => Vec::new(),
        };
        Self {
            uuid: line["uuid"].as_str().map(str::to_owned),
            message: owned(&message["id"]),
            model: model.map(str::to_owned),
            content,
            usage: message["usage"].clone(),
            is_aborted: line["aborted"] == true,
            is_synthetic: model == Some("<synthetic>") || line["is_api_error_message"] == true,
        }
    }
}

impl TurnResult {
    fn read(line: &Value) -> Self {
        Self {
            subtype: owned(&line["subtype"]),
            is_error: line["is_error"] == true,
            text: owned(&line["result"]),
            errors: strings(&line["errors"]),
            status: line["api_error_status"].as_u64().and_then(|status| u16::try_from(status).ok()),
            answers: strings(&line["user_message_uuids"]),
            usage: line["usage"].clone(),
            total_cost: line["total_cost_usd"].as_f64(),
            model_usage: line["modelUsage"].clone(),
        }
    }
}

/// The main chain's user lines: what tools returned, summaries, and our own messages, which are told by `command_lifecycle`.
fn user(line: &Value) -> Line {
    let content = &line["message"]["content"];
    let result =
        content.as_array().and_then(|blocks| blocks.iter().find(|block| block["type"] == "tool_result"));
    if let Some(result) = result {
        return Line::ToolResult(Ended {
            id: owned(&result["tool_use_id"]),
            is_error: result["is_error"] == true,
            text: content_text(&result["content"]),
            uuid: line["uuid"].as_str().map(str::to_owned),
        });
    }
    if line["isSynthetic"] == true { Line::Synthetic(content_text(content)) } else { Line::Other }
}

fn system(line: &Value) -> Line {
    match text(&line["subtype"]) {
        "session_state_changed" if line["state"] == "idle" => Line::Idle,
        "compact_boundary" => Line::Compacted,
        "api_retry" => Line::Retry {
            attempt: line["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(1),
            // A fraction in older releases.
            delay: line["retry_delay_ms"]
                .as_f64()
                .and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok())
                .unwrap_or_default(),
            status: line["error_status"].as_u64().and_then(|status| u16::try_from(status).ok()),
        },
        _ => Line::Other,
    }
}

fn request(line: &Value) -> Line {
    let (id, request) = (owned(&line["request_id"]), &line["request"]);
    match text(&request["subtype"]) {
        "can_use_tool" => Line::Ask(Ask {
            id,
            tool: owned(&request["tool_name"]),
            input: request["input"].clone(),
            call: owned(&request["tool_use_id"]),
            is_side_chain: request["agent_id"].is_string(),
        }),
        subtype => Line::Unsupported { id, subtype: subtype.to_owned() },
    }
}

/// The text of a content, which is a text or blocks.
pub(super) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().map(|block| match text(&block["type"]) {
                "text" => owned(&block["text"]),
                "tool_reference" => owned(&block["tool_name"]),
                other => format!("[{other}]"),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// What a sub-agent does, in short.
fn shown(content: &Value) -> String {
    let Value::Array(blocks) = content else { return bounded(&content_text(content)) };
    let texts = blocks.iter().map(|block| match text(&block["type"]) {
        "tool_use" => format!("{} {}", text(&block["name"]), block["input"]),
        "tool_result" => content_text(&block["content"]),
        "thinking" => String::new(),
        _ => content_text(&Value::Array(vec![block.clone()])),
    });
    bounded(&texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"))
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(SHOWN_BYTES)].to_owned()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn owned(value: &Value) -> String {
    text(value).to_owned()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
