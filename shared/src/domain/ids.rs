//! Identifiers as types, so that one cannot be taken for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The text is not an identifier of the wanted kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {0}")]
pub struct ParseIdError(&'static str);

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new one; later ones sort after earlier ones (UUID version 7).
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Uuid::parse_str(text).map(Self).map_err(|_| ParseIdError($what))
            }
        }
    )*};
}

uuid_ids! {
    /// One conversation of one agent.
    SessionId, "session id";
    /// One admitted piece of work. It is the correlation id of whoever asked for it.
    JobId, "job id";
    /// One turn: from a message reaching the engine until the engine has answered it.
    TurnId, "turn id";
    /// One question of an agent to a person.
    InteractionId, "interaction id";
    /// One run of a worker process; a restart makes a new one.
    WorkerId, "worker id";
}

/// One message. Ascending within a session, in the order of arrival.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct MessageId(pub i64);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MessageId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        text.parse().map(Self).map_err(|_| ParseIdError("message id"))
    }
}

/// The fencing token of a lease: it grows with every lease that is granted for a session, and never shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub i64);

/// The number of an event: `n` counts from 1 without holes within an epoch. A new epoch says that the numbers
/// before it can no longer be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId {
    /// The numbering this event belongs to.
    pub epoch: u64,
    /// The position in it, from 1.
    pub n: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.epoch, self.n)
    }
}

impl FromStr for EventId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let error = ParseIdError("event id");
        let (epoch, n) = text.split_once('-').ok_or(error)?;
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| error)?;
        Ok(Self { epoch, n: n.parse().map_err(|_| error)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_reads_back_as_written() {
        let id = EventId { epoch: 0xfeed_beef, n: 42 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "1", "x-1", "1-", "1-x", "1-2-3"] {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }
}
