//! The engines that a promise has to hold on, and agents of theirs that are otherwise alike.

use roundhouse_oracle::RecordedRequest;
use serde_json::Value;

use super::{Deployment, Kind, Options, text, until};

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    OpenAi,
    Claude,
}

impl Engine {
    /// An agent that uses tools unasked.
    pub(crate) const fn agent(self) -> &'static str {
        match self {
            Self::OpenAi => "tooled",
            Self::Claude => "claude",
        }
    }

    /// An agent that asks before it uses a shell.
    pub(crate) const fn asking(self) -> &'static str {
        match self {
            Self::OpenAi => "asking",
            Self::Claude => "claude-asking",
        }
    }

    /// What options a deployment needs for it.
    pub(crate) fn options(self) -> Options {
        Options { claude: self == Self::Claude, ..Options::default() }
    }
}

impl Deployment {
    /// A deployment with agents of an engine.
    pub(crate) async fn of(kind: Kind, engine: Engine) -> Self {
        Self::with(kind, engine.options()).await
    }

    /// Waits until a message that came meanwhile is where the engine looks for it at its next step: in the mailbox, or in
    /// Claude Code's own queue, which its transcript tells of.
    pub(crate) async fn in_reach(&self, engine: Engine, session: &str, message: &str) {
        let client = self.client();
        until("a message to be in the engine's reach", async || {
            let is_there = match engine {
                Engine::OpenAi => client.messages(session).await.contains(&format!("user: {message}")),
                Engine::Claude => {
                    let native = self.native_of(session).await;
                    let entries = self.find_transcript(&native).map(|_| self.entries(&native));
                    entries
                        .iter()
                        .flatten()
                        .any(|entry| entry["operation"] == "enqueue" && entry["content"] == message)
                }
            };
            is_there.then_some(())
        })
        .await;
    }

    /// What the model was shown in the request that it answered last: the texts of people, in order, without what an engine
    /// adds of its own.
    pub(crate) fn told_last(&self) -> Vec<String> {
        let requests = self.oracle.requests();
        users(requests.last().expect("a request"))
    }
}

/// The texts of a request's user messages.
pub(crate) fn users(request: &RecordedRequest) -> Vec<String> {
    let body = request.json();
    let messages = body["messages"].as_array().expect("messages").clone();
    messages
        .iter()
        .filter(|message| message["role"] == "user")
        .flat_map(|message| texts(&message["content"]))
        .collect()
}

fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::Array(parts) => {
            parts.iter().filter(|part| part["type"] == "text").map(|part| text(&part["text"])).collect()
        }
        content => vec![text(content)],
    }
}

/// Stamps a test for the deployments that are named, and for every engine.
macro_rules! on_every_engine {
    ($name:ident: $($kind:ident),+ $(,)?) => {
        mod $name {
            $(
                #[expect(non_snake_case, reason = "named after the deployment")]
                mod $kind {
                    use $crate::support::{Engine, Kind};

                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn openai() {
                        super::super::$name(Kind::$kind, Engine::OpenAi).await;
                    }

                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn claude() {
                        super::super::$name(Kind::$kind, Engine::Claude).await;
                    }
                }
            )+
        }
    };
}
pub(crate) use on_every_engine;
