//! The agents that a process offers: those of the configuration, or, without any, those that it finds.

mod claude;

use std::path::{PathBuf, absolute};
use std::sync::Arc;
use std::time::Duration;

use roundhouse_engines::claude::{ClaudeCli, Settings as ClaudeSettings};
use roundhouse_engines::contract::{Engine, EngineError};
use roundhouse_engines::mcp::Server;
use roundhouse_engines::openai::{self, OpenAi};
use roundhouse_engines::tools::ToolSource;
use roundhouse_shared::domain::{Agent, EngineKind};
use serde::Deserialize;

use crate::config::{ASK_USER, AgentSettings, Config, Environment, SPAWN_AGENT, shown_variable};
use crate::http::{self, HttpError};
use crate::terminal::chain;

/// Where the API is if only a key is set.
const OPENAI_URL: &str = "https://api.openai.com/v1";
/// The model that is asked if neither `OPENAI_MODEL` nor the server names one.
pub(crate) const DEFAULT_MODEL: &str = "gpt-5-mini";
/// The model of the built-in oracle.
const ORACLE_MODEL: &str = "oracle";
/// How long a server may take to say which models it has.
const MODELS_DEADLINE: Duration = Duration::from_secs(3);

/// An agent, and what it takes to run it.
#[derive(Debug, Clone)]
pub(crate) struct Offered {
    pub(crate) name: String,
    pub(crate) runs: Runs,
}

/// What runs an agent.
#[derive(Debug, Clone)]
pub(crate) enum Runs {
    /// An OpenAI-compatible server.
    OpenAi(Box<openai::Settings>),
    /// The oracle in this process.
    Oracle(Box<openai::Settings>),
    /// Claude Code.
    ClaudeCli(Box<ClaudeSettings>),
    /// Nothing: the reason, and the engine and the model that it would have.
    Nothing(String, EngineKind, Option<String>),
}

/// An agent whose engine is made.
pub(crate) struct Built {
    pub(crate) agent: Agent,
    pub(crate) engine: Result<Arc<dyn Engine>, String>,
}

/// The agents of this process. Asks nobody.
pub(crate) fn offered(config: &Config, environment: &Environment) -> Vec<Offered> {
    if config.agents.is_empty() {
        return found(config, environment);
    }
    let agents = config.agents.iter();
    agents
        .map(|(name, agent)| Offered {
            name: name.clone(),
            runs: configured(config, name, agent, environment),
        })
        .collect()
}

fn configured(config: &Config, name: &str, agent: &AgentSettings, environment: &Environment) -> Runs {
    let nothing = |why| {
        let model = Some(agent.model.clone()).filter(|model| !model.is_empty());
        Runs::Nothing(why, agent.engine, model)
    };
    match agent.engine {
        EngineKind::OpenAi => match openai_settings(config, name, agent, environment) {
            Ok(settings) => Runs::OpenAi(Box::new(settings)),
            Err(why) => nothing(why),
        },
        EngineKind::ClaudeCli => match claude::settings(config, agent, environment) {
            Ok(settings) => Runs::ClaudeCli(Box::new(settings)),
            Err(why) => nothing(why),
        },
    }
}

fn openai_settings(
    config: &Config,
    name: &str,
    agent: &AgentSettings,
    environment: &Environment,
) -> Result<openai::Settings, String> {
    let api_key = match &agent.api_key_env {
        None => None,
        Some(name) => {
            let Some(key) = environment.get(name) else {
                let name = shown_variable(name);
                return Err(format!("the environment variable {name}, which holds its key, is not set"));
            };
            Some(openai::Secret::from(key))
        }
    };
    let headers = agent.extra_headers.iter();
    let defaults = engine_defaults(config);
    let tools = agent.builtins().map_err(|why| format!("tools: {why}"))?;
    let servers = agent.mcp_servers().map_err(|why| format!("mcp: {why}"))?;
    let mut sources: Vec<Arc<dyn ToolSource>> = Vec::new();
    if !tools.is_empty() {
        sources.push(Arc::new(tools));
    }
    for server in servers {
        let server = Server::new(server).map_err(|error| format!("mcp: {error}"))?;
        sources.push(Arc::new(server));
    }
    let permissions = agent.engine_permissions().map_err(|why| format!("permissions: {why}"))?;
    // Not everybody: what another agent may do would be what this one may.
    let spawns = || agent.spawn.clone().unwrap_or_else(|| vec![name.to_owned()]);
    Ok(openai::Settings {
        base_url: agent.base_url.clone(),
        api_key,
        model: agent.model.clone(),
        instructions: agent.instructions.clone(),
        prices: agent.prices.map(Into::into),
        extra_headers: headers.map(|(name, value)| (name.clone(), value.reveal().into())).collect(),
        extra_body: agent.extra_body.clone(),
        sources,
        permissions,
        ask_user: agent.has_tool(ASK_USER),
        spawn_agent: agent.has_tool(SPAWN_AGENT).then(spawns).filter(|agents| !agents.is_empty()),
        max_iterations: agent.max_iterations.unwrap_or(defaults.max_iterations),
        max_cost_nanos: agent.max_cost.map(nanos),
        context_window: agent.context_window.map(u64::from),
        compat: agent.compat.unwrap_or_default(),
        max_tries: agent.max_tries.unwrap_or(defaults.max_tries),
        ..defaults
    })
}

