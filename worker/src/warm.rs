//! Warm engines: sessions of engines that are kept open after a turn, for the next one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roundhouse_engines::contract::{EngineSession, OpenSession};
use roundhouse_shared::domain::{Lease, LeaseToken, SessionId};
use tokio::time::{Instant, timeout};

use crate::Worker;
use crate::between::{Heard, Listening};

/// How often the pool is looked through, at the least.
const LOOK: Duration = Duration::from_secs(5);

/// The warm engines of a worker.
#[derive(Default)]
pub(crate) struct Warm {
    kept: Mutex<HashMap<SessionId, Kept>>,
}

/// An engine session, and when it can be used again.
struct Kept {
    engine: Listening,
    native: Option<String>,
    /// The lease under which it was used last. A greater one but the next means that somebody else has run the session
    /// since: what this process remembers is then not all there is.
    token: LeaseToken,
    model: Option<String>,
    cwd: PathBuf,
    since: Instant,
}

impl Warm {
    fn kept(&self) -> MutexGuard<'_, HashMap<SessionId, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine session that was kept for this, unless something has changed since. What cannot be used any more is
    /// ended before this returns: no two processes have one native session open.
    pub(crate) async fn take(&self, worker: &Worker, lease: &Lease, spec: &OpenSession) -> Option<Heard> {
        let Kept { engine, token, model, cwd, .. } = self.kept().remove(&lease.session)?;
        let heard = engine.end().await?;
        let is_next = token == lease.token || token.0 + 1 == lease.token.0;
        let is_same = model == spec.model
            && cwd == spec.cwd
            && spec.native_session.is_some()
            && heard.engine.native_session() == spec.native_session.as_deref();
        if is_next && is_same && heard.engine.is_warm() {
            return Some(heard);
        }
        close(worker, lease.session, heard.engine).await;
        None
    }

    /// Keeps an engine session for the next turn, for a while and within bounds.
    pub(crate) fn keep(
        &self,
        worker: &Arc<Worker>,
        lease: &Lease,
        spec: OpenSession,
        engine: Box<dyn EngineSession>,
    ) {
        let OpenSession { model, cwd, .. } = spec;
        let native = engine.native_session().map(str::to_owned);
        let engine = Listening::begin(worker, *lease, engine);
        let kept = Kept { engine, native, token: lease.token, model, cwd, since: Instant::now() };
        let mut all = self.kept();
        let mut surplus: Vec<_> =
            all.insert(lease.session, kept).map(|kept| (lease.session, kept)).into_iter().collect();
        while worker.settings.slots < all.len() {
            let oldest = all.iter().min_by_key(|(_, kept)| kept.since).map(|(session, _)| *session);
            surplus.extend(oldest.and_then(|session| Some((session, all.remove(&session)?))));
        }
        drop(all);
        for (session, kept) in surplus {
            let worker = worker.clone();
            worker.lifecycle.clone().spawn(async move { end(&worker, session, kept).await });
        }
    }

    /// A run under this lease leaves the native session as it is: what was kept after the lease before is as good after
    /// this one.
    pub(crate) fn carry_over(&self, lease: &Lease) {
        if let Some(kept) = self.kept().get_mut(&lease.session)
            && kept.token.0 + 1 == lease.token.0
        {
            kept.token = lease.token;
            kept.engine.outlives(lease.token);
        }
    }

    /// Ends what is kept for a session, before its native session is touched.
    pub(crate) async fn end(&self, worker: &Worker, session: SessionId) {
        let kept = self.kept().remove(&session);
        if let Some(kept) = kept {
            end(worker, session, kept).await;
        }
    }

    /// The same, unless what is kept has another native session open.
    pub(crate) async fn end_native(&self, worker: &Worker, session: SessionId, native: &str) {
        let has_it = |kept: &Kept| kept.native.as_deref() == Some(native);
        let kept = {
            let mut all = self.kept();
            if all.get(&session).is_some_and(has_it) { all.remove(&session) } else { None }
        };
        if let Some(kept) = kept {
            end(worker, session, kept).await;
        }
    }

    /// Ends all that were kept for `idle` or longer.
    async fn end_idle(&self, worker: &Worker, idle: Duration) {
        let idle: Vec<_> = self
            .kept()
            .extract_if(|_, kept| idle <= kept.since.elapsed() || kept.engine.has_ended())
            .collect();
        let ends = idle.into_iter().map(|(session, kept)| end(worker, session, kept));
        futures::future::join_all(ends).await;
    }

    /// Ends all.
    pub(crate) async fn end_all(&self, worker: &Worker) {
        self.end_idle(worker, Duration::ZERO).await;
    }
}

/// Ends those that nobody has used for a while. Runs for ever.
pub(crate) async fn run(worker: Arc<Worker>) {
    let idle = worker.settings.engine_idle.0;
    let mut tick = tokio::time::interval((idle / 4).clamp(Duration::from_millis(50), LOOK));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        worker.warm.end_idle(&worker, idle).await;
    }
}

async fn end(worker: &Worker, session: SessionId, kept: Kept) {
    if let Some(Heard { engine, .. }) = kept.engine.end().await {
        close(worker, session, engine).await;
    }
}

/// Ends an engine session with all that it has started.
pub(crate) async fn close(worker: &Worker, session: SessionId, engine: Box<dyn EngineSession>) {
    close_within(worker.limits.cancel_grace.0, session, engine).await;
}

/// The same within a time; within none, it is killed.
pub(crate) async fn close_within(grace: Duration, session: SessionId, engine: Box<dyn EngineSession>) {
    if timeout(grace + Duration::from_secs(1), engine.close(grace)).await.is_err() {
        tracing::warn!(session.id = %session, "an engine session did not close in time");
    }
}
