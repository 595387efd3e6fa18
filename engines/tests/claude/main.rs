//! The `claude-cli` engine with the real CLI, which talks to the oracle.
//!
//! The CLI is `ROUNDHOUSE_TEST_CLAUDE`, which `cargo xtask services` and `cargo xtask claude` set.

mod chats;
mod host;
mod injections;
mod interrupts;
