//! Queues within one process.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::QueueError;
use crate::domain::{Lane, SessionId};

/// Sessions that wait in one queue. What does not fit is found by the sweeper.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Local {
    chat: Channel,
    inject: Channel,
    maintenance: Channel,
}

#[derive(Debug, Default)]
struct Channel {
    waiting: Mutex<Waiting>,
    bell: Notify,
}

/// The sessions that wait, each once.
#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<SessionId>,
    members: HashSet<SessionId>,
}

impl Channel {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<SessionId> {
        let mut waiting = self.waiting();
        let session = waiting.order.pop_front()?;
        waiting.members.remove(&session);
        Some(session)
    }
}

impl Local {
    const fn of(&self, lane: Lane) -> &Channel {
        match lane {
            Lane::Chat => &self.chat,
            Lane::Inject => &self.inject,
            Lane::Maintenance => &self.maintenance,
        }
    }

    /// Adds a session, unless it waits already.
    pub(super) fn push(&self, lane: Lane, session: SessionId) -> Result<(), QueueError> {
        let channel = self.of(lane);
        {
            let mut waiting = channel.waiting();
            if waiting.members.contains(&session) {
                return Ok(());
            }
            if MOST <= waiting.order.len() {
                return Err(QueueError::Full);
            }
            waiting.members.insert(session);
            waiting.order.push_back(session);
        }
        channel.bell.notify_one();
        Ok(())
    }

    /// The next session. Safe to drop: nothing is taken then.
    pub(super) async fn pop(&self, lane: Lane) -> SessionId {
        let channel = self.of(lane);
        loop {
            // Made before the look: a push after the look is not missed.
            let pushed = channel.bell.notified();
            if let Some(session) = channel.take() {
                return session;
            }
            pushed.await;
        }
    }

    pub(super) fn depth(&self, lane: Lane) -> u64 {
        self.of(lane).waiting().order.len() as u64
    }
}
