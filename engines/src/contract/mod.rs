//! The engine contract: the page to read before adding an engine.
//!
//! An engine turns messages into *turns*. The worker opens an [`EngineSession`], sends it a turn's input and reads
//! [`EngineEvent`]s until one of them ends the turn. What an engine can do is data ([`Capabilities`]), never a
//! downcast; what goes wrong is said by what the worker can do about it ([`EngineError`]).
//!
//! Nothing here knows HTTP, SQL, queues or a session's row.

mod error;
mod event;
mod input;

use std::time::Duration;

use async_trait::async_trait;

use crate::permissions::Permissions;
use crate::tools::LeftOut;

pub use self::error::EngineError;
pub use self::event::{Answer, Asked, AssistantMessage, EngineEvent, Truncated, TurnDone, Usage};
pub use self::input::{
    Attachment, ContextMessage, Earlier, Fork, Forked, InputMessage, Native, OpenSession, ToolCall, TurnInput,
};

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

    /// The agent's permissions: what it starts is bound by them too ([`OpenSession::above`]).
    fn permissions(&self) -> Permissions {
        Permissions::default()
    }

    /// The tools that it is configured with and does not offer its model, as of its last turn.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Opens one session. Nothing is sent to a model before [`EngineSession::send`].
    ///
    /// # Errors
    /// [`EngineError::ResumeDropped`] where the native session that is asked for is not there, and [`EngineError::Behind`]
    /// where it lacks [`OpenSession::anchor`] or what came before it: nothing was started, and the session can be opened
    /// without one.
    async fn open(&self, spec: OpenSession) -> Result<Box<dyn EngineSession>, EngineError>;

    /// Copies a native session up to a point into a new one, which is complete on disk when this returns. The source stays
    /// as it is.
    ///
    /// # Errors
    /// [`EngineError::ForkFailed`]: nothing of the copy is left. [`EngineError::ResumeDropped`] and [`EngineError::Behind`]
    /// where the source is not there or lacks what is to be copied: the stored messages have to do.
    async fn fork(&self, _fork: Fork) -> Result<Forked, EngineError> {
        Err(EngineError::ForkFailed("this engine keeps no conversations of its own".to_owned()))
    }

    /// Deletes a native session, which no process may have open, with all that belongs to it. One that is not there is
    /// deleted.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with what could not be deleted.
    async fn delete(&self, _native: Native) -> Result<(), EngineError> {
        Ok(())
    }
}

/// One conversation, open in an engine. At most one turn runs in it at a time.
#[async_trait]
pub trait EngineSession: Send {
    /// The engine's own conversation behind this session, where it has one. Known from the start and the same for life.
    fn native_session(&self) -> Option<&str> {
        None
    }

    /// Whether the session can be kept after its turn and used for the next one.
    fn is_warm(&self) -> bool {
        false
    }

    /// Starts a turn. Its events are read with [`EngineSession::next`].
    async fn send(&mut self, input: TurnInput) -> Result<(), EngineError>;

    /// The next event of the running turn. Safe to drop and call again: no event is lost by it.
    ///
    /// After an event that ends the turn ([`EngineEvent::ends_turn`]), or with no turn running, it stays pending, unless
    /// the engine does something by itself: then [`EngineEvent::Autonomous`] comes.
    async fn next(&mut self) -> EngineEvent;

    /// Goes on from a boundary ([`EngineEvent::Boundary`]), with the messages that came in the meantime: they are in the
    /// context of the next model call, each as one message.
    async fn proceed(&mut self, messages: Vec<InputMessage>);

    /// Hands a message to the running turn of an engine that takes them at any time ([`Intake::AnyTime`]). Whether and
    /// when it reaches the model is told by [`EngineEvent::Delivered`]; until then it is only accepted. One that the running
    /// turn does not reach is the engine's to start the next turn with: sent again ([`EngineSession::send`]) under the same
    /// id, it is not written twice.
    async fn inject(&mut self, _message: InputMessage) -> Injected {
        Injected::NotNow
    }

    /// Answers what the engine asked ([`EngineEvent::Asked`]). An answer to nothing that is open is ignored.
    async fn answer(&mut self, id: &str, answer: Answer);

    /// Asks the engine to stop the running turn. The turn ends with [`EngineEvent::Interrupted`].
    async fn interrupt(&mut self);

    /// Ends the session and everything it started, waiting at most `grace` for a graceful end. Without any it is killed:
    /// nothing more may be written to its native session, which somebody else may have open by now.
    async fn close(self: Box<Self>, grace: Duration);
}

/// What an engine can do, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Where the conversation lives.
    pub context: ContextKind,
    /// Whether it works on files: then the session's working directory has to be there.
    pub works_on_files: bool,
    /// When it takes messages for a turn that runs.
    pub intake: Intake,
}

/// When an engine takes messages for a turn that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// At its boundaries ([`EngineEvent::Boundary`]).
    Boundaries,
    /// At any time ([`EngineSession::inject`]); it decides itself when they reach the model.
    AnyTime,
}

/// What became of a message for a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injected {
    /// The engine has it.
    Accepted,
    /// The engine does not take it now; it has to come with a turn of its own.
    NotNow,
}

/// Where the conversation that the model sees lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextKind {
    /// The worker replays it from the stored messages with every turn.
    Replayed,
    /// The engine keeps it under a native session id.
    Native,
}
