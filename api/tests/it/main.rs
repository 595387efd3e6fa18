//! The HTTP contract, in process: a real store, a local bus and queue, and a worker that is told what to answer.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod chat;
mod connections;
mod cuts;
mod docs;
mod guard;
mod interactions;
mod operations;
mod outage;
mod refused;
mod request_stream;
mod serve;
mod session_stream;
mod sessions;
mod support;
mod worker_gap;
