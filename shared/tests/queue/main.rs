//! The queue suite: what workers get of what was rung, within one process and over Redis.

#![expect(clippy::unwrap_used, reason = "a case that cannot go on has failed, there and then")]

#[path = "../support/mod.rs"]
mod support;

#[macro_use]
mod site;

mod lanes;
mod offers;
mod outage;
mod slots;
mod stop;
