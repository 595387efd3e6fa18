//! From an admission to a job that is waited for, and back: cancelled, where its client wants that, once it is gone.

use std::sync::Arc;

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{JobId, JobKind, SessionId};
use roundhouse_shared::store::{Admission, Cancelled, StoreError};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::app::{App, Shared};
use crate::problem::ApiProblem;
use crate::wait::Waiting;

/// A job that somebody waits for.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) job: JobId,
    pub(crate) session: SessionId,
    pub(crate) kind: JobKind,
    /// The same request was admitted before.
    pub(crate) replayed: bool,
    pub(crate) waiting: Waiting,
    /// Says whether listeners heard of it.
    pub(crate) announced: Option<oneshot::Receiver<bool>>,
    pub(crate) guard: CancelGuard,
}

/// Cancels a job when dropped, unless it is disarmed.
#[derive(Debug)]
pub(crate) struct CancelGuard(Option<(Shared, JobId)>);

impl CancelGuard {
    /// The client has got what it waited for.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        let Some((app, job)) = self.0.take() else { return };
        // A process that stops lets go of its clients, not they of it.
        if app.lifecycle.hard().is_cancelled() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        tracing::info!(%job, "the client is gone: cancelling its job");
        let lifecycle = app.lifecycle.clone();
        lifecycle.spawn(async move {
            if let Err(error) = cancel_job(&app, job).await {
                tracing::warn!(%job, code = %error.problem.code, "the job was not cancelled");
            }
        });
    }
}

/// Admits a message and tells of it. Goes on to its end whatever becomes of the client.
pub(crate) async fn accept(
    app: &Shared,
    admission: Admission,
    cancel_on_disconnect: bool,
) -> Result<Accepted, ApiProblem> {
    // Registered before it exists: its end cannot be missed.
    let waiting = app.waiter.register(admission.job);
    let (send, receive) = oneshot::channel();
    let shared = Arc::clone(app);
    let admit = async move {
        let admitted = match shared.store.admit(&admission).await {
            Ok(admitted) => admitted,
            Err(error) => {
                let _ = send.send(Err(error.into()));
                return;
            }
        };
        let replayed = admitted.message.is_none();
        let waiting = if replayed { shared.waiter.register(admitted.job) } else { waiting };
        waiting.stored();
        let (told, announced) = oneshot::channel();
        let accepted = Accepted {
            job: admitted.job,
            session: admitted.session,
            kind: admitted.kind,
            replayed,
            waiting,
            announced: Some(announced),
            guard: CancelGuard(cancel_on_disconnect.then(|| (shared.clone(), admitted.job))),
        };
        // Where the client is gone, this drops the guard.
        let _ = send.send(Ok(accepted));
        if !replayed {
            let _ = told.send(shared.announcer.admitted(&admitted).await);
        }
    };
    app.lifecycle.spawn(admit.in_current_span());
    receive.await.map_err(|_| ApiProblem::new(Code::Internal))?
}

/// Cancels what a session does.
/// Whether the model has the message of a job that is not answered yet. Where the store is away, nobody knows.
pub(crate) async fn is_consumed(app: &App, job: JobId) -> bool {
    app.store.is_consumed(job).await.unwrap_or_default()
}

pub(crate) async fn cancel_session(app: &App, session: SessionId) -> Result<Cancelled, ApiProblem> {
    let cancelled = app.store.cancel_session(session).await?;
    app.announcer.cancelled(session, &cancelled).await;
    Ok(cancelled)
}

/// Cancels all that a session has not done.
pub(crate) async fn cancel_all(app: &App, session: SessionId) -> Result<(), ApiProblem> {
    let cancelled = app.store.cancel_all(session).await?;
    app.announcer.cancelled(session, &cancelled).await;
    Ok(())
}

/// Cancels a job.
pub(crate) async fn cancel_job(app: &App, job: JobId) -> Result<Cancelled, ApiProblem> {
    match app.store.cancel_job(job).await {
        Ok((session, cancelled)) => {
            app.announcer.cancelled(session, &cancelled).await;
            Ok(cancelled)
        }
        // Deleted in between.
        Err(StoreError::SessionNotFound) => Err(StoreError::JobNotFound.into()),
        Err(error) => Err(error.into()),
    }
}
