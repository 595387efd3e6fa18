//! The agents that can be talked to: those configured here and those that live workers announce.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{Agent, AgentStatus, EngineKind, Worker};
use roundhouse_shared::problem::Problem;
use roundhouse_shared::store::{SeenAgent, Store, StoreError};

use crate::problem::ApiProblem;

/// How old the answer of the workers may be.
const FRESH: Duration = Duration::from_secs(1);

/// Who can be talked to, as last seen.
#[derive(Debug)]
pub(crate) struct Directory {
    configured: Vec<Agent>,
    /// How long messages for an agent are admitted after its last worker was seen.
    gap: Duration,
    /// Whether workers are other processes: then there may be agents that are not configured here.
    workers_elsewhere: bool,
    started: Instant,
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone)]
struct Seen {
    at: Instant,
    agents: Arc<Vec<Known>>,
    /// The engines that live workers have.
    engines: Arc<Vec<EngineKind>>,
    /// Whether there is a worker, or was one lately.
    worker: bool,
}

/// An agent, and what becomes of a message for it.
#[derive(Debug, Clone)]
struct Known {
    status: AgentStatus,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// A live worker can run it.
    Available,
    /// A live worker says why it cannot be run.
    Refused,
    /// It has no worker for a moment: messages wait for one.
    Waiting,
    /// It had no worker for long.
    Gone,
}

impl Directory {
    pub(crate) fn new(configured: Vec<Agent>, gap: Duration, workers_elsewhere: bool) -> Self {
        Self { configured, gap, workers_elsewhere, started: Instant::now(), seen: Mutex::new(None) }
    }

    /// All agents, as of now.
    pub(crate) async fn all(&self, store: &Store) -> Result<Vec<AgentStatus>, StoreError> {
        let seen = self.look(store).await?;
        Ok(seen.agents.iter().map(|known| known.status.clone()).collect())
    }

    /// An agent, whether or not it can run now.
    pub(crate) async fn known(&self, store: &Store, name: &str) -> Result<Agent, ApiProblem> {
        self.find(store, name).await.map(|known| known.status.agent)
    }

    /// An agent that a live worker can run, or that has had a worker lately.
    pub(crate) async fn admits(&self, store: &Store, name: &str) -> Result<Agent, ApiProblem> {
        let mut known = self.find(store, name).await?;
        if !known.standing.admits() {
            // Before a refusal, the news: a worker may have come within the last second.
            let seen = self.look(store).await?;
            known = find(&seen.agents, name).ok_or(ApiProblem::new(Code::AgentNotFound))?;
        }
        if known.standing.admits() {
            return Ok(known.status.agent);
        }
        let reason = known.status.reason.unwrap_or_default();
        Err(Problem::with_detail(Code::EngineUnavailable, reason).into())
    }

    /// Finds a worker, with an engine of this kind where one is needed: one that lives, or has lived lately.
    pub(crate) async fn admits_cut(
        &self,
        store: &Store,
        needs: Option<EngineKind>,
    ) -> Result<(), ApiProblem> {
        let seen = self.look(store).await?;
        let Some(kind) = needs else {
            if seen.worker {
                return Ok(());
            }
            return Err(Problem::with_detail(Code::EngineUnavailable, "there is no live worker").into());
        };
        let waits = |known: &Known| known.standing == Standing::Waiting && known.status.agent.engine == kind;
        if seen.engines.contains(&kind) || seen.agents.iter().any(waits) {
            return Ok(());
        }
        let detail = format!("no live worker has {kind}");
        Err(Problem::with_detail(Code::EngineUnavailable, detail).into())
    }

    async fn find(&self, store: &Store, name: &str) -> Result<Known, ApiProblem> {
        if let Some(known) = find(&self.seen(store).await?.agents, name) {
            return Ok(known);
        }
        find(&self.look(store).await?.agents, name).ok_or(ApiProblem::new(Code::AgentNotFound))
    }

