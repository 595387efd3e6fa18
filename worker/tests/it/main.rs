//! The worker on an engine of the tests' own, which keeps conversations as files and fails when it is told to.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod house;
mod leases;
mod maintenance;
mod support;
