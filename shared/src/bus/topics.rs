//! The sessions that this process has events of, and who waits for more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::ring::Ring;
use crate::domain::SessionId;

/// One session's events in this process.
#[derive(Debug)]
pub(super) struct Topic {
    state: Mutex<State>,
    /// Changes whenever there is something new to look at.
    pub(super) bell: watch::Sender<u64>,
    /// Whether everything published from now on arrives here.
    pub(super) live: watch::Sender<bool>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) ring: Ring,
    /// The newest lease that has published.
    pub(super) token: i64,
    followers: usize,
    used: Instant,
}

impl Topic {
    fn new(ring: Ring, live: bool) -> Self {
        let state = State { ring, token: 0, followers: 0, used: Instant::now() };
        Self { state: Mutex::new(state), bell: watch::Sender::new(0), live: watch::Sender::new(live) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ring_bell(&self) {
        self.bell.send_modify(|n| *n += 1);
    }
}

/// All topics, by session.
#[derive(Debug)]
pub(super) struct Topics {
    map: Mutex<HashMap<SessionId, Arc<Topic>>>,
    /// Sessions whose first follower came or whose last one left, for the task that holds the subscription.
    changed: Mutex<Vec<SessionId>>,
    pub(super) change: Notify,
    keep: Keep,
    ring_events: usize,
    ring_bytes: usize,
}

/// What becomes of a topic that nobody follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// It is the log itself: it stays for so long, and at most so many of them.
    Log(Duration, usize),
    /// It is a copy: it goes.
    Copy,
}

impl Topics {
    pub(super) fn new(keep: Keep, ring_events: usize, ring_bytes: usize) -> Self {
        Self {
            map: Mutex::default(),
            changed: Mutex::default(),
            change: Notify::new(),
            keep,
            ring_events,
            ring_bytes,
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Topic>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topic of a session, if this process has it.
    pub(super) fn find(&self, session: SessionId) -> Option<Arc<Topic>> {
        self.map().get(&session).cloned()
    }

    /// The topic of a session, made where there is none.
    pub(super) fn of(&self, session: SessionId) -> Arc<Topic> {
        let mut map = self.map();
        if let Some(topic) = map.get(&session) {
            topic.state().used = Instant::now();
            return topic.clone();
        }
        if let Keep::Log(kept, most) = self.keep
            && most <= map.len()
        {
            forget_oldest(&mut map, kept, most);
        }
        let live = matches!(self.keep, Keep::Log(..));
        let topic = Arc::new(Topic::new(Ring::new(self.ring_events, self.ring_bytes), live));
        map.insert(session, topic.clone());
        topic
    }

    /// Takes part in a topic until [`Topics::leave`].
    pub(super) fn join(&self, session: SessionId) -> Arc<Topic> {
        let topic = self.of(session);
        topic.state().followers += 1;
        self.tell_changed(session);
        topic
    }

    pub(super) fn leave(&self, session: SessionId, topic: &Topic) {
        let mut map = self.map();
        let last = {
            let mut state = topic.state();
            state.followers -= 1;
            state.used = Instant::now();
            state.followers == 0
        };
        if last && self.keep == Keep::Copy {
            map.remove(&session);
            drop(map);
            self.tell_changed(session);
        }
    }

    fn tell_changed(&self, session: SessionId) {
        if self.keep == Keep::Copy {
            self.changed.lock().unwrap_or_else(PoisonError::into_inner).push(session);
            self.change.notify_one();
        }
    }

    /// The sessions whose topic came or went since the last call.
    pub(super) fn take_changed(&self) -> Vec<SessionId> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All topics of this process.
    pub(super) fn all(&self) -> Vec<(SessionId, Arc<Topic>)> {
        self.map().iter().map(|(session, topic)| (*session, topic.clone())).collect()
    }
}

/// Makes room: logs that nobody follows and that are old go first, then the older half of those nobody follows.
fn forget_oldest(map: &mut HashMap<SessionId, Arc<Topic>>, kept: Duration, most: usize) {
    map.retain(|_, topic| {
        let state = topic.state();
        0 < state.followers || state.used.elapsed() < kept
    });
    if map.len() < most {
        return;
    }
    let mut idle: Vec<_> = map
        .iter()
        .filter_map(|(session, topic)| {
            let state = topic.state();
            (state.followers == 0).then_some((state.used, *session))
        })
        .collect();
    idle.sort_unstable();
    for (_, session) in idle.iter().take(idle.len().div_ceil(2)) {
        map.remove(session);
    }
}