/// US dollars as billionths.
#[expect(clippy::cast_possible_truncation, reason = "the configuration is checked to be a sum that fits")]
fn nanos(dollars: f64) -> i64 {
    (dollars * 1e9).round() as i64
}

/// Without any configured agent: the server that the variables of OpenAI's own clients name, Claude Code where it is
/// installed, and the demonstration.
fn found(config: &Config, environment: &Environment) -> Vec<Offered> {
    let mut found = Vec::new();
    let (url, key) = (environment.get("OPENAI_BASE_URL"), environment.get("OPENAI_API_KEY"));
    if url.is_some() || key.is_some() {
        let settings = openai::Settings {
            base_url: url.unwrap_or(OPENAI_URL).to_owned(),
            api_key: key.map(Into::into),
            model: environment.get("OPENAI_MODEL").unwrap_or_default().to_owned(),
            ..engine_defaults(config)
        };
        found.push(Offered { name: "assistant".to_owned(), runs: Runs::OpenAi(Box::new(settings)) });
    }
    if let Some(settings) = claude::found(config, environment) {
        found.push(Offered { name: "claude".to_owned(), runs: Runs::ClaudeCli(Box::new(settings)) });
    }
    let settings = openai::Settings { model: ORACLE_MODEL.to_owned(), ..engine_defaults(config) };
    found.push(Offered { name: "demo".to_owned(), runs: Runs::Oracle(Box::new(settings)) });
    found
}

/// The data directory, which no file tool touches.
fn data_dir(config: &Config) -> PathBuf {
    absolute(&config.data.dir).unwrap_or_else(|_| config.data.dir.clone())
}

fn engine_defaults(config: &Config) -> openai::Settings {
    openai::Settings {
        idle_timeout: config.limits.no_progress.0,
        closed: vec![data_dir(config)],
        ..openai::Settings::default()
    }
}

impl Offered {
    /// The agent as others see it.
    pub(crate) fn agent(&self) -> Agent {
        let (engine, model) = match &self.runs {
            Runs::OpenAi(settings) | Runs::Oracle(settings) => {
                (EngineKind::OpenAi, Some(settings.model.clone()))
            }
            Runs::ClaudeCli(settings) => (EngineKind::ClaudeCli, settings.model.clone()),
            Runs::Nothing(_, engine, model) => (*engine, model.clone()),
        };
        let model = model.filter(|model| !model.is_empty());
        let demo = matches!(self.runs, Runs::Oracle(_));
        Agent { name: self.name.clone(), engine, model, demo }
    }

    /// Makes the engine; `oracle` is the address of the one in this process.
    pub(crate) fn build(self, oracle: Option<&str>) -> Built {
        let agent = self.agent();
        let engine = match self.runs {
            Runs::OpenAi(settings) => engine(*settings),
            Runs::Oracle(settings) => match oracle {
                Some(url) => engine(openai::Settings { base_url: format!("{url}/v1"), ..*settings }),
                None => Err("there is no oracle in this process".to_owned()),
            },
            Runs::ClaudeCli(settings) => match ClaudeCli::new(*settings) {
                Ok(engine) => Ok(Arc::new(engine) as Arc<dyn Engine>),
                Err(error) => Err(reason(error)),
            },
            Runs::Nothing(reason, ..) => Err(reason),
        };
        Built { agent, engine }
    }

