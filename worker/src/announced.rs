//! What a worker says of its agents beyond what it was registered with: the tools that their models are not offered.

use std::collections::HashMap;
use std::time::Duration;

use roundhouse_shared::domain::{LeftOutTool, WorkerId};
use roundhouse_shared::problem::chain;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::Worker;

/// How long the end of a turn may wait for it.
const WAIT: Duration = Duration::from_secs(2);

/// What was said last of each agent, and under which id. Held while it is written, so that one write follows the other.
#[derive(Debug, Default)]
pub(crate) struct Announced(Mutex<HashMap<String, (WorkerId, Vec<LeftOutTool>)>>);

/// Says which tools of an agent are left out, where that has changed. Best effort: the next turn says it again.
pub(crate) async fn left_out(worker: &Worker, agent: &str) {
    let Some(here) = worker.engines.get(agent) else { return };
    let tools = here.engine.left_out().into_iter();
    let tools: Vec<_> =
        tools.map(|left| LeftOutTool { server: left.source, tool: left.tool, reason: left.reason }).collect();
    let now = (worker.identity.now().id, tools);
    let telling = async {
        let mut announced = worker.announced.0.lock().await;
        let is_known = announced.get(agent).map_or(now.1.is_empty(), |told| *told == now);
        if !is_known {
            worker.store.set_left_out(now.0, agent, &now.1).await?;
            announced.insert(agent.to_owned(), now);
        }
        Ok::<_, roundhouse_shared::store::StoreError>(())
    };
    if let Ok(Err(error)) = timeout(WAIT, telling).await {
        tracing::debug!(agent, error = chain(&error), "could not say which tools are left out");
    }
}
