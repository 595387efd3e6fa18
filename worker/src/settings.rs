//! What a worker is configured with.

use roundhouse_shared::units::Span;
use serde::{Deserialize, Serialize};

/// The `[worker]` section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Turns that run at once.
    pub slots: usize,
    /// How long a session stays with a worker that gives no sign of life. Renewed at a third of it.
    pub lease: Span,
    /// How often forgotten mail is looked for.
    pub sweep: Span,
    /// How often a turn is started before its jobs fail with `WORKER_LOST`.
    pub max_attempts: u32,
    /// How long running turns may go on after a stop was asked for.
    pub shutdown_grace: Span,
    /// How long an engine's process is kept after a turn.
    pub engine_idle: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 8,
            lease: Span::from_secs(30),
            sweep: Span::from_secs(2),
            max_attempts: 3,
            shutdown_grace: Span::from_secs(30),
            engine_idle: Span::from_secs(60),
        }
    }
}

/// The limits that a turn runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a turn may work, over all its attempts; waiting does not count.
    pub turn_timeout: Span,
    /// How long an engine has to stop by itself.
    pub cancel_grace: Span,
    /// How long a question to a person stays open.
    pub interaction_timeout: Span,
}
