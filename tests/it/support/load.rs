//! Callers while something goes wrong: each has a session of its own, says one thing after another, and knows what it
//! will hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use roundhouse_oracle::most_at_once;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Answer, Client, Deployment, newest, note, until};

/// How a caller wants its answer.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Waits for it as JSON.
    Json,
    /// Listens to its events.
    Events,
    /// Leaves, and asks for it at another process.
    Later,
}

const WAYS: [Way; 3] = [Way::Json, Way::Events, Way::Later];

/// Callers that go on until they are told to stop.
pub(crate) struct Load {
    stop: CancellationToken,
    callers: JoinSet<Talk>,
    answered: Arc<[AtomicUsize]>,
}

/// What one caller has said, all of it answered.
#[derive(Debug, Default)]
struct Talk {
    session: Option<String>,
    said: Vec<Said>,
}

#[derive(Debug)]
struct Said {
    text: String,
    answer: String,
    job: String,
}

/// What an answer took.
#[derive(Debug)]
pub(crate) struct Effort {
    /// The attempt that succeeded.
    pub(crate) attempt: usize,
    /// How often a model was asked.
    pub(crate) requests: usize,
}

impl Effort {
    /// Whether it was done at the first try.
    pub(crate) const fn is_single(&self) -> bool {
        self.attempt == 1 && self.requests == 1
    }
}

/// What every caller does.
#[derive(Clone)]
struct Manner {
    clients: Vec<Client>,
    /// Words before each message, for the oracle.
    pace: &'static str,
    /// Refusals after which the same request is sent again.
    patience: &'static [&'static str],
}

impl Load {
    /// Starts so many callers, who talk to all processes in turn, in all ways.
    pub(crate) fn start(
        deployment: &Deployment,
        callers: usize,
        pace: &'static str,
        patience: &'static [&'static str],
    ) -> Self {
        let manner = Manner { clients: deployment.live_clients().cloned().collect(), pace, patience };
        let stop = CancellationToken::new();
        let answered: Arc<[AtomicUsize]> = (0..callers).map(|_| AtomicUsize::new(0)).collect();
        let callers = (0..callers).map(|n| manner.clone().talk(n, stop.clone(), answered.clone())).collect();
        Self { stop, callers, answered }
    }

    /// Waits until every caller got an answer to something that it said after this was called.
    pub(crate) async fn goes_on(&self) {
        let counts = || self.answered.iter().map(|count| count.load(Ordering::Relaxed));
        // The next answer may be to something that was said before.
        let wanted: Vec<_> = counts().map(|count| count + 2).collect();
        until("every caller to go on", async || {
            counts().zip(&wanted).all(|(now, wanted)| *wanted <= now).then_some(())
        })
        .await;
    }

    /// Lets the callers stop and checks what is left of their talks: every message once, in order and answered; one
    /// outcome for every job; no two turns of a session at once.
    pub(crate) async fn end(self, deployment: &Deployment) -> Vec<Effort> {
        self.stop.cancel();
        let mut efforts = Vec::new();
        for talk in self.callers.join_all().await {
            efforts.extend(talk.check(deployment).await);
        }
        note(&format!("{} messages", efforts.len()));
        efforts
    }
}

impl Manner {
    async fn talk(self, n: usize, stop: CancellationToken, answered: Arc<[AtomicUsize]>) -> Talk {
        let mut talk = Talk::default();
        let mut i = 0;
        while !stop.is_cancelled() {
            let way = WAYS[(n + i / self.clients.len()) % WAYS.len()];
            let (text, answer) = (format!("{} say c{n}-m{i}", self.pace), format!("c{n}-m{i}"));
            let result = self.say(n + i, way, talk.session.as_deref(), &text).await;
            assert_eq!(result["content"], answer, "{way:?}: {result}");
            talk.session = result["sessionId"].as_str().map(str::to_owned);
            talk.said.push(Said { text, answer, job: result["jobId"].as_str().unwrap().to_owned() });
            answered[n].fetch_add(1, Ordering::Relaxed);
            i += 1;
        }
        talk
    }

    /// Says something; returns the result.
    async fn say(&self, n: usize, way: Way, session: Option<&str>, text: &str) -> Value {
        let client = &self.clients[n % self.clients.len()];
        let key = uuid::Uuid::now_v7().to_string();
        let answer = until("a request that is not refused", async || {
            let body = match session {
                Some(session) => json!({ "message": text, "sessionId": session }),
                None => json!({ "message": text }),
            };
            let request = client.request("POST", "/agents/oracle/chat").header("idempotency-key", &key);
            let request = match way {
                Way::Json => request,
                Way::Events => request.header("accept", "text/event-stream"),
                Way::Later => request.header("prefer", "respond-async"),
            };
            let answer = client.send(request.json(&body)).await;
            if 400 <= answer.status {
                assert!(self.patience.contains(&&*answer.code()), "{way:?}: {}", answer.body);
                return None;
            }
            Some(answer)
        })
        .await;
        match way {
            Way::Json => told(&answer),
            Way::Events => done(&answer),
            Way::Later => {
                assert_eq!(answer.status, 202, "{}", answer.body);
                let other = &self.clients[(n + 1) % self.clients.len()];
                other.ended(answer.json()["jobId"].as_str().unwrap()).await["result"].clone()
            }
        }
    }
}

fn told(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// The result that a stream ended with, and nothing else.
fn done(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let events = answer.events();
    let ends: Vec<_> = events.iter().filter(|event| ["done", "error"].contains(&&*event.name)).collect();
    assert_eq!((ends.len(), events.last()), (1, ends.first().copied()), "{}", answer.body);
    ends[0].data.clone()
}

impl Talk {
    async fn check(self, deployment: &Deployment) -> Vec<Effort> {
        let client = deployment.live_clients().last().unwrap();
        let session = self.session.expect("a session");
        let lines = self
            .said
            .iter()
            .flat_map(|said| [format!("user: {}", said.text), format!("assistant: {}", said.answer)]);
        assert_eq!(client.messages(&session).await, lines.collect::<Vec<_>>());

        let jobs = client.items(&format!("/jobs?sessionId={session}&limit=200")).await;
        assert_eq!(jobs.len(), self.said.len(), "{jobs:?}");
        let requests = deployment.requests_of(&self.said[0].text);
        assert!(most_at_once(&requests) <= 1, "two turns of {session} ran at once");
        let mut efforts = Vec::new();
        for said in &self.said {
            let job = jobs.iter().find(|job| job["id"] == *said.job).expect("the job that was answered");
            assert_eq!((&job["state"], &job["problem"]), (&json!("succeeded"), &Value::Null), "{job}");
            assert_eq!(job["result"]["content"], said.answer, "{job}");
            let requests = requests.iter().filter(|request| newest(request) == said.text).count();
            let attempt = usize::try_from(job["attempt"].as_u64().unwrap()).unwrap();
            assert!(0 < requests, "{job}");
            efforts.push(Effort { attempt, requests });
        }
        efforts
    }
}
