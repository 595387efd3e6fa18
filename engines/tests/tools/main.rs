//! The built-in tools and the processes they start, on the real system.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers of tests for production code")]

mod bounds;
mod confinement;
mod files;
mod git;
mod lists;
mod process;
mod repositories;
mod shell;
mod shell_ends;
mod strays;
mod support;
