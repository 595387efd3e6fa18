//! The HTTP side of Roundhouse: admits work, waits for answers, streams events.
//!
//! A request is checked, admitted in one transaction and rung for; then it waits for what the store says, or streams
//! what the bus carries. Nothing here runs an engine or keeps what a restart would lose: this crate knows the store,
//! the queue and the bus, and neither engines nor workers.

mod accept;
mod admit;
mod agents;
mod announce;
mod app;
mod attachments;
mod check;
mod connection;
mod connections;
mod cut;
mod cwd;
mod extract;
mod guard;
mod openapi;
mod pages;
mod problem;
mod request;
mod request_stream;
mod routes;
mod serve;
mod session_stream;
mod settings;
mod sse;
mod views;
mod wait;

pub use app::{App, Parts};
pub use openapi::{errors_markdown, openapi_json};
pub use serve::{router, serve};
pub use settings::{Limits, Settings};
