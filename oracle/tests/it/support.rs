//! A client, and what the tests read from answers.

use std::{sync::Once, time::Duration};

use reqwest::{Client, Response};
use roundhouse_oracle::Oracle;
use serde_json::{Value, json};

/// Long enough for a loaded machine, and no test waits for it to pass.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) oracle: Oracle,
    pub(crate) client: Client,
}

impl World {
    pub(crate) async fn start() -> World {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let client = Client::builder().timeout(DEADLINE).no_proxy().build().unwrap();
        World { oracle: Oracle::start().await.unwrap(), client }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.oracle.base_url())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.client.post(self.url(path)).json(body).send().await.unwrap()
    }

    pub(crate) async fn json(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body).await;
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        response.json().await.unwrap()
    }

    /// The events of a streamed answer: name (if any) and data.
    pub(crate) async fn events(&self, path: &str, body: &Value) -> Vec<(Option<String>, String)> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let response = self.post(path, &body).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = response.text().await.unwrap();
        assert!(text.ends_with("\n\n"), "{text}");
        text.trim_end().split("\n\n").map(event).collect()
    }

    /// The events of an answer whose events are named by their type.
    pub(crate) async fn typed(&self, path: &str, body: &Value) -> Vec<Value> {
        let read = |(name, data): (Option<String>, String)| {
            let data: Value = serde_json::from_str(&data).unwrap();
            assert_eq!(data["type"].as_str(), name.as_deref());
            data
        };
        self.events(path, body).await.into_iter().map(read).collect()
    }

    pub(crate) async fn stop(self) {
        drop(self.client);
        self.oracle.stop().await;
    }
}

fn event(text: &str) -> (Option<String>, String) {
    match text.split_once('\n') {
        Some((name, data)) => (
            Some(name.strip_prefix("event: ").unwrap().to_owned()),
            data.strip_prefix("data: ").unwrap().to_owned(),
        ),
        None => (None, text.strip_prefix("data: ").unwrap().to_owned()),
    }
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}
