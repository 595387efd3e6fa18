//! What an engine is given.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::permissions::Permissions;

use super::Usage;

/// What an engine needs to open a session.
#[derive(Debug, Clone)]
pub struct OpenSession {
    /// Our session id, for logs and for names of things on the host.
    pub session: String,
    /// The engine's own conversation, when there is one already.
    pub native_session: Option<String>,
    /// The newest anchor that is stored of that conversation, but for those of the turn that is to run: the engine checks
    /// that its conversation has it. Engines without native sessions ignore it.
    pub anchor: Option<String>,
    /// The session's own choice of a model; `None`: the agent's.
    pub model: Option<String>,
    /// The session's working directory.
    pub cwd: PathBuf,
    /// The mark of everything that is started for the session ([`crate::process::kill_leftovers`]): what a crash of ours
    /// leaves running is found by it.
    pub owner: Option<String>,
    /// The permissions of the agents that have started this session, however far up: each of them has to allow a call too.
    pub above: Vec<Permissions>,
}

/// The input of one turn.
#[derive(Debug, Clone, Default)]
pub struct TurnInput {
    /// For engines that replay: all that was consumed, in that order, with the messages that this turn answers, and with
    /// what it has brought already where it goes on after a crash. For engines that keep their own context: empty, or, in
    /// a session that was opened without a native one, the conversation so far, *without* the messages of this turn; the
    /// engine opens its native session with it.
    pub context: Vec<ContextMessage>,
    /// The messages that this turn answers. Never empty. They reach the model as one, joined by a blank line.
    pub messages: Vec<InputMessage>,
    /// Set where the turn was cut off before and goes on: nothing that the engine has already may be sent a second time.
    pub earlier: Option<Earlier>,
}

/// What a turn has come to before it was cut off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Whether the host was stopped on purpose then, and not lost.
    pub stopped: bool,
    /// Model calls that were counted.
    pub iterations: u32,
    /// What they used.
    pub usage: Usage,
    /// The anchors of the turn's assistant messages that are kept already.
    pub anchors: Vec<String>,
    /// The ids of the turn's tool calls whose results are kept already.
    pub results: Vec<String>,
}

/// A native session, and what it takes to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Native {
    /// The engine's id of it.
    pub id: String,
    /// The working directory of its session.
    pub cwd: PathBuf,
}

/// A native session to be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// What is copied.
    pub source: Native,
    /// Up to and with the message of this anchor.
    pub at: String,
    /// What the copy is to be: an id that nothing has yet ([`uuid::Uuid`]), and its session's working directory.
    pub into: Native,
    /// A title for people, where the engine keeps one.
    pub title: Option<String>,
}

/// What a fork brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forked {
    /// The anchors of the source that the copy has, of messages and of results, and what they are in the copy.
    pub anchors: HashMap<String, String>,
}

/// One message that a turn answers.
#[derive(Debug, Clone)]
pub struct InputMessage {
    /// The job that carries the message: the key by which delivery and results are joined.
    pub id: String,
    /// The text, to be passed on as text whatever it looks like.
    pub text: String,
    /// Files that came with it.
    pub attachments: Vec<Attachment>,
}

/// One message of the context, as an engine that replays sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextMessage {
    /// A person's message; what was consumed together is already joined.
    User {
        /// The text.
        text: String,
        /// Files that came with it.
        attachments: Vec<Attachment>,
        /// What the engine has recorded of it ([`EngineEvent::Refused`](super::EngineEvent::Refused)).
        opaque: Option<serde_json::Value>,
    },
    /// A model's message.
    Assistant {
        /// The text.
        text: String,
        /// The tools it called. Each has its result in a later [`ContextMessage::Tool`]; those of the last message may
        /// have none, where the turn goes on after a crash: they have not begun, and the turn begins with them.
        tool_calls: Vec<ToolCall>,
        /// What the engine has given with it ([`AssistantMessage::opaque`](super::AssistantMessage::opaque)).
        opaque: Option<serde_json::Value>,
    },
    /// What a tool returned.
    Tool {
        /// The call that it answers.
        call: String,
        /// The text.
        text: String,
        /// What the engine has recorded of it ([`EngineEvent::Refused`](super::EngineEvent::Refused)).
        opaque: Option<serde_json::Value>,
    },
    /// A note of ours for the model; also the summary that stands for what came before it.
    System(String),
}

/// A file that came with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// Its media type, as checked by its content.
    pub media_type: String,
    /// Its content.
    pub data: bytes::Bytes,
}

/// A tool that the model called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id, unique within the session's context; the model's own, or ours where it gave none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them: usually, but not always, a JSON object.
    pub arguments: String,
}
