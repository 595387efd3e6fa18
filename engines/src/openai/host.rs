//! The line between a running turn and whoever runs the engine.

use serde_json::Value;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::contract::{Answer, Asked, EngineEvent, InputMessage};

/// What a turn is told.
#[derive(Debug)]
pub(super) enum Reply {
    Proceed(Vec<InputMessage>),
    Answer(Answer),
}

/// The turn's end of the line.
pub(super) struct Host {
    events: mpsc::Sender<EngineEvent>,
    replies: mpsc::UnboundedReceiver<Reply>,
}

/// The other end.
pub(super) struct Line {
    pub(super) events: mpsc::Receiver<EngineEvent>,
    pub(super) replies: mpsc::UnboundedSender<Reply>,
}

pub(super) fn line() -> (Host, Line) {
    let (told, events) = mpsc::channel(1);
    let (replies, heard) = mpsc::unbounded_channel();
    (Host { events: told, replies: heard }, Line { events, replies })
}

impl Host {
    /// Tells of an event, and returns once it was taken and the next one is asked for.
    pub(super) async fn tell(&self, event: EngineEvent) {
        // Without a listener the turn is about to be dropped.
        if self.events.send(event).await.is_ok() {
            let _ = self.events.reserve().await;
        }
    }

    /// Stands at a boundary until there is leave to go on.
    pub(super) async fn boundary(&mut self) -> Vec<InputMessage> {
        self.tell(EngineEvent::Boundary).await;
        loop {
            if let Reply::Proceed(messages) = self.reply().await {
                return messages;
            }
        }
    }

    /// Asks and waits for the answer.
    pub(super) async fn ask(&mut self, asked: Asked) -> Answer {
        self.tell(EngineEvent::Asked { id: Uuid::now_v7().to_string(), asked }).await;
        loop {
            if let Reply::Answer(answer) = self.reply().await {
                return answer;
            }
        }
    }

    /// Asks for something that is a text, or why there is none.
    pub(super) async fn ask_for_text(&mut self, asked: Asked) -> Result<String, String> {
        match self.ask(asked).await {
            Answer::Text(text) | Answer::Allow { input: Some(Value::String(text)) } => Ok(text),
            Answer::Given { answers, message } => {
                let answers = (!answers.is_empty()).then(|| Value::Object(answers).to_string());
                let given: Vec<_> = answers.into_iter().chain(message).collect();
                Ok(if given.is_empty() { "(no answer)".to_owned() } else { given.join("\n") })
            }
            Answer::Allow { input: Some(input) } => Ok(input.to_string()),
            Answer::Allow { input: None } => Err("There was no answer.".to_owned()),
            Answer::Deny(reason) => Err(reason),
        }
    }

    async fn reply(&mut self) -> Reply {
        match self.replies.recv().await {
            Some(reply) => reply,
            None => std::future::pending().await,
        }
    }
}