    /// Asks for the model, where none is named: the server's first one. `OpenAI` itself has many, so it is not asked.
    pub(crate) async fn find_model(&mut self, environment: &Environment) {
        let Runs::OpenAi(settings) = &mut self.runs else { return };
        if !settings.model.is_empty() {
            return;
        }
        let mut first = None;
        if !settings.base_url.contains("://api.openai.com") {
            let asked = models(&settings.base_url, environment.get("OPENAI_API_KEY"));
            match asked.await {
                Ok(models) => first = models.into_iter().next(),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot ask which models the server has");
                }
            }
        }
        settings.model = first.unwrap_or_else(|| DEFAULT_MODEL.to_owned());
        tracing::info!(agent = self.name, model = settings.model, "OPENAI_MODEL is not set");
    }
}

fn engine(settings: openai::Settings) -> Result<Arc<dyn Engine>, String> {
    match OpenAi::new(settings) {
        Ok(engine) => Ok(Arc::new(engine)),
        Err(error) => Err(reason(error)),
    }
}

/// Why an agent cannot be run, in a sentence.
pub(crate) fn reason(error: EngineError) -> String {
    match error {
        EngineError::Unavailable(reason) => reason,
        error => error.to_string(),
    }
}

/// The models that a server says it has.
async fn models(base_url: &str, key: Option<&str>) -> Result<Vec<String>, HttpError> {
    let url = http::below(&http::url(base_url)?, &["models"])?;
    let mut request = http::client(&url)?.get(url).timeout(MODELS_DEADLINE);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let models: Models = request.send().await?.error_for_status()?.json().await?;
    Ok(models.data.into_iter().map(|model| model.id).collect())
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variables: &Environment) -> Vec<(String, Option<String>, bool)> {
        let offered = offered(&Config::default(), variables);
        let agents = offered.iter().map(Offered::agent);
        agents.map(|agent| (agent.name, agent.model, agent.demo)).collect()
    }

    fn demo() -> (String, Option<String>, bool) {
        ("demo".to_owned(), Some("oracle".to_owned()), true)
    }

    #[test]
    fn without_configuration_there_is_what_the_variables_say_and_the_demonstration() {
        assert_eq!(names(&[("OPENAI_MODEL", "m"), ("OPENAI_BASE_URL", "")].into()), [demo()]);
        let assistant = ("assistant".to_owned(), Some("m".to_owned()), false);
        let found = names(&[("OPENAI_MODEL", "m"), ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")].into());
        assert_eq!(found, [assistant, demo()]);
        let found = names(&[("OPENAI_API_KEY", "k")].into());
        assert_eq!(found, [("assistant".to_owned(), None, false), demo()]);
    }

    #[tokio::test]
    async fn a_server_is_asked_for_its_model() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let oracle = roundhouse_oracle::Oracle::start().await.unwrap();
        let url = format!("{}/v1", oracle.base_url());
        let variables = Environment::from([("OPENAI_BASE_URL", url.as_str())]);
        let mut assistant = offered(&Config::default(), &variables).remove(0);

        assistant.find_model(&variables).await;

        assert_eq!(assistant.agent().model.as_deref(), Some("oracle"));
    }

    #[tokio::test]
    async fn without_an_answer_the_model_is_the_usual_one() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for url in ["http://127.0.0.1:1/v1", "https://api.openai.com/v1", "nonsense"] {
            let variables = Environment::from([("OPENAI_BASE_URL", url)]);
            let mut assistant = offered(&Config::default(), &variables).remove(0);

            assistant.find_model(&variables).await;

            assert_eq!(assistant.agent().model.as_deref(), Some(DEFAULT_MODEL));
        }
    }

    #[test]
    fn a_missing_key_makes_an_agent_unavailable_and_says_why() {
        let agent = toml::from_str(
            "engine = 'openai'\nbase_url = 'http://h/v1'\nmodel = 'm'\napi_key_env = 'MY_KEY'",
        );
        let mut config = Config::default();
        config.agents.insert("a".to_owned(), agent.unwrap());

        let offered = offered(&config, &Environment::default());

        assert_eq!(offered.len(), 1, "no demonstration beside configured agents");
        let reason = offered[0].clone().build(None).engine.err().unwrap();
        assert_eq!(reason, "the environment variable MY_KEY, which holds its key, is not set");
        assert_eq!(offered[0].agent().model.as_deref(), Some("m"));
    }
}
