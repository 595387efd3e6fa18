//! The stable error codes: one table, from which statuses, titles, `docs/errors.md` and the problem pages come.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($variant:ident = $name:literal, $status:literal, $title:literal, $meaning:literal;)*) => {
        /// A stable error code, as clients match on it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        // For all at once: a name that comes through this macro does not reach the schema. A test of the api compares.
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum Code { $(#[doc = $meaning] $variant,)* }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that clients see.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The usual HTTP status. Bad input is 422, and 400 where it could not even be read.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// What happened, in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What it means to the client, and what to do.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

codes! {
    InvalidRequest = "INVALID_REQUEST", 422, "The request is not valid",
        "A field, parameter or the body is wrong; `fields` names each. Status 400 where the request could not be read at all. Nothing was stored.";
    EmptyMessage = "EMPTY_MESSAGE", 422, "The message is empty",
        "A message needs at least one character that is not white space. Nothing was stored.";
    CwdNotAllowed = "CWD_NOT_ALLOWED", 422, "The working directory is not allowed",
        "`cwd` must be an absolute path under a configured workspace root, and not in the data directory. A turn fails with it where a link has come into the path since.";
    Unauthorized = "UNAUTHORIZED", 401, "Not authenticated",
        "The request needs a valid API key.";
    Forbidden = "FORBIDDEN", 403, "Not allowed",
        "The request comes from a host or origin that is not allowed, or the key's scope does not cover it.";
    NotFound = "NOT_FOUND", 404, "No such route",
        "There is nothing at this path.";
    SessionNotFound = "SESSION_NOT_FOUND", 404, "No such session",
        "The session does not exist, or was deleted.";
    MessageNotFound = "MESSAGE_NOT_FOUND", 404, "No such message",
        "The message does not exist in this session.";
    AgentNotFound = "AGENT_NOT_FOUND", 404, "No such agent",
        "No agent of this name is configured.";
    JobNotFound = "JOB_NOT_FOUND", 404, "No such job",
        "The job does not exist, or its session was deleted.";
    InteractionNotFound = "INTERACTION_NOT_FOUND", 404, "No such interaction",
        "The question does not exist in this session.";
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, "Method not allowed",
        "The path exists, but not for this method.";
    SessionBusy = "SESSION_BUSY", 409, "The session is busy",
        "It runs or has unanswered mail. Nothing was changed; try again when it is idle.";
    NoForkAnchor = "NO_FORK_ANCHOR", 409, "No point to fork at",
        "The last message of the model up to this one has no anchor of the engine's, and one was required. Nothing was created.";
    IdempotencyConflict = "IDEMPOTENCY_CONFLICT", 409, "The idempotency key was used for another request",
        "The same `Idempotency-Key` came with another body or path before. Nothing was stored.";
    InteractionResolved = "INTERACTION_RESOLVED", 409, "The interaction is already answered",
        "The first answer counts.";
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413, "The body is too large",
        "The body is over the configured limit. Nothing was stored.";
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", 415, "The body is not JSON",
        "Send `Content-Type: application/json`.";
    RateLimited = "RATE_LIMITED", 429, "Too many requests",
        "Wait as long as `Retry-After` says.";
    ClaudeForkFailed = "CLAUDE_FORK_FAILED", 500, "Claude Code could not fork the conversation",
        "Nothing was changed.";
    EngineForkFailed = "ENGINE_FORK_FAILED", 500, "The engine could not fork the conversation",
        "Nothing was changed.";
    Internal = "INTERNAL", 500, "Internal error",
        "An error of ours. The log has it under the request id.";
    EngineFailed = "ENGINE_FAILED", 502, "The engine failed",
        "The engine or its provider ended the turn with an error. The session can be used.";
    WorkerLost = "WORKER_LOST", 502, "The worker was lost",
        "Workers died while they ran this, as often as is allowed. The session can be used.";
    EngineUnavailable = "ENGINE_UNAVAILABLE", 503, "No worker can run this agent",
        "No worker has had the agent for `limits.worker_gap`, or a live worker says why it cannot run it. Nothing was stored.";
    StoreUnavailable = "STORE_UNAVAILABLE", 503, "The database is not available",
        "It is not known whether the request was stored: repeat it with the same `Idempotency-Key`.";
    InjectionTimeout = "INJECTION_TIMEOUT", 504, "No answer in time",
        "The message stays and will be answered; read the answer at the job.";
}

impl Code {
    /// After how many seconds a client may try again, where that can help without a change of its own.
    pub const fn retry_after(self) -> Option<u16> {
        match self {
            Self::RateLimited => Some(1),
            // A failover, or a moment without a connection.
            Self::StoreUnavailable => Some(2),
            // A worker has to be started.
            Self::EngineUnavailable => Some(10),
            _ => None,
        }
    }

    /// The code of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error that knows its stable code.
pub trait HasCode {
    /// The code that a client is told.
    fn code(&self) -> Code;
}
