//! A deterministic model that answers **only from the context it is sent**, for demonstrations and tests: what it
//! says proves what an engine remembers. It speaks Chat Completions, Anthropic Messages and OpenAI Responses, streaming
//! and not, and keeps nothing between two requests but the log of what it was sent and the `fail N once` already used.
//!
//! # The language
//!
//! Read from the texts of the user messages, line by line, anywhere in a line, in any case; the module `words` has the
//! grammar, `context` says which lines are answered, `clean` which parts of a user message are a CLI's and not the user's.
//!
//! | words | reply |
//! |---|---|
//! | `X = 5`, `add 1 to x` | sets, adds, and says the new value: `X = 6` |
//! | `what is X` | `X = 6`, or `I don't know X` |
//! | `say W` | W, the rest of the line |
//! | `count to N` | `1 2 3`, one chunk a word |
//! | `sleep S then say W` | calls the shell tool with `sleep S && echo W`, then says what it returned |
//! | `ask: Q` · `plan: P` | calls the question / plan tool, then says what it returned |
//! | `spawn A: M` · `spawn-async A: M` | calls the tool that has agent A do M, waiting or not, then says what it returned |
//! | `slow S` | spreads the reply over S seconds |
//! | `fail N` · `fail N once` | answers HTTP N, always or the first time only |
//!
//! A line in which nothing is understood is answered `I heard: <the line>`.
//!
//! # Usage
//!
//! A token is a word: see [`Usage`] and [`usage_of`].
//!
//! This crate knows nothing of the other crates of Roundhouse.

mod answer;
mod anthropic;
mod chat;
mod clean;
mod context;
mod json;
mod log;
mod reply;
mod requests;
mod responses;
mod server;
mod stream;
mod tools;
mod usage;
mod wire;
mod words;

pub use log::{Protocol, RecordedRequest, WaitTimeout, most_at_once};
pub use server::{Oracle, Settings, serve};
pub use usage::{Usage, usage_of, words};
