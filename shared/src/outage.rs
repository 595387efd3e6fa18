//! Logs once that something is away, and once that it is back.

use std::error::Error;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::problem::chain;

/// Whether something that a process can do without for a while is away: as long as any of its parts fails.
#[derive(Debug)]
pub struct Outage {
    what: &'static str,
    /// A bit for each part that has failed last.
    failing: AtomicU8,
}

/// One way of using what may be away, as a bit: reads may work where writes do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(pub u8);

impl Outage {
    /// Something of this name, which is there so far.
    pub const fn new(what: &'static str) -> Self {
        Self { what, failing: AtomicU8::new(0) }
    }

    /// Notes how a use went, where there is only one part.
    pub fn note<E: Error>(&self, result: Result<(), &E>) {
        self.note_part(Part(1), result);
    }

    /// Notes how a use of one part went.
    pub fn note_part<E: Error>(&self, Part(part): Part, result: Result<(), &E>) {
        if let Err(error) = result {
            if self.failing.fetch_or(part, Ordering::Relaxed) == 0 {
                tracing::warn!(what = self.what, error = %chain(error), "away; going on without");
            }
            return;
        }
        let before = self.failing.fetch_and(!part, Ordering::Relaxed);
        if before & part != 0 && before & !part == 0 {
            tracing::info!(what = self.what, "back");
        }
    }

    /// Whether any part has failed last.
    pub fn is_away(&self) -> bool {
        self.failing.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_back_once_every_part_works() {
        let outage = Outage::new("queue");
        let (read, write) = (Part(1), Part(2));
        let error = std::io::Error::other("refused");
        let fine = Ok::<(), &std::io::Error>(());
        outage.note_part(read, Err(&error));
        outage.note_part(write, Err(&error));
        outage.note_part(read, fine);
        assert!(outage.is_away());
        outage.note_part(write, fine);
        assert!(!outage.is_away());
    }
}
