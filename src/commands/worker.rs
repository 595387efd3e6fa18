//! `roundhouse worker`: runs turns.

use crate::config::Loaded;
use crate::wiring::{Foundation, StartError, build};

pub(super) async fn run(loaded: Loaded) -> Result<(), StartError> {
    let configured = !loaded.config.agents.is_empty();
    let foundation = Foundation::open(loaded).await?;
    foundation.await_schema().await?;
    // Held until the process ends.
    let (agents, _oracle) = build(foundation.agents().await, configured).await?;
    for built in &agents {
        if let Err(reason) = &built.engine {
            tracing::warn!(agent = built.agent.name, reason, "not available here");
        }
    }
    let worker = foundation.worker(&agents).await?;
    foundation.lifecycle.spawn_vital("worker", worker.run());
    foundation.run().await
}
