//! A bound on how many callers of one session use a connection at once: callers of a session that stays locked must not
//! take the connections that all other sessions need.
//!
//! Runs under a lease do not pass here: a session has one at a time, and it must not wait behind callers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// Callers of one session that wait in this process, without a connection.
const WAITING: usize = 256;
/// A session whose row none of its callers has got for so long counts as locked: the others are refused at once. Any
/// transaction of ours is much shorter.
const LOCKED: Duration = Duration::from_secs(2);

/// The callers of all sessions.
#[derive(Debug, Clone)]
pub(super) struct Gates {
    /// How many callers of one session may use a connection at once.
    inside: usize,
    sessions: Arc<Mutex<HashMap<Uuid, Gate>>>,
}

/// The callers of a session.
#[derive(Debug)]
struct Gate {
    places: Arc<Semaphore>,
    /// Callers inside and before the gate. With the last one the gate goes.
    callers: usize,
    /// When a caller has last got the session's row.
    moved: Instant,
}

/// A caller's place at a session's gate; leaving is dropping this.
#[derive(Debug)]
pub(super) struct Place {
    gates: Gates,
    session: Uuid,
    permit: Option<OwnedSemaphorePermit>,
}

impl Gates {
    /// Gates for a pool of so many connections. One session gets a quarter of them.
    pub(super) fn new(connections: u32) -> Self {
        let inside = usize::try_from(connections / 4).unwrap_or(usize::MAX).clamp(1, 4);
        Self { inside, sessions: Arc::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Uuid, Gate>> {
        // Nothing that holds this can panic halfway through a change.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place at a session's gate. `None`: the session is locked, or too many wait already.
    pub(super) async fn enter(&self, session: Uuid) -> Option<Place> {
        let (mut place, places) = self.queue_up(session)?;
        let mut permit = pin!(places.acquire_owned());
        loop {
            let locked_at = self.sessions().get(&session)?.moved + LOCKED;
            tokio::select! {
                biased;
                permit = &mut permit => {
                    place.permit = permit.ok();
                    return Some(place);
                }
                () = sleep_until(locked_at) => {
                    // Others may have got the row since.
                    if self.sessions().get(&session)?.moved + LOCKED <= Instant::now() {
                        return None;
                    }
                }
            }
        }
    }

    fn queue_up(&self, session: Uuid) -> Option<(Place, Arc<Semaphore>)> {
        let mut sessions = self.sessions();
        let gate = sessions.entry(session).or_insert_with(|| Gate {
            places: Arc::new(Semaphore::new(self.inside)),
            callers: 0,
            moved: Instant::now(),
        });
        if self.inside + WAITING <= gate.callers {
            return None;
        }
        gate.callers += 1;
        Some((Place { gates: self.clone(), session, permit: None }, gate.places.clone()))
    }
}

impl Place {
    /// The caller has got the session's row.
    pub(super) fn got_row(&self) {
        if let Some(gate) = self.gates.sessions().get_mut(&self.session) {
            gate.moved = Instant::now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sessions = self.gates.sessions();
        if let Entry::Occupied(mut gate) = sessions.entry(self.session) {
            gate.get_mut().callers -= 1;
            if gate.get().callers == 0 {
                gate.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_of_a_locked_session_are_refused_and_those_of_others_are_not() {
        let gates = Gates::new(16);
        let (locked, free) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut inside = Vec::new();
        for _ in 0..4 {
            inside.push(gates.enter(locked).await.unwrap());
        }
        let begun = Instant::now();
        assert!(gates.enter(locked).await.is_none());
        assert_eq!(begun.elapsed().as_secs(), LOCKED.as_secs());
        let begun = Instant::now();
        assert!(gates.enter(locked).await.is_none());
        assert!(begun.elapsed() < LOCKED, "at once, now that it is known to be locked");
        assert!(gates.enter(free).await.is_some());
        drop(inside);
        assert!(gates.enter(locked).await.is_some());
        assert!(gates.sessions().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn callers_wait_as_long_as_the_row_goes_from_one_to_the_next() {
        let gates = Gates::new(1);
        let session = Uuid::from_u128(1);
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let gates = gates.clone();
            callers.spawn(async move {
                let place = gates.enter(session).await?;
                place.got_row();
                tokio::time::sleep(LOCKED / 2).await;
                Some(())
            });
        }
        assert!(callers.join_all().await.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_there_is_room_for() {
        let gates = Gates::new(1);
        let session = Uuid::from_u128(1);
        let place = gates.enter(session).await.unwrap();
        let waiting: Vec<_> = (0..WAITING).map(|_| gates.queue_up(session).unwrap()).collect();
        assert!(gates.queue_up(session).is_none());
        drop((place, waiting));
        assert!(gates.sessions().is_empty());
    }
}
