//! Leases: the right of one worker to run one session.

use super::{LeaseToken, SessionId, WorkerId};

/// A granted lease. Every write of a run names it, and does nothing where the token is no longer the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The worker that holds it.
    pub worker: WorkerId,
    /// The fencing token.
    pub token: LeaseToken,
}
