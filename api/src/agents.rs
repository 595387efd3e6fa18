//! The agents that can be talked to: those configured here and those that live workers announce.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Agent, AgentStatus, EngineKind, Worker};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{Store, StoreError};

use crate::problem::ApiProblem;

/// How old the answer of the workers may be.
const FRESH: Duration = Duration::from_secs(1);

/// Who can be talked to, as last seen.
#[derive(Debug)]
pub(crate) struct Directory {
    configured: Vec<Agent>,
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone)]
struct Seen {
    at: Instant,
    agents: Arc<Vec<AgentStatus>>,
}

impl Directory {
    pub(crate) const fn new(configured: Vec<Agent>) -> Self {
        Self { configured, seen: Mutex::new(None) }
    }

    /// All agents, as of the last second.
    pub(crate) async fn all(&self, store: &Store) -> Result<Arc<Vec<AgentStatus>>, StoreError> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match seen {
            Some(seen) if seen.at.elapsed() < FRESH => Ok(seen.agents),
            _ => self.look(store).await,
        }
    }

    /// An agent, whether or not it can run now.
    pub(crate) async fn known(&self, store: &Store, name: &str) -> Result<Agent, ApiProblem> {
        self.status(store, name).await.map(|status| status.agent)
    }

    /// An agent that a live worker can run.
    pub(crate) async fn available(&self, store: &Store, name: &str) -> Result<Agent, ApiProblem> {
        let mut status = self.status(store, name).await?;
        if !status.available {
            // Before a refusal, the news: a worker may have come within the last second.
            let agents = self.look(store).await?;
            status = find(&agents, name).ok_or(ApiProblem::new(Code::AgentNotFound))?;
        }
        if status.available {
            return Ok(status.agent);
        }
        let reason = status.reason.unwrap_or_default();
        Err(Problem::with_detail(Code::EngineUnavailable, reason).into())
    }

    async fn status(&self, store: &Store, name: &str) -> Result<AgentStatus, ApiProblem> {
        if let Some(status) = find(&self.all(store).await?, name) {
            return Ok(status);
        }
        find(&self.look(store).await?, name).ok_or(ApiProblem::new(Code::AgentNotFound))
    }

    /// All agents, as of now.
    pub(crate) async fn look(&self, store: &Store) -> Result<Arc<Vec<AgentStatus>>, StoreError> {
        let at = Instant::now();
        let agents = Arc::new(merge(&self.configured, &store.workers().await?));
        let seen = Seen { at, agents: agents.clone() };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
        Ok(agents)
    }
}

/// Finds a live worker, with an engine of this kind where one is needed.
pub(crate) async fn find_worker(store: &Store, needs: Option<EngineKind>) -> Result<(), ApiProblem> {
    let is_able = |worker: &Worker| {
        let mut here = worker.agents.iter().filter(|status| status.available);
        needs.is_none_or(|kind| here.any(|status| status.agent.engine == kind))
    };
    if store.workers().await?.iter().any(is_able) {
        return Ok(());
    }
    let detail = match needs {
        Some(kind) => format!("no live worker has {kind}"),
        None => "there is no live worker".to_owned(),
    };
    Err(Problem::with_detail(Code::EngineUnavailable, detail).into())
}

fn find(agents: &[AgentStatus], name: &str) -> Option<AgentStatus> {
    agents.iter().find(|status| status.agent.name == name).cloned()
}

/// The configured agents in their order, then the others by name. One worker that can run an agent is enough.
fn merge(configured: &[Agent], workers: &[Worker]) -> Vec<AgentStatus> {
    let mut announced: BTreeMap<&str, AgentStatus> = BTreeMap::new();
    for status in workers.iter().flat_map(|worker| &worker.agents) {
        let known = announced.entry(&status.agent.name).or_insert_with(|| status.clone());
        if status.available && !known.available {
            *known = status.clone();
        }
        // A worker that has run no turn of it does not know yet.
        if known.left_out_tools.len() < status.left_out_tools.len() {
            known.left_out_tools.clone_from(&status.left_out_tools);
        }
    }
    let mut all: Vec<AgentStatus> = configured
        .iter()
        .map(|agent| match announced.remove(agent.name.as_str()) {
            Some(status) => AgentStatus { agent: agent.clone(), ..status },
            None => AgentStatus {
                agent: agent.clone(),
                available: false,
                reason: Some("no live worker has this agent".to_owned()),
                left_out_tools: Vec::new(),
            },
        })
        .collect();
    all.extend(announced.into_values());
    for status in all.iter_mut().filter(|status| status.available) {
        status.reason = None;
    }
    all
}

#[cfg(test)]
mod tests {
    use roundhouse_shared::domain::WorkerId;

    use super::*;

    fn agent(name: &str) -> Agent {
        Agent { name: name.to_owned(), engine: EngineKind::OpenAi, model: None, demo: false }
    }

    fn worker(agents: &[(&str, bool)]) -> Worker {
        let status = |(name, available): &(&str, bool)| AgentStatus {
            agent: agent(name),
            available: *available,
            reason: (!available).then(|| "no key".to_owned()),
            left_out_tools: Vec::new(),
        };
        Worker {
            id: WorkerId::generate(),
            host: String::new(),
            pid: 1,
            version: String::new(),
            slots: 1,
            agents: agents.iter().map(status).collect(),
            stopping: false,
            started_ms: 0,
            seen_ms: 0,
            expires_ms: 0,
            leases: Vec::new(),
        }
    }

    #[test]
    fn one_worker_that_can_is_enough() {
        let workers = [worker(&[("z", false), ("b", false)]), worker(&[("z", true), ("a", true)])];
        let all = merge(&[agent("z"), agent("lonely")], &workers);
        let told: Vec<_> = all
            .iter()
            .map(|status| (status.agent.name.as_str(), status.available, status.reason.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                ("z", true, None),
                ("lonely", false, Some("no live worker has this agent")),
                ("a", true, None),
                ("b", false, Some("no key")),
            ]
        );
    }
}
