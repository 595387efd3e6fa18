//! What goes wrong in an engine.

use std::time::Duration;

/// What went wrong, by what the worker can do about it.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum EngineError {
    /// The engine cannot run on this host (binary missing, too old, not configured).
    #[error("the engine is unavailable: {0}")]
    Unavailable(String),
    /// The native session is not there, or the engine does not take it.
    #[error("the engine has lost the conversation: {0}")]
    ResumeDropped(String),
    /// The native session is there, and lacks something that is stored of it.
    #[error("the engine's conversation lacks what is stored of it: {0}")]
    Behind(String),
    /// A native session could not be copied.
    #[error("the conversation could not be copied: {0}")]
    ForkFailed(String),
    /// The engine's process ended in the middle of a turn.
    #[error("the engine's process ended ({status}){}", if stderr_tail.is_empty() { String::new() } else { format!(": {stderr_tail}") })]
    Died {
        /// How it ended.
        status: String,
        /// The last that it said on its standard error, bounded.
        stderr_tail: String,
    },
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
    #[error("no progress for {after:?}{}", if last.is_empty() { String::new() } else { format!("; the last that was heard: {last}") })]
    NoProgress {
        /// How long nothing was heard.
        after: Duration,
        /// What was heard last, in a few words; empty: nothing yet.
        last: String,
    },
}
