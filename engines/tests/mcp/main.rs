//! MCP servers, real ones: `@modelcontextprotocol/server-everything` from npm, started and killed.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers of tests for production code")]

mod calls;
mod deaths;
mod http;
mod silence;
mod support;
