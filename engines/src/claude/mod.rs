//! The real Claude Code CLI as an engine.

pub mod transcript;
