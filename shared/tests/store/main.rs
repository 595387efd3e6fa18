//! The store suite: every method of the store, on both databases.
//!
//! The store's queries are checked by nothing but running them, so no method may be missing here. Each case runs on a
//! fresh database, and what must hold of any database of ours is checked when it has ended ([`support::invariants`]).

#![expect(clippy::unwrap_used, reason = "a case that cannot go on has failed, there and then")]

#[macro_use]
mod support;
#[path = "../support/proxy.rs"]
mod proxy;

mod admit;
mod cancel;
mod children;
mod compaction;
mod cut_off;
mod cuts;
mod dead;
mod doomed;
mod drain;
mod finish;
mod forks;
mod idempotency;
mod interactions;
mod jobs;
mod lease;
mod locks;
mod maintenance;
mod messages;
mod model;
mod native;
mod native_cuts;
mod outages;
mod outbox;
mod progress;
mod provider_data;
mod race;
mod reap;
mod schema;
mod sessions;
mod sweep;
mod turn_clock;
mod unclear;
mod wakes;
mod workers;
