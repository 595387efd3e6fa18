//! The sessions that this process has events of, and who waits for more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::batch::Memory;
use super::ring::Ring;
use crate::domain::SessionId;

/// One session's events in this process.
#[derive(Debug)]
pub(super) struct Topic {
    state: Mutex<State>,
    /// Changes whenever there is something new to look at.
    pub(super) bell: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) ring: Ring,
    /// What was published; only where the topic is the log itself.
    pub(super) memory: Memory,
    followers: usize,
    used: Instant,
}

impl Topic {
    fn new(ring: Ring) -> Self {
        let state = State { ring, memory: Memory::default(), followers: 0, used: Instant::now() };
        Self { state: Mutex::new(state), bell: watch::Sender::new(0) }
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
        self.find_or_make(&mut self.map(), session)
    }

    /// Takes part in a topic until [`Topics::leave`].
    pub(super) fn join(&self, session: SessionId) -> Arc<Topic> {
        // Counted before the map is free again: else the last of the others could leave now, and take the topic along.
        let mut map = self.map();
        let topic = self.find_or_make(&mut map, session);
        topic.state().followers += 1;
        drop(map);
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

    fn find_or_make(&self, map: &mut HashMap<SessionId, Arc<Topic>>, session: SessionId) -> Arc<Topic> {
        if let Some(topic) = map.get(&session) {
            topic.state().used = Instant::now();
            return topic.clone();
        }
        if let Keep::Log(kept, most) = self.keep
            && most <= map.len()
        {
            forget_oldest(map, kept, most);
        }
        let topic = Arc::new(Topic::new(Ring::new(self.ring_events, self.ring_bytes)));
        map.insert(session, topic.clone());
        topic
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

    /// The sessions of all topics of this process.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.map().keys().copied().collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_goes_with_its_last_follower_and_not_before() {
        let (topics, session) = (Topics::new(Keep::Copy, 1, 1), SessionId::generate());
        let (first, second) = (topics.join(session), topics.join(session));
        topics.leave(session, &first);
        assert!(topics.find(session).is_some_and(|found| Arc::ptr_eq(&found, &second)));
        topics.leave(session, &second);
        assert_eq!(topics.sessions(), []);
    }

    #[test]
    fn whoever_follows_is_found_while_others_come_and_go() {
        let (topics, session) = (Topics::new(Keep::Copy, 1, 1), SessionId::generate());
        let come_and_go = || {
            for _ in 0..20_000 {
                let topic = topics.join(session);
                let found = topics.find(session);
                topics.leave(session, &topic);
                assert!(found.is_some_and(|found| Arc::ptr_eq(&found, &topic)));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(come_and_go);
            }
        });
        assert_eq!(topics.sessions(), []);
    }

    #[test]
    fn logs_that_nobody_follows_make_room_for_new_ones() {
        let most = 10;
        let topics = Topics::new(Keep::Log(Duration::from_hours(1), most), 1, 1);
        let (followed, oldest) = (SessionId::generate(), SessionId::generate());
        topics.join(followed);
        topics.of(oldest);
        for _ in 0..5 * most {
            topics.of(SessionId::generate());
            assert!(topics.sessions().len() <= most);
        }
        assert!(topics.find(followed).is_some());
        assert!(topics.find(oldest).is_none());
    }
}
