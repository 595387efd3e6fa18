//! The engines, as the worker sees them.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers of tests for production code")]

mod openai_oracle;
mod openai_retries;
mod openai_sessions;
mod openai_settings;
mod openai_streams;
mod script;
mod turns;
