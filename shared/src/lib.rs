//! What every process of Roundhouse shares: the domain, the store, the queue and the bus.
//!
//! `store`, `queue` and `bus` know the domain and not one another; `leftovers` brings from the store to the bus what its
//! process could not. Nothing here knows HTTP or an engine.

pub mod bus;
pub mod clock;
pub mod code;
pub mod domain;
pub mod leftovers;
pub mod lifecycle;
pub mod outage;
pub mod problem;
pub mod queue;
pub mod redis;
pub mod secret;
pub mod store;
pub mod telemetry;
pub mod units;
pub mod workspaces;
