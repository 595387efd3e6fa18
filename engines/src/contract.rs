//! The engine contract: the page to read before adding an engine.
//!
//! An engine turns messages into *turns*. The worker opens an [`EngineSession`], sends it a turn's input and reads
//! [`EngineEvent`]s until one of them ends the turn. What an engine can do is data ([`Capabilities`]), never a
//! downcast; what goes wrong is said by what the worker can do about it ([`EngineError`]).
//!
//! Nothing here knows HTTP, SQL, queues or a session's row.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;

/// One configured agent's engine. Cheap to share; holds no session's state.
#[async_trait]
pub trait Engine: Send + Sync {
    /// What this engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether turns can be run now, checked without running one.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with a reason that an operator understands.
    async fn available(&self) -> Result<(), EngineError>;

    /// Opens one session. Nothing is sent to a model before [`EngineSession::send`].
    async fn open(&self, spec: OpenSession) -> Result<Box<dyn EngineSession>, EngineError>;
}

/// One conversation, open in an engine. At most one turn runs in it at a time.
#[async_trait]
pub trait EngineSession: Send {
    /// Starts a turn. Its events are read with [`EngineSession::next`].
    async fn send(&mut self, input: TurnInput) -> Result<(), EngineError>;

    /// The next event of the running turn. Safe to drop and call again: no event is lost by it.
    ///
    /// After an event that ends the turn ([`EngineEvent::ends_turn`]), or with no turn running, it stays pending.
    async fn next(&mut self) -> EngineEvent;

    /// Goes on from a boundary ([`EngineEvent::Boundary`]), with the messages that came in the meantime: they are in the
    /// context of the next model call.
    async fn proceed(&mut self, messages: Vec<InputMessage>);

    /// Answers what the engine asked ([`EngineEvent::Asked`]). An answer to nothing that is open is ignored.
    async fn answer(&mut self, id: &str, answer: Answer);

    /// Asks the engine to stop the running turn. The turn ends with [`EngineEvent::Interrupted`].
    async fn interrupt(&mut self);

    /// Ends the session and everything it started, waiting at most `grace` for a graceful end.
    async fn close(self: Box<Self>, grace: Duration);
}

/// What an engine can do, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Where the conversation lives.
    pub context: ContextKind,
    /// Whether it works on files: then the session's working directory has to be there.
    pub works_on_files: bool,
}

/// Where the conversation that the model sees lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextKind {
    /// The worker replays it from the stored messages with every turn.
    Replayed,
    /// The engine keeps it under a native session id.
    Native,
}

/// What an engine needs to open a session.
#[derive(Debug, Clone)]
pub struct OpenSession {
    /// Our session id, for logs and for names of things on the host.
    pub session: String,
    /// The engine's own conversation, when there is one already.
    pub native_session: Option<String>,
    /// The session's own choice of a model; `None`: the agent's.
    pub model: Option<String>,
    /// The session's working directory.
    pub cwd: PathBuf,
    /// The mark of everything that is started for the session ([`crate::process::kill_leftovers`]): what a crash of ours
    /// leaves running is found by it.
    pub owner: Option<String>,
}

/// The input of one turn.
#[derive(Debug, Clone, Default)]
pub struct TurnInput {
    /// All that was consumed, in that order, with the messages that this turn answers, and with what it has brought already
    /// where it goes on after a crash. For engines that replay; empty for those that keep their own context.
    pub context: Vec<ContextMessage>,
    /// The messages that this turn answers: what was claimed together. Never empty.
    pub messages: Vec<InputMessage>,
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
    },
    /// A model's message.
    Assistant {
        /// The text.
        text: String,
        /// The tools it called. Each has its result in a later [`ContextMessage::Tool`]; those of the last message may
        /// have none, where the turn goes on after a crash: they have not begun, and the turn begins with them.
        tool_calls: Vec<ToolCall>,
    },
    /// What a tool returned.
    Tool {
        /// The call that it answers.
        call: String,
        /// The text.
        text: String,
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

/// What an engine asks of whoever runs it. The turn waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Whether a tool may be called.
    Permission {
        /// The call.
        call: ToolCall,
    },
    /// Questions of the agent to a person: `{questions: [{question, header?, options?, multiSelect?}]}`.
    Question(serde_json::Value),
    /// Another agent is to work on something.
    Spawn {
        /// The agent's name.
        agent: String,
        /// What it is told.
        message: String,
        /// Whether the turn waits for what it says; otherwise it says it later, by a message.
        wait: bool,
    },
}

