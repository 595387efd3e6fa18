//! Trims, forks and resets as a client asks for them, and what an agent remembers.

use serde_json::{Value, json};

use super::{Answer, Client, text};

impl Client {
    /// A session that was told `X = 5`, `add 1 to x` and `add 5 to x`, and so is at 11.
    pub(crate) async fn counted_to_eleven(&self, agent: &str) -> String {
        let session = self.session_with(agent).await;
        for message in ["X = 5", "add 1 to x", "add 5 to x"] {
            self.says(agent, &session, message).await;
        }
        session
    }

    /// What an agent answers.
    pub(crate) async fn says(&self, agent: &str, session: &str, message: &str) -> String {
        let answer = self.chat_with(agent, Some(session), message).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        text(&answer.json()["content"])
    }

    pub(crate) async fn x(&self, session: &str) -> String {
        self.says("oracle", session, "what is x").await
    }

    /// The id of the message with this text.
    pub(crate) async fn id_of(&self, session: &str, content: &str) -> i64 {
        let messages = self.items(&format!("/sessions/{session}/messages?limit=200")).await;
        let found = messages.iter().find(|message| message["content"] == content);
        found.unwrap_or_else(|| panic!("no {content:?} in {messages:?}"))["id"].as_i64().unwrap()
    }

    /// The id of the model's message with this text.
    pub(crate) async fn said(&self, session: &str, content: &str) -> i64 {
        let messages = self.items(&format!("/sessions/{session}/messages?limit=200")).await;
        let is_it = |message: &&Value| message["role"] == "assistant" && message["content"] == content;
        messages.iter().find(is_it).unwrap_or_else(|| panic!("no {content:?}"))["id"].as_i64().unwrap()
    }

    /// Trims behind a message, by Claude Code's own copy of its conversation; returns what was done.
    pub(crate) async fn trim_natively(&self, session: &str, at: i64) -> Value {
        let answer = self.trim(session, at).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.json()["claudeForked"], true, "{}", answer.body);
        assert_eq!(answer.json()["contextSource"], "native", "{}", answer.body);
        answer.json()
    }

    /// Forks behind a message in the same way; returns the new session.
    pub(crate) async fn fork_natively(&self, session: &str, at: i64) -> String {
        let answer = self.fork(session, &json!({ "upToMessageId": at, "requireAnchor": true })).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        assert_eq!(answer.json()["claudeForked"], true, "{}", answer.body);
        assert_eq!(answer.json()["contextSource"], "native", "{}", answer.body);
        text(&answer.json()["sessionId"])
    }

    pub(crate) async fn trim(&self, session: &str, at: i64) -> Answer {
        self.send(self.request("DELETE", &format!("/sessions/{session}/messages?after={at}"))).await
    }

    pub(crate) async fn trim_at(&self, session: &str, content: &str) -> Value {
        let answer = self.trim(session, self.id_of(session, content).await).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    pub(crate) async fn fork(&self, session: &str, body: &Value) -> Answer {
        self.post(&format!("/sessions/{session}/fork"), body).await
    }

    pub(crate) async fn fork_at(&self, session: &str, content: &str) -> String {
        let at = self.id_of(session, content).await;
        let answer = self.fork(session, &json!({ "upToMessageId": at })).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        text(&answer.json()["sessionId"])
    }

    pub(crate) async fn reset(&self, session: &str) -> Answer {
        self.send(self.request("POST", &format!("/sessions/{session}/reset"))).await
    }

    /// A session's counters are those of its list.
    pub(crate) async fn counts(&self, session: &str) -> Vec<String> {
        let messages = self.messages(session).await;
        let row = self.session(session).await;
        let last = self.items(&format!("/sessions/{session}/messages?limit=200")).await.pop();
        assert_eq!(row["messageCount"], messages.len(), "{messages:?}");
        assert_eq!(row["lastMessageId"], last.map_or(Value::Null, |last| last["id"].clone()));
        messages
    }
}
