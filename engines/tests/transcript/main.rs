//! Transcripts, against those that the real Claude Code CLI writes and the copies that the vendor's own SDK makes.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers of tests for production code")]

mod check;
mod cli;
mod files;
mod find;
mod forks;
mod model;
mod odd;
mod place;
mod recorded;
mod sdk;
mod seeds;
mod trees;