    async fn seen(&self, store: &Store) -> Result<Seen, StoreError> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match seen {
            Some(seen) if seen.at.elapsed() < FRESH => Ok(seen),
            _ => self.look(store).await,
        }
    }

    async fn look(&self, store: &Store) -> Result<Seen, StoreError> {
        let at = Instant::now();
        let live = store.workers().await?;
        let earlier = store.seen_agents().await?;
        let gap_ms = i64::try_from(self.gap.as_millis()).unwrap_or(i64::MAX);
        // What is configured here is expected to have a worker soon after a start.
        let starting = self.started.elapsed() < self.gap;
        let lately = earlier.iter().any(|seen| seen.ago_ms < gap_ms);
        let engines = live.iter().flat_map(|worker| &worker.agents).filter(|status| status.available);
        let seen = Seen {
            at,
            engines: Arc::new(engines.map(|status| status.agent.engine).collect()),
            worker: !live.is_empty() || lately || starting,
            agents: Arc::new(self.merge(&live, &earlier, gap_ms, starting)),
        };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen.clone());
        Ok(seen)
    }

    /// The configured agents in their order, then the others by name. One worker that can run an agent is enough.
    fn merge(&self, live: &[Worker], earlier: &[SeenAgent], gap_ms: i64, starting: bool) -> Vec<Known> {
        let mut announced: BTreeMap<&str, Known> = BTreeMap::new();
        for status in live.iter().flat_map(|worker| &worker.agents) {
            let known = announced.entry(&status.agent.name).or_insert_with(|| Known::announced(status));
            let mut left_out = std::mem::take(&mut known.status.left_out_tools);
            if status.available && known.standing != Standing::Available {
                *known = Known::announced(status);
            }
            // A worker that has run no turn of it does not know yet.
            if left_out.len() < status.left_out_tools.len() {
                left_out.clone_from(&status.left_out_tools);
            }
            known.status.left_out_tools = left_out;
        }
        for seen in earlier {
            let is_configured = self.configured.iter().any(|agent| agent.name == seen.agent.name);
            if self.workers_elsewhere || is_configured {
                let known = || Known::without_worker(&seen.agent, seen.ago_ms < gap_ms);
                announced.entry(&seen.agent.name).or_insert_with(known);
            }
        }
        let configured = self.configured.iter().map(|agent| match announced.remove(agent.name.as_str()) {
            Some(known) if known.standing != Standing::Gone || !starting => {
                Known { status: AgentStatus { agent: agent.clone(), ..known.status }, ..known }
            }
            _ => Known::without_worker(agent, starting),
        });
        let mut all: Vec<_> = configured.collect();
        all.extend(announced.into_values());
        all
    }
}

impl Standing {
    const fn admits(self) -> bool {
        matches!(self, Self::Available | Self::Waiting)
    }
}

impl Known {
    /// As a live worker says.
    fn announced(status: &AgentStatus) -> Self {
        let reason = status.reason.clone().filter(|_| !status.available);
        let standing = if status.available { Standing::Available } else { Standing::Refused };
        Self { status: AgentStatus { reason, ..status.clone() }, standing }
    }

    fn without_worker(agent: &Agent, admits: bool) -> Self {
        let (standing, reason) = if admits {
            (Standing::Waiting, "no live worker has this agent now; messages wait for one")
        } else {
            (Standing::Gone, "no live worker has this agent")
        };
        let status = AgentStatus {
            agent: agent.clone(),
            available: false,
            reason: Some(reason.to_owned()),
            left_out_tools: Vec::new(),
        };
        Self { status, standing }
    }
}

fn find(agents: &[Known], name: &str) -> Option<Known> {
    agents.iter().find(|known| known.status.agent.name == name).cloned()
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

    fn seen(name: &str, ago_ms: i64) -> SeenAgent {
        SeenAgent { agent: agent(name), ago_ms }
    }

    fn told(agents: &[Known]) -> Vec<(&str, Standing, Option<&str>)> {
        let told = |known: &Known| (known.status.agent.name.clone(), known.standing);
        agents
            .iter()
            .inspect(|known| assert_eq!(told(known).1 == Standing::Available, known.status.available))
            .map(|known| (&*known.status.agent.name, known.standing, known.status.reason.as_deref()))
            .collect()
    }

    const NONE: &str = "no live worker has this agent";
    const NONE_NOW: &str = "no live worker has this agent now; messages wait for one";

    #[test]
    fn one_worker_that_can_is_enough() {
        let directory = Directory::new(vec![agent("z"), agent("lonely")], Duration::ZERO, true);
        let workers = [worker(&[("z", false), ("b", false)]), worker(&[("z", true), ("a", true)])];
        let all = directory.merge(&workers, &[], 0, false);
        assert_eq!(
            told(&all),
            [
                ("z", Standing::Available, None),
                ("lonely", Standing::Gone, Some(NONE)),
                ("a", Standing::Available, None),
                ("b", Standing::Refused, Some("no key")),
            ]
        );
    }

    #[test]
    fn an_agent_that_was_seen_lately_waits_for_a_worker() {
        let earlier = [seen("b", 10), seen("z", 10), seen("old", 1_000), seen("refused", 10)];
        let live = [worker(&[("refused", false)])];
        let directory = Directory::new(vec![agent("z"), agent("new")], Duration::ZERO, true);
        assert_eq!(
            told(&directory.merge(&live, &earlier, 1_000, false)),
            [
                ("z", Standing::Waiting, Some(NONE_NOW)),
                ("new", Standing::Gone, Some(NONE)),
                ("b", Standing::Waiting, Some(NONE_NOW)),
                ("old", Standing::Gone, Some(NONE)),
                ("refused", Standing::Refused, Some("no key")),
            ]
        );
        // Where the worker is this process, what is not configured is no agent.
        let directory = Directory { workers_elsewhere: false, ..directory };
        assert_eq!(
            told(&directory.merge(&[], &earlier, 1_000, true)),
            [("z", Standing::Waiting, Some(NONE_NOW)), ("new", Standing::Waiting, Some(NONE_NOW))]
        );
    }
}
