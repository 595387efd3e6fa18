//! `roundhouse up`: everything in one process.

use std::fmt::Write;
use std::net::SocketAddr;

use futures::future::join_all;
use roundhouse_shared::domain::Agent;

use crate::agents::Built;
use crate::config::Loaded;
use crate::terminal::say;
use crate::wiring::{Foundation, StartError, build, migrate};

pub(super) async fn run(loaded: Loaded) -> Result<(), StartError> {
    let configured = !loaded.config.agents.is_empty();
    let foundation = Foundation::open(loaded).await?;
    migrate(&foundation.store).await?;
    let (listener, address) = foundation.listen().await?;
    // Held until the process ends.
    let (agents, _oracle) = build(foundation.agents().await, configured).await?;
    let worker = foundation.worker(&agents).await?;
    foundation.lifecycle.spawn_vital("worker", worker.run());
    let app = foundation.app(agents.iter().map(|built| built.agent.clone()).collect());
    foundation.lifecycle.spawn_vital("api", roundhouse_api::serve(listener, app));
    say(&format!("Roundhouse {} listens on http://{address}", env!("CARGO_PKG_VERSION")));
    let greeting = agents_that_run(agents, address);
    foundation.lifecycle.spawn(async move { say(&greeting.await) });
    foundation.run().await
}

/// What there is, and how to try it.
async fn agents_that_run(agents: Vec<Built>, address: SocketAddr) -> String {
    let asked = agents.iter().map(|built| async {
        match &built.engine {
            Ok(engine) => engine.available().await.map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        }
    });
    let states = join_all(asked).await;
    let agents: Vec<_> = agents.into_iter().map(|built| built.agent).zip(states).collect();
    greeting(&agents, address)
}

fn greeting(agents: &[(Agent, Result<(), String>)], address: SocketAddr) -> String {
    let width = agents.iter().map(|(agent, _)| agent.name.len()).max().unwrap_or_default();
    let mut text = "Agents:".to_owned();
    for (agent, state) in agents {
        let model = agent.model.as_deref().unwrap_or("-");
        let _ = write!(text, "\n  {:width$}  {}  {model}", agent.name, agent.engine);
        if agent.demo {
            text.push_str("  (a demonstration: answers by rule, not by a model)");
        }
        if let Err(reason) = state {
            let _ = write!(text, "  not available: {reason}");
        }
    }
    if let Some((agent, _)) = agents.iter().find(|(_, state)| state.is_ok()) {
        let message = if agent.demo { "say hello" } else { "Say hello." };
        let _ = write!(
            text,
            "\nTry:\n  curl http://{address}/agents/{}/chat -H 'content-type: application/json' -d '{{\"message\": \"{message}\"}}'",
            agent.name,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use roundhouse_shared::domain::EngineKind;

    use super::*;

    fn agent(name: &str, demo: bool) -> Agent {
        Agent { name: name.to_owned(), engine: EngineKind::OpenAi, model: Some("m".to_owned()), demo }
    }

    #[test]
    fn the_greeting_names_the_agents_and_a_line_to_try() {
        let agents =
            [(agent("assistant", false), Err("nobody is there".to_owned())), (agent("demo", true), Ok(()))];

        let text = greeting(&agents, SocketAddr::from(([127, 0, 0, 1], 7700)));

        assert_eq!(
            text,
            "Agents:\n  assistant  openai  m  not available: nobody is there\n  demo       openai  m  (a demonstration: \
             answers by rule, not by a model)\nTry:\n  curl http://127.0.0.1:7700/agents/demo/chat -H 'content-type: \
             application/json' -d '{\"message\": \"say hello\"}'"
        );
    }
}
