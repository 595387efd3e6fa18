//! What users see, tried on the real binary: processes, a real database, a real Redis, and a model that answers only
//! from the context it is sent. One binary, modules by promise.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

#[path = "../../shared/tests/support/proxy.rs"]
mod proxy;
#[path = "../../engines/tests/it/script.rs"]
#[expect(dead_code, reason = "shared with the engine's tests, which use more of it")]
mod script;
#[path = "../../engines/tests/mcp/served.rs"]
mod served;
mod support;

mod ask;
mod attachments;
mod busy;
mod cancel;
mod chat;
mod children;
mod claude_asks;
mod claude_ends;
mod claude_failures;
mod claude_found;
mod claude_memory;
mod claude_rows;
mod claude_text;
mod claude_warm;
mod crash;
mod cut;
mod cut_race;
mod families;
mod fork;
mod freeze;
mod idempotency;
mod input;
mod leases;
mod limits;
mod mailbox;
mod mcp;
mod meanwhile;
mod meanwhile_ends;
mod native_behind;
mod native_cut;
mod native_cut_odd;
mod native_cut_processes;
mod native_cut_turn;
mod native_cut_walk;
mod operations;
mod outages;
mod patience;
mod permissions;
mod pgbouncer;
mod private;
mod provider;
mod provider_edges;
mod quirks;
mod race;
mod redis_refuses;
mod resume;
mod sessions;
mod spawn;
mod sse;
mod stop;
mod takeover;
mod terminal;
mod tools;
mod turn_clock;
mod unpublished;
mod usage;
mod worker_gap;
mod workspace;
