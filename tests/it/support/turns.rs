//! Turns that last until a test lets them end, and what there is to see of them meanwhile.

use std::pin::pin;
use std::time::Duration;

use roundhouse_oracle::RecordedRequest;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{Answer, Client, Deployment, Events, SseEvent, soon, text};

/// A turn that speaks, and ends when the oracle is told to hurry.
pub(crate) const LONG: &str = "slow 600 count to 12";
/// What it says.
pub(crate) const COUNTED: &str = "1 2 3 4 5 6 7 8 9 10 11 12";

/// A caller in the background.
pub(crate) struct Waiting(AbortOnDropHandle<Result<Answer, reqwest::Error>>);

impl Waiting {
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// The answer; an error where the process went away.
    pub(crate) async fn answer(self) -> Result<Answer, reqwest::Error> {
        soon("a caller's answer", self.0).await.unwrap()
    }

    /// The result, which has to be there.
    pub(crate) async fn result(self) -> Value {
        let answer = self.answer().await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }
}

impl Client {
    /// A session that exists before anything is said in it.
    pub(crate) async fn new_session(&self) -> String {
        let created = self.post("/sessions", &json!({ "agent": "oracle" })).await;
        assert_eq!(created.status, 201, "{}", created.body);
        created.json()["id"].as_str().unwrap().to_owned()
    }

    /// A session at work: its turn has begun to speak.
    pub(crate) async fn at_work(&self) -> (String, Events) {
        let mut events = self.stream(None, LONG).await;
        let session = text(&events.until("message.delta").await.data["sessionId"]);
        (session, events)
    }

    /// A chat that is waited for in the background, as JSON.
    pub(crate) fn chat_waiting(&self, session: &str, message: &str) -> Waiting {
        let body = json!({ "message": message, "sessionId": session });
        self.in_background(self.request("POST", "/agents/oracle/chat").json(&body))
    }

    /// Sends a request, and waits for its answer in the background.
    pub(super) fn in_background(&self, request: reqwest::RequestBuilder) -> Waiting {
        let client = self.clone();
        #[expect(clippy::disallowed_methods, reason = "owned by the handle")]
        let task = tokio::spawn(async move { client.try_send(request).await });
        Waiting(AbortOnDropHandle::new(task))
    }
}

impl Events {
    /// Reads on until this attempt of a turn has begun to speak; returns what came on the way.
    pub(crate) async fn until_it_speaks(&mut self, attempt: u64) -> Vec<SseEvent> {
        let mut seen = Vec::new();
        loop {
            let event = self.next().await.expect("a stream that goes on");
            let speaks = event.name == "message.delta" && event.data["attempt"] == attempt;
            seen.push(event);
            if speaks {
                return seen;
            }
        }
    }
}

impl Deployment {
    /// Lets whatever runs end, again and again until a job has ended; returns the job.
    pub(crate) async fn hurried(&self, job: &str) -> Value {
        let mut ended = pin!(self.client().ended(job));
        loop {
            self.oracle.hurry();
            if let Ok(job) = timeout(Duration::from_millis(100), &mut ended).await {
                return job;
            }
        }
    }

    /// The requests that the oracle was sent for a session, known by a message in it that no other session has.
    pub(crate) fn requests_of(&self, message: &str) -> Vec<RecordedRequest> {
        let has = |request: &RecordedRequest| {
            let body = request.json();
            body["messages"]
                .as_array()
                .is_some_and(|list| list.iter().any(|known| known["content"] == message))
        };
        self.oracle.requests().into_iter().filter(has).collect()
    }
}
