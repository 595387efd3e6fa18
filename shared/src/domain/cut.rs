//! Cuts: what a fork, a trim and a reset ask for, and what comes of them.

use serde::{Deserialize, Serialize};

use super::{ChatResult, ContextSource, MessageId, SessionId};

/// What a job asks for that changes which messages a conversation has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Cut {
    /// What comes after a message goes.
    Trim {
        /// The last message that stays.
        at: MessageId,
    },
    /// A new session gets this one's messages.
    Fork(Fork),
    /// All messages go.
    Reset,
}

/// What a fork asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The id of the new session.
    pub into: SessionId,
    /// The last message that it gets; `None`: all.
    pub at: Option<MessageId>,
    /// Its title; `None`: that of its source.
    pub title: Option<String>,
    /// Its working directory; `None`: that of its source.
    pub cwd: Option<String>,
    /// Whether it is made only where the engine can copy its own conversation.
    pub require_anchor: bool,
}

impl Cut {
    /// The job that does it.
    pub const fn kind(&self) -> super::JobKind {
        match self {
            Self::Trim { .. } => super::JobKind::Trim,
            Self::Fork(_) => super::JobKind::Fork,
            Self::Reset => super::JobKind::Reset,
        }
    }
}

/// What came of a fork, a trim or a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CutResult {
    /// The session that was cut; of a fork, the new one.
    pub session_id: SessionId,
    /// How many messages are gone; 0 for a fork.
    pub deleted: i64,
    /// Whether Claude Code's own conversation was forked.
    pub claude_forked: bool,
    /// Whether the engine's own conversation was forked, whichever engine it is.
    pub engine_forked: bool,
    /// Where the next turn's memory comes from.
    pub context_source: ContextSource,
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum JobResult {
    /// The answer to a message, or the word that the job was cancelled.
    Chat(Box<ChatResult>),
    /// What came of a fork, a trim or a reset.
    Cut(CutResult),
}
