//! What this worker has published of the store's outbox and the store still keeps: it is forgotten there a little later, much
//! of it at once. A crash in between does no harm, for the bus knows what it has.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roundhouse_shared::problem::chain;
use tokio::sync::Notify;

use crate::Worker;

/// How long ids are collected.
const COLLECT: Duration = Duration::from_millis(100);
/// How long to wait before a store that is away is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// Most ids that are kept while the store is away. Beyond, the oldest are published once more, and known by the bus.
const MOST: usize = 50_000;

#[derive(Debug, Default)]
pub(crate) struct Published {
    ids: Mutex<BTreeSet<i64>>,
    bell: Notify,
}

impl Published {
    fn ids(&self) -> MutexGuard<'_, BTreeSet<i64>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, id: i64) {
        {
            let mut ids = self.ids();
            if MOST <= ids.len() {
                ids.pop_first();
            }
            ids.insert(id);
        }
        self.bell.notify_one();
    }

    /// Whether this was published here, and may still be found in the store.
    pub(crate) fn has(&self, id: i64) -> bool {
        self.ids().contains(&id)
    }
}

/// Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    loop {
        worker.published.bell.notified().await;
        tokio::time::sleep(COLLECT).await;
        while !forget(&worker).await {
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Has the store forget what was published. Whether it did.
pub(crate) async fn forget(worker: &Worker) -> bool {
    let ids: Vec<_> = worker.published.ids().iter().copied().collect();
    if ids.is_empty() {
        return true;
    }
    match worker.store.published(&ids).await {
        Ok(()) => {
            let mut kept = worker.published.ids();
            for id in ids {
                kept.remove(&id);
            }
            true
        }
        Err(error) => {
            tracing::debug!(error = chain(&error), "what was published is still kept");
            false
        }
    }
}
