//! From a fork, a trim or a reset to its outcome: admitted, told, waited for.

use std::sync::Arc;

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Cut, CutResult, JobId, SessionId};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{CutAdmission, Idempotency, Outcome};

use crate::app::Shared;
use crate::problem::ApiProblem;

/// How far it got while its client waited.
#[derive(Debug)]
pub(crate) enum Carried {
    /// It is done.
    Out(CutResult),
    /// It is not: the outcome will be at the job.
    Later(JobId),
}

/// Has a session cut, and waits for the outcome. It goes on whatever becomes of the client.
pub(crate) async fn carry_out(
    app: &Shared,
    session: SessionId,
    cut: Cut,
    idempotency: Option<Idempotency>,
) -> Result<Carried, ApiProblem> {
    let needs = app.store.cut_needs(session, &cut).await?;
    app.agents.admits_cut(&app.store, needs).await?;
    let admission = CutAdmission { job: JobId::generate(), session, cut, idempotency };
    // Registered before it exists: its end cannot be missed.
    let mut waiting = app.waiter.register(admission.job);
    let shared = Arc::clone(app);
    let kind = admission.cut.kind();
    let admitted = app
        .to_the_end(async move {
            let admitted = shared.store.admit_cut(&admission).await?;
            if !admitted.replayed {
                shared.announcer.cut(session, admitted.job, kind).await;
            }
            Ok(admitted)
        })
        .await?;
    if admitted.replayed {
        waiting = app.waiter.register(admitted.job);
    }
    waiting.stored();
    let mut outcome = if admitted.replayed { waiting.look(&app.store).await } else { None };
    if outcome.is_none() {
        outcome = tokio::select! {
            outcome = waiting.outcome() => Some(outcome),
            () = tokio::time::sleep(app.limits.json_wait_timeout.0) => waiting.look(&app.store).await,
            () = app.lifecycle.hard().cancelled() => None,
        };
    }
    match outcome {
        Some(Outcome::Cut(result)) => Ok(Carried::Out(result)),
        Some(Outcome::Failed(problem)) => Err(ApiProblem::from(problem).about(session, admitted.job)),
        Some(Outcome::Cancelled | Outcome::Answered(_)) => {
            let problem = Problem::with_detail(Code::SessionBusy, "the job was cancelled before it began");
            Err(ApiProblem::from(problem).about(session, admitted.job))
        }
        None => Ok(Carried::Later(admitted.job)),
    }
}
