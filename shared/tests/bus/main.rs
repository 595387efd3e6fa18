//! The bus suite: what publishers, listeners and outages may do, within one process and over Redis.

#![expect(clippy::unwrap_used, reason = "a case that cannot go on has failed, there and then")]

#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/mod.rs"]
mod support;

#[macro_use]
mod site;

mod batches;
mod connections;
mod fence;
mod follow;
mod gaps;
mod model;
mod notices;
mod numbers;
mod outage;
mod refused;
mod seams;
mod servers;
