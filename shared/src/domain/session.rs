//! Sessions: one conversation of one agent.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::job::names;
use super::{EngineKind, MessageId, SessionId, TurnId, Usage};

names! {
    /// What a session does, derived from its row and its mailbox, never stored.
    SessionStatus {
        /// Nothing to do.
        Idle = "idle",
        /// Mail waits for a worker.
        Queued = "queued",
        /// A turn runs.
        Running = "running",
        /// The agent waits for a person.
        Waiting = "waiting",
        /// The last turn failed; the session can be used.
        Error = "error",
    }
}

/// One conversation, as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Its agent.
    pub agent: String,
    /// Its engine, for life.
    pub engine: EngineKind,
    /// Its own choice of a model.
    pub model: Option<String>,
    /// A title for people.
    pub title: Option<String>,
    /// Its working directory; empty means a fresh one under the worker's data directory.
    pub cwd: String,
    /// The client's own data, a JSON object.
    pub metadata: serde_json::Value,
    /// Put away by its user.
    pub archived: bool,
    /// The engine's own conversation.
    pub native_session: Option<String>,
    /// The session it was forked from or spawned by.
    pub parent: Option<SessionId>,
    /// The message it was forked at.
    pub forked_from: Option<MessageId>,
    /// How many messages it has.
    pub message_count: i64,
    /// How many messages the newest summary stands for.
    pub compact_size: i64,
    /// Grows with every cut.
    pub history_version: i64,
    /// What all its turns used together.
    pub usage: Usage,
    /// The turn that runs now.
    pub active_turn: Option<TurnId>,
    /// Its newest message.
    pub last_message: Option<MessageId>,
    /// What it does.
    pub status: SessionStatus,
    /// When it was created.
    pub created_ms: i64,
    /// When something last happened in it.
    pub updated_ms: i64,
    /// When an engine was last connected to it.
    pub connected_ms: Option<i64>,
}
