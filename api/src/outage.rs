//! Says once that something is away, and once that it is back.

use std::sync::atomic::{AtomicBool, Ordering};

use roundhouse_shared::problem::chain;

/// Whether something that we can do without for a while is away.
#[derive(Debug)]
pub(crate) struct Outage {
    what: &'static str,
    away: AtomicBool,
}

impl Outage {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, away: AtomicBool::new(false) }
    }

    /// Notes how a call went.
    pub(crate) fn note<E: std::error::Error>(&self, result: Result<(), &E>) {
        let was_away = self.away.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Err(error) if !was_away => {
                tracing::warn!(what = self.what, error = %chain(error), "away; going on without");
            }
            Ok(()) if was_away => tracing::info!(what = self.what, "back"),
            _ => {}
        }
    }
}
