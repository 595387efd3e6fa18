//! The `claude-cli` engine with the real CLI, which talks to the oracle.
//!
//! The CLI is `ROUNDHOUSE_TEST_CLAUDE`, which `cargo xtask services` and `cargo xtask claude` set.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers of tests for production code")]

mod chains;
mod chats;
mod crashes;
mod failures;
mod fake;
mod gate;
mod host;
mod injections;
mod interrupts;
#[path = "../transcript/model.rs"]
#[expect(dead_code, reason = "shared with the tests of transcripts, which use more of it")]
mod model;
mod permissions;
mod sessions;
