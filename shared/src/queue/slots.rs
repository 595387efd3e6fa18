//! The slots of a worker: how much it runs at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A number of slots. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    free: Arc<Semaphore>,
    /// The slot that a source holds while it waits for a job. Whoever goes on after a rest may take it: else a worker
    /// with nothing to fetch would keep its last slot from the one who needs it.
    idle: Mutex<Option<OwnedSemaphorePermit>>,
    placed: Notify,
}

/// A slot that is held, unless it rests.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slots {
    /// So many slots.
    pub fn new(slots: usize) -> Self {
        let free = Arc::new(Semaphore::new(slots));
        Self(Arc::new(Inner { free, idle: Mutex::default(), placed: Notify::new() }))
    }

    /// How many slots nobody holds.
    pub fn free(&self) -> usize {
        self.0.free.available_permits()
    }

    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.0.free.clone().acquire_owned().await.ok()
    }

    /// A slot for a job, held while `job` is waited for.
    pub(super) async fn with<T>(&self, job: impl Future<Output = T>) -> Option<(T, Slot)> {
        let permit = self.acquire().await?;
        *lock(&self.0.idle) = Some(permit);
        let idle = Idle(&self.0);
        self.0.placed.notify_waiters();
        let job = job.await;
        let kept = lock(&self.0.idle).take();
        drop(idle);
        let permit = match kept {
            Some(permit) => permit,
            None => self.acquire().await?,
        };
        Some((job, Slot { slots: self.clone(), permit: Mutex::new(Some(permit)) }))
    }
}

/// A source that waits no more leaves no slot behind.
struct Idle<'s>(&'s Inner);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        lock(&self.0.idle).take();
    }
}

impl Slot {
    /// Gives the slot back for a while: this only waits.
    pub fn rest(&self) {
        lock(&self.permit).take();
    }

    /// Takes a slot again to go on.
    pub async fn resume(&self) {
        if lock(&self.permit).is_some() {
            return;
        }
        let inner = &self.slots.0;
        let permit = loop {
            let placed = inner.placed.notified();
            tokio::pin!(placed);
            placed.as_mut().enable();
            if let Some(permit) = lock(&inner.idle).take() {
                break Some(permit);
            }
            tokio::select! {
                permit = self.slots.acquire() => break permit,
                () = placed => {}
            }
        };
        *lock(&self.permit) = permit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_rests_can_always_go_on() {
        let slots = Slots::new(1);
        let ((), parent) = slots.with(async {}).await.unwrap();
        parent.rest();
        // A source takes the slot and waits for a job that never comes.
        let mut source = Box::pin(slots.with(std::future::pending::<()>()));
        assert!(futures::poll!(&mut source).is_pending());

        parent.resume().await;

        assert!(lock(&parent.permit).is_some());
    }

    #[tokio::test]
    async fn a_source_that_ends_leaves_no_slot_behind() {
        let slots = Slots::new(1);
        let mut source = Box::pin(slots.with(std::future::pending::<()>()));
        assert!(futures::poll!(&mut source).is_pending());
        assert_eq!(slots.free(), 0);
        drop(source);
        assert_eq!(slots.free(), 1);
    }

    #[tokio::test]
    async fn a_job_that_came_meanwhile_waits_for_the_slot() {
        let slots = Slots::new(1);
        let ((), parent) = slots.with(async {}).await.unwrap();
        parent.rest();
        let (send, job) = tokio::sync::oneshot::channel::<()>();
        let mut source = Box::pin(slots.with(job));
        assert!(futures::poll!(&mut source).is_pending());
        parent.resume().await;
        send.send(()).unwrap();
        assert!(futures::poll!(&mut source).is_pending());

        drop(parent);

        assert!(source.await.is_some());
    }
}
