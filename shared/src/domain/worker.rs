//! Workers, as operators see them.

use super::{AgentStatus, LeaseToken, SessionId, TurnId, WorkerId};

/// One run of a worker process.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// Its id.
    pub id: WorkerId,
    /// The host it runs on.
    pub host: String,
    /// Its process id there.
    pub pid: i64,
    /// The version of its binary.
    pub version: String,
    /// How many turns it runs at once.
    pub slots: i64,
    /// What it can run.
    pub agents: Vec<AgentStatus>,
    /// Whether it is being stopped and takes no more work.
    pub stopping: bool,
    /// When it started.
    pub started_ms: i64,
    /// When it was last heard of.
    pub seen_ms: i64,
    /// Until when it counts as alive.
    pub expires_ms: i64,
    /// The sessions it runs.
    pub leases: Vec<HeldLease>,
}

/// A session that a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLease {
    /// The session.
    pub session: SessionId,
    /// The lease's token.
    pub token: LeaseToken,
    /// The turn that runs, if any.
    pub turn: Option<TurnId>,
    /// The turn that somebody asked to cancel.
    pub cancel_turn: Option<TurnId>,
    /// When the lease ends unless it is renewed.
    pub expires_ms: i64,
}
