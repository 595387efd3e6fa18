//! The oracle over real HTTP.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod anthropic;
mod chat;
mod record;
mod responses;
mod support;
