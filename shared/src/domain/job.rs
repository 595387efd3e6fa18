//! Jobs: a session's mailbox, one entry each.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{JobId, JobResult, MessageId, SessionId, TurnId, WorkerId};
use crate::problem::Problem;

macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum $type { $($(#[$vdoc])* $variant,)* }

        impl $type {
            /// All of them, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in the API and in the store.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use names;

names! {
    /// What a job asks for.
    JobKind {
        /// A message that gets a turn of its own.
        Chat = "chat",
        /// A message for a session that was at work when it came.
        Inject = "inject",
        /// A new session with this one's messages up to a point.
        Fork = "fork",
        /// The end of a conversation cut off.
        Trim = "trim",
        /// A conversation emptied.
        Reset = "reset",
        /// A child session's answer for its parent.
        Wake = "wake",
    }
}

names! {
    /// Where a job is on its way: `pending → claimed → succeeded | failed | cancelled`.
    JobState {
        /// In the mailbox, not yet taken by a turn.
        Pending = "pending",
        /// Taken by a turn that will answer it.
        Claimed = "claimed",
        /// Answered.
        Succeeded = "succeeded",
        /// Ended by an error.
        Failed = "failed",
        /// Ended because somebody asked for it.
        Cancelled = "cancelled",
    }
}

impl JobState {
    /// Whether the job has its final answer.
    pub const fn ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

names! {
    /// What becomes of a message for a session that is at work.
    OnBusy {
        /// It reaches the agent while it works.
        Inject = "inject",
        /// It gets a turn of its own after those that wait.
        Enqueue = "enqueue",
        /// The running turn is cancelled, then it gets its own.
        Interrupt = "interrupt",
        /// It is refused.
        Reject = "reject",
    }
}

names! {
    /// The queues: short work never waits behind long turns.
    Lane {
        /// Turns; bounded by the worker's slots.
        Chat = "chat",
        /// Messages for sessions at work: a poke each.
        Inject = "inject",
        /// Fork, trim, reset.
        Maintenance = "maintenance",
    }
}

impl JobKind {
    /// The queue that carries jobs of this kind.
    pub const fn lane(self) -> Lane {
        match self {
            Self::Chat | Self::Wake => Lane::Chat,
            Self::Inject => Lane::Inject,
            Self::Fork | Self::Trim | Self::Reset => Lane::Maintenance,
        }
    }
}

/// One admitted piece of work, as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its id, which is also the correlation id of whoever asked for it.
    pub id: JobId,
    /// The session whose mailbox it lies in.
    pub session: SessionId,
    /// Its agent.
    pub agent: String,
    /// Its place in the mailbox.
    pub seq: i64,
    /// What it asks for.
    pub kind: JobKind,
    /// Where it is.
    pub state: JobState,
    /// The user's message that came with it.
    pub message: Option<MessageId>,
    /// The turn that claimed it.
    pub turn: Option<TurnId>,
    /// The worker that claimed it last.
    pub worker: Option<WorkerId>,
    /// How often it was started.
    pub attempt: i64,
    /// The answer, once it succeeded or was cancelled.
    pub result: Option<JobResult>,
    /// The error, once it failed.
    pub problem: Option<Problem>,
    /// When it was admitted.
    pub created_ms: i64,
    /// When it was claimed first.
    pub started_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
}

/// What a queue carries: ids and a kind, never content. The row decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionJob {
    /// The job that rang.
    pub job: JobId,
    /// Its session.
    pub session: SessionId,
    /// What it asks for.
    pub kind: JobKind,
}
