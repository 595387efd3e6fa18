//! Tells listeners and workers what the store has: events, notices, rings. All of it is after the commit, and
//! best effort, except for what a transaction has left to be published: that is, sooner or later.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roundhouse_shared::bus::{Bus, Notice, Numbering};
use roundhouse_shared::clock::now_ms;
use roundhouse_shared::domain::{EventKind, JobId, JobKind, NewEvent, Scope, SessionId, SessionJob};
use roundhouse_shared::leftovers;
use roundhouse_shared::queue::Queue;
use roundhouse_shared::store::{Admitted, Cancelled, Store};

/// Sessions remembered as having lost an event. Beyond, one is forgotten: its listeners see no gap.
const LOST_MOST: usize = 10_000;
/// How often it is tried to tell of them.
const GAPS: Duration = Duration::from_secs(1);

/// What tells others.
#[derive(Debug)]
pub(crate) struct Announcer {
    store: Store,
    bus: Bus,
    queue: Queue,
    /// Sessions whose last publication failed: their numbering has to begin anew, so that listeners see the gap.
    lost: Mutex<HashSet<SessionId>>,
}

impl Announcer {
    pub(crate) fn new(store: Store, bus: Bus, queue: Queue) -> Self {
        Self { store, bus, queue, lost: Mutex::default() }
    }

    /// Tells of a message that was admitted, and of what it interrupted. Returns whether listeners heard it.
    pub(crate) async fn admitted(&self, admitted: &Admitted) -> bool {
        let Admitted { job, session, kind, message, interrupted } = admitted;
        let Some(message) = message else { return false };
        let scope = Scope { job: Some(*job), ..Scope::default() };
        if let Some(interrupted) = interrupted {
            leftovers::publish(&self.store, &self.bus, interrupted.stored.as_ref()).await;
        }
        let mut events = vec![event(*session, scope, &EventKind::JobAccepted { kind: *kind })];
        let user_message = EventKind::UserMessage {
            content: message.content.clone(),
            origin: message.origin.clone(),
            injected: *kind == JobKind::Inject,
        };
        events.push(event(*session, Scope { message: Some(message.id), ..scope }, &user_message));
        let mut notices = interrupted.as_ref().map(|of| cancel_notices(*session, of)).unwrap_or_default();
        if *kind == JobKind::Inject {
            notices.push(Notice::Mail(*session));
        }
        let heard = self.publish(*session, &events).await;
        let ring = SessionJob { job: *job, session: *session, kind: *kind };
        tokio::join!(self.notify(&notices), self.ring(ring));
        heard
    }

    /// Tells of a fork, a trim or a reset that was admitted.
    pub(crate) async fn cut(&self, session: SessionId, job: JobId, kind: JobKind) {
        let scope = Scope { job: Some(job), ..Scope::default() };
        let accepted = [event(session, scope, &EventKind::JobAccepted { kind })];
        tokio::join!(self.publish(session, &accepted), self.ring(SessionJob { job, session, kind }));
    }

    /// Tells of what a cancel did.
    pub(crate) async fn cancelled(&self, session: SessionId, cancelled: &Cancelled) {
        if cancelled.any() {
            leftovers::publish(&self.store, &self.bus, cancelled.stored.as_ref()).await;
            self.notify(&cancel_notices(session, cancelled)).await;
            // A parent that waits for one of them.
            for wake in cancelled.ended.iter().filter_map(|ended| ended.wakes) {
                self.ring(wake).await;
            }
        }
    }

    /// Tells that a session's own data was changed.
    pub(crate) async fn updated(&self, session: SessionId) {
        self.publish(session, &[event(session, Scope::default(), &EventKind::SessionUpdated {})]).await;
    }

    async fn publish(&self, session: SessionId, events: &[NewEvent]) -> bool {
        if events.is_empty() {
            return true;
        }
        let numbering = if self.lost().remove(&session) { Numbering::Restart } else { Numbering::Continue };
        let published = self.bus.publish(session, None, numbering, events).await;
        if published.is_err() {
            let mut lost = self.lost();
            if LOST_MOST <= lost.len()
                && let Some(other) = lost.iter().next().copied()
            {
                lost.remove(&other);
            }
            lost.insert(session);
        }
        published.is_ok()
    }

    /// Tells listeners of the events that could not be published, as soon as they can be told, until this is dropped.
    pub(crate) async fn tell_gaps(self: Arc<Self>) {
        loop {
            tokio::time::sleep(GAPS).await;
            let sessions: Vec<_> = self.lost().iter().copied().collect();
            for session in sessions {
                // Whoever publishes meanwhile tells of it.
                if !self.lost().contains(&session) {
                    continue;
                }
                if self.bus.publish(session, None, Numbering::Restart, &[]).await.is_err() {
                    break;
                }
                self.lost().remove(&session);
            }
        }
    }

    fn lost(&self) -> std::sync::MutexGuard<'_, HashSet<SessionId>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn notify(&self, notices: &[Notice]) {
        if !notices.is_empty() {
            self.bus.notify(notices).await;
        }
    }

    /// Rings for a job. Where that fails, the queue logs it and the sweeper will.
    async fn ring(&self, job: SessionJob) {
        let _ = self.queue.push(job.kind.lane(), job.session).await;
    }
}

fn event(session: SessionId, scope: Scope, kind: &EventKind) -> NewEvent {
    NewEvent::new(session, now_ms(), scope, kind)
}

fn cancel_notices(session: SessionId, cancelled: &Cancelled) -> Vec<Notice> {
    let ended = cancelled.ended.iter().map(|ended| Notice::Ended(session, ended.job));
    ended.chain(cancelled.turn.map(|turn| Notice::Cancel(session, turn))).collect()
}
