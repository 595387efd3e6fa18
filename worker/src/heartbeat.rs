//! The heartbeat: renews the worker's row, and with it all leases, from a thread of its own that no engine can starve and no
//! session can block. Beside that it reads what the store says of the leases, without locking them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roundhouse_shared::domain::{Lease, Worker as WorkerRow, WorkerId};
use roundhouse_shared::problem::chain;
use roundhouse_shared::store::{Beat, Store, StoreError};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::incarnation::Incarnation;
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
            self.worker.identity.now().end();
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
                    let heart = Heart { worker: &worker, place: &heart, row: &row };
                    tokio::select! {
                        ((), ()) = async { tokio::join!(beats(&heart), looks(&heart)) } => {}
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

/// What the thread works with.
struct Heart<'a> {
    worker: &'a Arc<Worker>,
    place: &'a HeartStore,
    /// What this worker registers as, under a new id each time.
    row: &'a WorkerRow,
}

/// Renews the worker for ever. Nothing else is done here: no session, no engine and no bus can delay a renewal.
async fn beats(heart: &Heart<'_>) {
    let worker = heart.worker;
    let lease = worker.settings.lease.0;
    // More often than needed to renew: a lease that has run out is noticed soon.
    let mut tick = interval(lease / 3);
    let mut told = false;
    let mut store = None;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = worker.identity.doubted() => {}
        }
        // Before the store is asked, which may be away.
        worker.identity.now().is_good();
        match timeout(lease / 3, heart.renew(&mut store)).await {
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
                // Its connection may never answer again, though another would.
                store = None;
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("the store does not answer the heartbeat");
                }
            }
        }
    }
}

/// Looks for ever for what the store says of this worker's leases.
async fn looks(heart: &Heart<'_>) {
    let lease = heart.worker.settings.lease.0;
    let mut tick = interval(lease / 3);
    let mut store = None;
    loop {
        tick.tick().await;
        match timeout(lease / 3, heart.look(&mut store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = chain(&error), "could not look at the leases"),
            Err(_) => {
                store = None;
                tracing::debug!("the store does not say which leases there are");
            }
        }
    }
}

fn interval(period: Duration) -> tokio::time::Interval {
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tick
}

impl Heart<'_> {
    /// A store with a connection of its own, opened where there is none. Renewals and looks have one each: a look that waits
    /// for a lock must not keep a renewal waiting for a connection.
    async fn store(&self, opened: &mut Option<Store>) -> Result<Store, StoreError> {
        if let Some(store) = opened {
            return Ok(store.clone());
        }
        let settings =
            roundhouse_shared::store::Settings { max_connections: 1, ..self.place.settings.clone() };
        let store = Store::connect(&settings, &self.place.data_dir).await?;
        Ok(opened.insert(store).clone())
    }

    /// Renews the worker, or registers it as another one where it was declared dead or may have been.
    async fn renew(&self, store: &mut Option<Store>) -> Result<(), StoreError> {
        let store = self.store(store).await?;
        let lease = self.worker.settings.lease;
        let me = self.worker.identity.now();
        if me.is_good() {
            let asked = Instant::now();
            match store.renew(Beat { worker: me.id, lease_ms: lease.millis() }).await {
                Ok(()) => me.renewed(asked + good_for(lease.0)),
                Err(StoreError::LeaseLost) => {
                    tracing::warn!(worker.id = %me.id, "this worker was declared dead: its runs end here");
                    me.end();
                }
                Err(error) => return Err(error),
            }
        } else {
            tracing::warn!(worker.id = %me.id, "this worker was not renewed in time: its runs end here");
        }
        // Its time may have run out while it was renewed.
        if me.is_good() { Ok(()) } else { self.start_anew(&store, me.id).await }
    }

    async fn start_anew(&self, store: &Store, old: WorkerId) -> Result<(), StoreError> {
        // Its runs have ended: whoever goes on with them need not wait for a reaper to notice.
        store.declare_dead(old, None).await?;
        let stopping = self.worker.lifecycle.soft().is_cancelled();
        let row = WorkerRow { id: WorkerId::generate(), stopping, ..self.row.clone() };
        let (asked, lease) = (Instant::now(), self.worker.settings.lease);
        store.register_worker(&row, lease.millis()).await?;
        self.worker.identity.replace(Incarnation::new(row.id, asked + good_for(lease.0)));
        tracing::info!(worker.id = %row.id, was = %old, "this worker goes on under another id");
        Ok(())
    }

    /// Tells the runs of cancels, and of leases that are lost; gives on the sessions of runs that broke off.
    async fn look(&self, store: &mut Option<Store>) -> Result<(), StoreError> {
        let (worker, store) = (self.worker, self.store(store).await?);
        let me = worker.identity.now();
        let before = worker.registry.of(me.id);
        let found = store.held(me.id).await?;
        for held in worker.registry.found(&before, &found) {
            let session = held.session;
            let lease = Lease { session, worker: me.id, token: held.token };
            match store.abandon(&lease, i64::from(worker.settings.max_attempts)).await {
                Ok(Some(reaped)) => {
                    tracing::warn!(session.id = %session, "a run broke off; its session is given on");
                    events::reaped(worker, reaped).await;
                }
                // Locked: the next look finds it again.
                Ok(None) | Err(StoreError::LeaseLost) => {}
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(session.id = %session, error, "a session could not be given on");
                }
            }
        }
        Ok(())
    }
}

/// A little less than the lease, for clocks that do not run alike.
pub(crate) fn good_for(lease: Duration) -> Duration {
    lease.mul_f64(0.95)
}
