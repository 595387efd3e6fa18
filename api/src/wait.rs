//! Waiting for answers: one registry per process, one query for all who wait.
//!
//! Whoever waits registers first, then reads the row where the job is not its own, then waits. A notice says when to
//! look; a tick looks at everything now and then, because notices can be lost. What counts is the row.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roundhouse_shared::bus::Notice;
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::JobId;
use roundhouse_shared::outage::Outage;
use roundhouse_shared::problem::{Problem, chain};
use roundhouse_shared::store::{Outcome, Store, StoreError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often everything is looked at.
const TICK: Duration = Duration::from_secs(2);
/// Jobs in one query.
const BATCH: usize = 1_000;
/// How long one query may take.
const QUERY_WAIT: Duration = Duration::from_secs(10);

/// Who waits for which job, in this process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiter(Arc<Mutex<HashMap<JobId, Entry>>>);

#[derive(Debug)]
struct Entry {
    waiting: usize,
    /// Whether the job is known to be in the store: one that is not yet there must not count as deleted.
    stored: bool,
    outcome: watch::Sender<Option<Outcome>>,
}

/// A place in the registry, left when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    job: JobId,
    waiter: Waiter,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Waiter {
    /// Waits for a job from now on. One that is to be admitted is registered before, and is only looked at once
    /// [`Waiting::stored`] was called or a notice speaks of it.
    pub(crate) fn register(&self, job: JobId) -> Waiting {
        let mut map = self.map();
        let entry = map.entry(job).or_insert_with(|| Entry {
            waiting: 0,
            stored: false,
            outcome: watch::Sender::new(None),
        });
        entry.waiting += 1;
        Waiting { job, waiter: self.clone(), outcome: entry.outcome.subscribe() }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<JobId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registered(&self) -> Vec<JobId> {
        self.map().iter().filter_map(|(job, entry)| entry.stored.then_some(*job)).collect()
    }

    fn deliver(&self, job: JobId, outcome: Outcome) {
        if let Some(entry) = self.map().get(&job) {
            // The first answer counts: later the session may be deleted.
            entry.outcome.send_if_modified(|known| {
                let new = known.is_none();
                known.get_or_insert(outcome);
                new
            });
        }
    }

    /// Looks at everything that is waited for, now.
    pub(crate) async fn look(&self, store: &Store) -> Result<(), StoreError> {
        self.look_at(store, &self.registered()).await
    }

    async fn look_at(&self, store: &Store, jobs: &[JobId]) -> Result<(), StoreError> {
        for some in jobs.chunks(BATCH) {
            match store.outcomes(some).await {
                Ok(outcomes) => outcomes.into_iter().for_each(|(job, outcome)| self.deliver(job, outcome)),
                Err(error) if error.is_outage() => return Err(error),
                Err(_) => self.look_singly(store, some).await?,
            }
        }
        Ok(())
    }

    /// A row that cannot be read must not stand in the way of the others.
    async fn look_singly(&self, store: &Store, jobs: &[JobId]) -> Result<(), StoreError> {
        for job in jobs {
            match store.outcomes(&[*job]).await {
                Ok(outcomes) => outcomes.into_iter().for_each(|(job, outcome)| self.deliver(job, outcome)),
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    tracing::error!(%job, error = %chain(&error), "an answer cannot be read");
                    self.deliver(*job, Outcome::Failed(Problem::new(Code::Internal)));
                }
            }
        }
        Ok(())
    }

    /// The task behind the registry, until `stop`.
    pub(crate) async fn run(self, store: Store, mut notices: Receiver<Notice>, stop: CancellationToken) {
        let outage = Outage::new("store");
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let jobs = tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => self.registered(),
                notice = notices.recv() => match notice {
                    Ok(notice) => self.ended(notice, &mut notices),
                    Err(RecvError::Lagged(_)) => self.registered(),
                    // The bus is gone: the tick goes on.
                    Err(RecvError::Closed) => {
                        tick.tick().await;
                        self.registered()
                    }
                },
            };
            if jobs.is_empty() {
                continue;
            }
            // What this misses, the next tick finds.
            if let Ok(looked) = tokio::time::timeout(QUERY_WAIT, self.look_at(&store, &jobs)).await {
                outage.note(looked.as_ref().copied());
            }
        }
    }

    /// The jobs that ended by this notice and those that are there already, as far as somebody waits for them.
    fn ended(&self, first: Notice, notices: &mut Receiver<Notice>) -> Vec<JobId> {
        let mut ended = HashSet::new();
        let mut next = Some(first);
        while let Some(notice) = next {
            if let Notice::Ended(_, job) = notice {
                ended.insert(job);
            }
            next = match notices.try_recv() {
                Ok(notice) if ended.len() < BATCH => Some(notice),
                Ok(_) | Err(TryRecvError::Lagged(_)) => return self.registered(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            };
        }
        let map = self.map();
        ended.retain(|job| map.contains_key(job));
        ended.into_iter().collect()
    }
}

impl Waiting {
    /// The job is in the store: from now on it is looked at.
    pub(crate) fn stored(&self) {
        if let Some(entry) = self.waiter.map().get_mut(&self.job) {
            entry.stored = true;
        }
    }

    /// The job's outcome, once it has one. Safe to drop and call again.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        match self.outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            // The sender lives as long as this place does.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Reads the row now. Where the database is away, waiting goes on.
    pub(crate) async fn look(&self, store: &Store) -> Option<Outcome> {
        let looked = tokio::time::timeout(QUERY_WAIT, self.waiter.look_at(store, &[self.job])).await;
        if let Ok(Err(error)) = looked {
            tracing::debug!(error = %chain(&error), "the answer could not be looked at");
        }
        self.outcome.borrow().clone()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut map = self.waiter.map();
        if let Some(entry) = map.get_mut(&self.job) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                map.remove(&self.job);
            }
        }
    }
}
