//! What users see, tried on the real binary: processes, a real database, a real Redis, and a model that answers only
//! from the context it is sent. One binary, modules by promise.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod support;

mod ask;
mod attachments;
mod busy;
mod cancel;
mod chat;
mod children;
mod crash;
mod cut;
mod cut_race;
mod fork;
mod freeze;
mod idempotency;
mod input;
mod limits;
mod operations;
mod outages;
mod patience;
mod permissions;
mod provider;
mod race;
mod resume;
mod sessions;
mod sse;
mod stop;
mod takeover;
mod tools;
mod usage;
