//! The engine contract and its adapters.
//!
//! An engine turns messages into turns. This crate knows no HTTP server, no SQL, no queue and no session row: the
//! worker drives it and keeps what it says. Start with [`contract`].

pub mod claude;
pub mod contract;
pub mod mcp;
pub mod openai;
pub mod permissions;
pub mod process;
pub mod tools;
