//! What a log knows a publication by, so that one that is repeated is appended once, and what is missing is noticed.

use std::collections::VecDeque;

use crate::domain::{LeaseToken, Place};

/// How many ids a log remembers. Whoever repeats a publication does so before so many others are published.
pub(super) const SEEN: usize = 32;

/// A publication that may be repeated by whoever does not know what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// Events of a run, numbered from 1 among all events of that run.
    Run {
        /// The run's lease.
        token: LeaseToken,
        /// The number of the first.
        first: i64,
        /// The number of the last.
        last: i64,
        /// Whether a run of a newer lease forbids them.
        fenced: bool,
    },
    /// Events that the store keeps until they are published ([`Stored`](crate::domain::Stored)).
    Stored {
        /// Their id.
        id: i64,
        /// Where they stand among the events of their run.
        place: Option<Place>,
        /// Whether to append nothing while earlier events of that run are missing ([`Published::Early`]). Otherwise what
        /// is missing counts as lost, and a new epoch begins.
        waits: bool,
    },
}

/// What became of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// It was appended.
    Now,
    /// It had been appended before.
    Before,
    /// It was not appended, because earlier events of the run are missing.
    Early,
}

impl Batch {
    /// The id to remember it by, where the order of its run's events does not tell whether it is there already.
    pub(super) fn id(&self) -> Option<String> {
        match self {
            Self::Run { fenced: true, .. } => None,
            Self::Run { token, last, fenced: false, .. } => Some(format!("{}.{last}", token.0)),
            Self::Stored { id, .. } => Some(id.to_string()),
        }
    }

    /// The run's token and the numbers of the first and the last event.
    pub(super) fn numbers(&self) -> Option<(i64, i64, i64)> {
        match self {
            Self::Run { token, first, last, .. } => Some((token.0, *first, *last)),
            Self::Stored { place, .. } => place.map(|Place { token, entry }| (token.0, entry, entry)),
        }
    }
}

/// What a log in this process remembers of what was published. The script in Redis does the same.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The newest lease that has published.
    token: i64,
    /// The number of the last event of that lease's run.
    entry: i64,
    seen: VecDeque<String>,
}

/// What is to be done with a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A newer lease has published.
    Fenced,
    /// Nothing.
    Not(Published),
    Append {
        /// Whether events before it are missing.
        gap: bool,
    },
}

impl Memory {
    /// Notes a lease that publishes without numbers, unless a newer one has.
    pub(super) fn admits(&mut self, LeaseToken(token): LeaseToken) -> bool {
        if self.token < token {
            (self.token, self.entry) = (token, 0);
        }
        self.token == token
    }

    /// What is to be done with a batch. What is to be appended counts as published.
    pub(super) fn judge(&mut self, batch: &Batch) -> Verdict {
        let (is_stored, fenced, waits) = match batch {
            Batch::Run { fenced, .. } => (false, *fenced, false),
            Batch::Stored { waits, .. } => (true, false, *waits),
        };
        let id = batch.id();
        if id.as_ref().is_some_and(|id| self.seen.contains(id)) {
            return Verdict::Not(Published::Before);
        }
        let mut gap = false;
        if let Some((token, first, last)) = batch.numbers() {
            if fenced && token < self.token {
                return Verdict::Fenced;
            }
            if !is_stored && token == self.token && last <= self.entry {
                return Verdict::Not(Published::Before);
            }
            gap = match token.cmp(&self.token) {
                std::cmp::Ordering::Equal => self.entry + 1 < first,
                std::cmp::Ordering::Greater => 1 < first,
                std::cmp::Ordering::Less => is_stored,
            };
            if gap && waits {
                return Verdict::Not(Published::Early);
            }
            if self.token < token {
                (self.token, self.entry) = (token, last);
            } else if self.token == token {
                self.entry = self.entry.max(last);
            }
        }
        if let Some(id) = id {
            if SEEN <= self.seen.len() {
                self.seen.pop_front();
            }
            self.seen.push_back(id);
        }
        Verdict::Append { gap }
    }
}
