//! The engines, as the worker sees them.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers of tests for production code")]

mod gate_commands;
mod gate_paths;
mod openai_attachments;
mod openai_calls;
mod openai_compaction;
mod openai_context;
mod openai_host_tools;
mod openai_limits;
mod openai_loop;
mod openai_oracle;
mod openai_overflow;
mod openai_permissions;
mod openai_refusals;
mod openai_replay;
mod openai_retries;
mod openai_sessions;
mod openai_settings;
mod openai_sources;
mod openai_streams;
mod openai_verdicts;
mod script;
mod tools;
mod turns;