/// What is answered to an engine that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Permission, perhaps with other arguments.
    Allow {
        /// The arguments to use in the place of the model's.
        input: Option<serde_json::Value>,
    },
    /// No permission, or no answer; the model is told why.
    Deny(String),
    /// What was asked for, as text for the model.
    Text(String),
}

/// What happens in a turn.
#[derive(Debug, Clone)]
pub enum EngineEvent {
    /// A piece of the answer's text.
    Delta(String),
    /// A piece of reasoning text.
    ThinkingDelta(String),
    /// The engine waits for its provider before it tries again.
    Retry {
        /// Which try this was, from 1.
        attempt: u32,
        /// How long the engine waits before the next one.
        delay: Duration,
        /// The provider's HTTP status, where it answered at all.
        status: Option<u16>,
    },
    /// One message of the model is complete. The tools that it calls run only once the next event is asked for, so whoever
    /// keeps messages can keep this one first.
    MessageDone(AssistantMessage),
    /// A tool begins.
    ToolStarted(ToolCall),
    /// A running tool says something; bounded, and not all of it.
    ToolOutput {
        /// The call.
        id: String,
        /// The text.
        text: String,
    },
    /// A tool has ended. The next model call comes only once the next event is asked for.
    ToolDone {
        /// The call.
        id: String,
        /// The tool's name.
        name: String,
        /// Whether it did what it was called for.
        success: bool,
        /// What the model is told, bounded.
        result: String,
    },
    /// The engine stands before a model call of the running turn and goes on with [`EngineSession::proceed`].
    Boundary,
    /// The engine asks for something and goes on with [`EngineSession::answer`].
    Asked {
        /// By which the answer is joined.
        id: String,
        /// What it asks for.
        asked: Asked,
    },
    /// The older part of the context was summarised.
    Compacted {
        /// What stands for it from now on.
        summary: String,
        /// How many messages of the turn's context, from the first, it stands for; an earlier summary counts as one.
        replaced: usize,
        /// What the summary cost.
        usage: Usage,
    },
    /// The turn has ended well: the last [`EngineEvent::MessageDone`] is its answer.
    TurnDone(TurnDone),
    /// The turn was ended by [`EngineSession::interrupt`]; what was written so far came as deltas.
    Interrupted,
    /// The turn has failed. The session can be used again unless the error says otherwise.
    Failed(EngineError),
}

impl EngineEvent {
    /// Whether this event is the last one of its turn.
    pub const fn ends_turn(&self) -> bool {
        matches!(self, Self::TurnDone(_) | Self::Interrupted | Self::Failed(_))
    }
}

/// One complete message of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssistantMessage {
    /// The text.
    pub content: String,
    /// Reasoning text, where the model shows it.
    pub thinking: Option<String>,
    /// The tools it calls. Empty: it is the turn's answer.
    pub tool_calls: Vec<ToolCall>,
    /// The model that wrote it, as the provider names it.
    pub model: Option<String>,
    /// What this message cost.
    pub usage: Usage,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnDone {
    /// Model calls in this turn, at least 1.
    pub iterations: u32,
    /// The whole turn's usage, never cumulative over turns.
    pub usage: Usage,
}

/// Tokens and cost, as the provider reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that were not read from the provider's cache.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_tokens: u64,
    /// Output tokens that were reasoning.
    pub thinking_tokens: u64,
    /// Cost in billionths of a US dollar; `None` where no price is known.
    pub cost_nanos: Option<i64>,
}

/// What went wrong, by what the worker can do about it.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum EngineError {
    /// The engine cannot run on this host (binary missing, too old, not configured).
    #[error("the engine is unavailable: {0}")]
    Unavailable(String),
    /// The provider answered with an error, or could not be reached, and tries are used up.
    #[error("the provider failed{}: {detail}", status.map(|s| format!(" with HTTP {s}")).unwrap_or_default())]
    Provider {
        /// The HTTP status, where the provider answered at all.
        status: Option<u16>,
        /// How long the provider asks to be left alone.
        retry_after: Option<Duration>,
        /// What the provider said (bounded), without secrets.
        detail: String,
    },
    /// The turn has used what its agent may use: model calls, money.
    #[error("the turn was ended: {0}")]
    Limit(String),
    /// No event for longer than the no-progress limit.
    #[error("no progress for {0:?}")]
    NoProgress(Duration),
}
