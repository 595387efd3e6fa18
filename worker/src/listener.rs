//! What rings for running sessions. Every ring is a hint: the heartbeat brings the same a little later.

use std::sync::Arc;

use roundhouse_shared::bus::Notice;
use tokio::sync::broadcast::error::RecvError;

use crate::Worker;

/// Runs until it is aborted.
pub(crate) async fn run(worker: Arc<Worker>) {
    let mut notices = worker.bus.notices();
    loop {
        match notices.recv().await {
            Ok(Notice::Cancel(session, turn)) => worker.registry.cancel(session, turn),
            Ok(Notice::Mail(session)) => worker.registry.mail(session),
            // Answers are for the waiting.
            Ok(Notice::Ended(..) | Notice::Resolved(..)) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
