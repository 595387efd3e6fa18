//! What the file tools have in common: blocking work with a bound on its time, and problems told to the model.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::workspace::Workspace;
use super::{ToolContext, ToolOutcome, input};

/// How long a call may work. One that lists or searches stops by itself and returns what it has.
const WORK: Duration = Duration::from_secs(20);

/// How much longer a call is waited for that hangs in the file system.
const HANGING: Duration = Duration::from_secs(10);

/// How long a call waits for others to end.
const WAIT: Duration = Duration::from_secs(20);

/// How many calls work at once in this process: each occupies a thread and, where it searches, a core.
static CALLS: Semaphore = Semaphore::const_new(16);

/// Why a tool did not do what it was asked to do, as a sentence for the model.
#[derive(Debug)]
pub(super) struct Problem(String);

impl Problem {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

/// How long work may go on. Asked between steps.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    deadline: Instant,
    cancel: CancellationToken,
}

impl Budget {
    pub(super) fn new(work: Duration, cancel: CancellationToken) -> Self {
        Self { deadline: Instant::now() + work, cancel }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// Reads the input and does the work on a thread that may block.
pub(super) async fn call<T>(
    input: Value,
    context: &ToolContext,
    run: fn(&Workspace, &T) -> Result<String, Problem>,
) -> ToolOutcome
where
    T: DeserializeOwned + Send + 'static,
{
    let input: T = match input::read(input) {
        Ok(input) => input,
        Err(problem) => return ToolOutcome::failure(problem.text()),
    };
    let (cwd, cancel) = (context.cwd.clone(), context.cancel.child_token());
    // Ends the work when nobody waits for it any more: a deadline below, or a dropped call.
    let _given_up = cancel.clone().drop_guard();
    let work = async {
        // The thread keeps the permit: a call that was given up still counts while it hangs in the file system.
        let permit = CALLS.acquire().await;
        let budget = Budget::new(WORK, cancel);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            run(&Workspace::open(cwd, budget)?, &input)
        })
        .await
    };
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => ToolOutcome::failure("The call was cancelled."),
        () = tokio::time::sleep(WAIT + WORK + HANGING) => {
            ToolOutcome::failure("The file system does not answer: the call was given up.")
        }
        done = work => match done {
            Ok(Ok(text)) => ToolOutcome::success(text),
            Ok(Err(problem)) => ToolOutcome::failure(problem.text()),
            Err(error) => {
                tracing::error!(%error, "a file tool has failed in an unexpected way");
                ToolOutcome::failure("The tool has failed in an unexpected way.")
            }
        },
    }
}
