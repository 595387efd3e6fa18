//! The agents that workers had lately, also those that are gone.

use std::collections::HashSet;

use super::db::values;
use super::{Store, StoreError};
use crate::domain::{Agent, AgentStatus, WorkerId};

/// How long an agent is remembered without a worker. The rows of dead workers are kept for no longer.
const KEPT_MS: i64 = 60 * 60 * 1000;

/// An agent that a worker could run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenAgent {
    /// The agent, as the last worker had it.
    pub agent: Agent,
    /// How long ago that worker gave a sign of life, in milliseconds.
    pub ago_ms: i64,
}

impl Store {
    /// The agents that any worker could run within the last hour, each as the last of them had it.
    pub async fn seen_agents(&self) -> Result<Vec<SeenAgent>, StoreError> {
        let now_ms = self.now_ms().await?;
        let sql = "SELECT id, agents, seen_ms FROM workers WHERE seen_ms > $1 ORDER BY seen_ms DESC, id";
        let (mut seen, mut names) = (Vec::new(), HashSet::new());
        for row in self.db.all(sql, values![now_ms - KEPT_MS]).await? {
            let ago_ms = now_ms.saturating_sub(row.get("seen_ms")?).max(0);
            let Ok(agents) = serde_json::from_str::<Vec<AgentStatus>>(&row.get::<String>("agents")?) else {
                let id = WorkerId(row.get("id")?);
                tracing::warn!(worker.id = %id, "the agents of a worker cannot be read");
                continue;
            };
            for AgentStatus { agent, .. } in agents.into_iter().filter(|status| status.available) {
                if names.insert(agent.name.clone()) {
                    seen.push(SeenAgent { agent, ago_ms });
                }
            }
        }
        Ok(seen)
    }
}
