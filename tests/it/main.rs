//! What users see, tried on the real binary: processes, a real database, a real Redis, and a model that answers only
//! from the context it is sent. One binary, modules by promise.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

mod support;

mod chat;
mod crash;
mod freeze;
mod outages;
mod stop;
