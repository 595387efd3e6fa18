//! MCP servers, real ones: `@modelcontextprotocol/server-everything` from npm, started and killed.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers of tests for production code")]

mod calls;
mod changes;
mod deaths;
mod faults;
mod gateway;
mod http;
mod old;
mod schemas;
mod served;
mod silence;
mod support;
