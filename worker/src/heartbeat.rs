//! The heartbeat: one statement renews all leases, from a thread of its own that no engine can starve.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roundhouse_shared::domain::{Lease, Worker as WorkerRow};
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::{Beat, Store, StoreError};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{HeartStore, Worker, events};

/// The heartbeat's thread.
pub(crate) struct Heartbeat {
    stop: CancellationToken,
    ended: oneshot::Receiver<()>,
}

/// Says how the thread ended, also when it panics.
struct Guard {
    worker: Arc<Worker>,
    stop: CancellationToken,
    _ended: oneshot::Sender<()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.stop.is_cancelled() {
            tracing::error!("the heartbeat ended; without it no lease can be held");
            for run in self.worker.registry.all() {
                run.lost.cancel();
            }
            self.worker.lifecycle.fail();
        }
    }
}

impl Heartbeat {
    /// Starts the thread. It runs until [`Heartbeat::stop`].
    pub(crate) fn start(worker: &Arc<Worker>, heart: HeartStore, row: WorkerRow) -> Self {
        let stop = CancellationToken::new();
        let (send, ended) = oneshot::channel();
        let guard = Guard { worker: worker.clone(), stop: stop.clone(), _ended: send };
        let (worker, until) = (worker.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            let _guard = guard;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(async {
                    tokio::select! {
                        () = beat(&worker, &heart, row) => {}
                        () = until.cancelled() => {}
                    }
                }),
                Err(error) => tracing::error!(%error, "no runtime for the heartbeat"),
            }
        });
        if let Err(error) = thread {
            tracing::error!(%error, "no thread for the heartbeat");
        }
        Self { stop, ended }
    }

    /// Ends the thread and waits for it.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.ended.await;
    }
}

async fn beat(worker: &Arc<Worker>, heart: &HeartStore, row: WorkerRow) {
    let lease = worker.settings.lease;
    // More often than needed to renew: a lease that has run out is noticed soon.
    let mut tick = tokio::time::interval(lease.0 / 3);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut store = None;
    let mut told = false;
    loop {
        tick.tick().await;
        worker.registry.end_overdue();
        match tokio::time::timeout(lease.0 / 3, renew(worker, heart, &mut store, &row)).await {
            Ok(Ok(())) => {
                if std::mem::take(&mut told) {
                    tracing::info!("the heartbeat reaches the store again");
                }
            }
            Ok(Err(error)) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(error = chain(&error), "the heartbeat does not reach the store");
                }
            }
            Err(_) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("the store does not answer the heartbeat");
                }
            }
        }
    }
}

async fn renew(
    worker: &Arc<Worker>,
    heart: &HeartStore,
    store: &mut Option<Store>,
    row: &WorkerRow,
) -> Result<(), StoreError> {
    if store.is_none() {
        let settings = roundhouse_shared::store::Settings { max_connections: 1, ..heart.settings.clone() };
        *store = Some(Store::connect(&settings, &heart.data_dir).await?);
    }
    let Some(store) = store else { return Ok(()) };
    let lease = worker.settings.lease;
    let before = worker.registry.all();
    let asked = Instant::now();
    let found = match store.renew_all(Beat { worker: worker.id, lease_ms: lease.millis() }).await {
        Err(StoreError::LeaseLost) => {
            tracing::warn!("this worker is no longer known; registering it again");
            return store.register_worker(row, lease.millis()).await;
        }
        other => other?,
    };
    for held in worker.registry.renewed(&before, &found, asked, good_for(lease.0)) {
        let lease = Lease { session: held.session, worker: worker.id, token: held.token };
        tracing::warn!(session.id = %held.session, "a run broke off; its session is given on");
        let max_attempts = i64::from(worker.settings.max_attempts);
        match store.abandon(&lease, max_attempts).await {
            Ok(reaped) => events::reaped(worker, reaped).await,
            Err(StoreError::LeaseLost) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A little less than the lease, for clocks that do not run alike.
pub(crate) fn good_for(lease: Duration) -> Duration {
    lease.mul_f64(0.95)
}
