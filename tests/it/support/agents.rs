//! Agents that use tools, and the processes that these start.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::turns::Waiting;
use super::{Answer, Client, Events, SseEvent, text, until};

impl Client {
    fn chat_request(&self, agent: &str, session: Option<&str>, message: &str) -> reqwest::RequestBuilder {
        let body = json!({ "message": message, "sessionId": session });
        self.request("POST", &format!("/agents/{agent}/chat")).json(&body)
    }

    /// A chat with an agent, answered as JSON.
    pub(crate) async fn chat_with(&self, agent: &str, session: Option<&str>, message: &str) -> Answer {
        self.send(self.chat_request(agent, session, message)).await
    }

    /// The same, answered as events.
    pub(crate) async fn stream_with(&self, agent: &str, session: Option<&str>, message: &str) -> Events {
        self.events(self.chat_request(agent, session, message)).await
    }

    /// The same, waited for in the background.
    pub(crate) fn waiting_with(&self, agent: &str, session: &str, message: &str) -> Waiting {
        self.in_background(self.chat_request(agent, Some(session), message))
    }

    /// The same, whose answer is awaited elsewhere: returns the job.
    pub(crate) async fn later_with(&self, agent: &str, session: &str, message: &str) -> Value {
        let request = self.chat_request(agent, Some(session), message).header("prefer", "respond-async");
        let answer = self.send(request).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.json()
    }

    /// A session of an agent, in which nothing was said.
    pub(crate) async fn session_with(&self, agent: &str) -> String {
        let created = self.post("/sessions", &json!({ "agent": agent })).await;
        assert_eq!(created.status, 201, "{}", created.body);
        text(&created.json()["id"])
    }

    /// Waits until a session asks a person something; returns the question.
    pub(crate) async fn asked(&self, session: &str) -> Value {
        let path = format!("/sessions/{session}/interactions");
        until("a question", async || self.items(&path).await.into_iter().next()).await
    }

    /// Answers a question of a session.
    pub(crate) async fn decide(&self, session: &str, question: &Value, answer: &Value) -> Answer {
        let id = text(&question["id"]);
        self.post(&format!("/sessions/{session}/interactions/{id}"), answer).await
    }

    /// Waits until a session asks whether it may call a tool, and has it run this command instead.
    pub(crate) async fn have_it_run(&self, session: &str, command: &str) {
        let question = self.asked(session).await;
        let answer = json!({ "decision": "allow", "updatedInput": { "command": command } });
        let answer = self.decide(session, &question, &answer).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// The sessions that a session has started.
    pub(crate) async fn children_of(&self, session: &str) -> Vec<String> {
        let sessions = self.items("/sessions?limit=200").await;
        let children = sessions.iter().filter(|child| child["parentSessionId"] == *session);
        children.map(|child| text(&child["id"])).collect()
    }

    /// The messages of a session, as the model is shown them in the end: the role of each.
    pub(crate) async fn roles(&self, session: &str) -> Vec<String> {
        let messages = self.items(&format!("/sessions/{session}/messages?limit=200")).await;
        messages.iter().map(|message| text(&message["role"])).collect()
    }
}

/// The names of events, of those that are asked for.
pub(crate) fn names_of<'a>(events: &'a [SseEvent], wanted: &[&str]) -> Vec<&'a str> {
    events.iter().map(|event| event.name.as_str()).filter(|name| wanted.contains(name)).collect()
}

/// A command that runs until it is let go, and says that it has begun.
pub(crate) struct Gate {
    dir: tempfile::TempDir,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command: says this in the end.
    pub(crate) fn command(&self, say: &str) -> String {
        let dir = self.dir.path().display();
        format!("echo begun >> {dir}/log; until [ -e {dir}/open ]; do sleep 0.02; done; echo {say}")
    }

    pub(crate) fn open(&self) {
        fs::write(self.path("open"), "").unwrap();
    }

    /// How often the command has begun.
    pub(crate) fn begun(&self) -> usize {
        fs::read_to_string(self.path("log")).unwrap_or_default().lines().count()
    }
}

/// Processes that sleep for a time that no other process of this machine sleeps for.
pub(crate) struct Sleepers(String);

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self(format!("1000.{:07}", uuid::Uuid::now_v7().as_u128() % 10_000_000))
    }

    /// The command: one that sleeps, and one in a session of its own.
    pub(crate) fn command(&self) -> String {
        format!("setsid sleep {0} & sleep {0}", self.0)
    }

    /// How many live.
    fn count(&self) -> usize {
        let wanted = format!("sleep\0{}\0", self.0);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter(|process| {
                fs::read(process.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes())
            })
            .count()
    }

    /// Waits until so many live.
    pub(crate) async fn are(&self, wanted: usize) {
        until("processes to be there, or gone", async || (self.count() == wanted).then_some(())).await;
    }
}
