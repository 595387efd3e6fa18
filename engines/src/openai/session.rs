//! A session: runs one turn at a time, and can be dropped at any point of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::attachments;
use super::host::{self, Line, Reply};
use super::provider::Provider;
use super::turn::{Place, Turn};
use crate::contract::{Answer, EngineError, EngineEvent, EngineSession, InputMessage, TurnInput};

pub(super) struct Session {
    provider: Arc<Provider>,
    place: Place,
    running: Option<Running>,
    was_interrupted: bool,
}

/// The running turn. It lives here and not in the future that `next` returns, so that one can be dropped.
struct Running {
    /// The loop, with its connection and its tool; dropping it ends them. Gives the turn's last event.
    turn: BoxFuture<'static, EngineEvent>,
    line: Line,
    expects: Expects,
}

/// What the turn waits for, as the last event has told.
enum Expects {
    Nothing,
    Proceed,
    Answer(String),
}

impl Session {
    pub(super) fn new(provider: Arc<Provider>, place: Place) -> Self {
        Self { provider, place, running: None, was_interrupted: false }
    }
}

#[async_trait]
impl EngineSession for Session {
    async fn send(&mut self, input: TurnInput) -> Result<(), EngineError> {
        let refused = |reason: &str| Err(EngineError::Unavailable(reason.to_owned()));
        if self.running.is_some() || self.was_interrupted {
            return refused("a turn is already running in this session");
        }
        if input.messages.is_empty() {
            return refused("a turn needs a message to answer");
        }
        if input.context.is_empty() {
            return refused("a turn needs a context to answer from");
        }
        attachments::check(&input.messages)?;
        let (host, line) = host::line();
        let TurnInput { context, earlier, .. } = input;
        let turn = Turn::new(Arc::clone(&self.provider), self.place.clone(), host, context, earlier.as_ref());
        self.running = Some(Running { turn: turn.run().boxed(), line, expects: Expects::Nothing });
        Ok(())
    }

    async fn next(&mut self) -> EngineEvent {
        if std::mem::take(&mut self.was_interrupted) {
            return EngineEvent::Interrupted;
        }
        let Some(Running { turn, line, expects }) = &mut self.running else {
            return std::future::pending().await;
        };
        let event = tokio::select! {
            biased;
            Some(event) = line.events.recv() => event,
            last = turn => last,
        };
        *expects = match &event {
            EngineEvent::Boundary => Expects::Proceed,
            EngineEvent::Asked { id, .. } => Expects::Answer(id.clone()),
            _ => Expects::Nothing,
        };
        if event.ends_turn() {
            self.running = None;
        }
        event
    }

    async fn proceed(&mut self, messages: Vec<InputMessage>) {
        if let Some(Running { line, expects, .. }) = &mut self.running
            && matches!(expects, Expects::Proceed)
        {
            *expects = Expects::Nothing;
            let _ = line.replies.send(Reply::Proceed(messages));
        }
    }

    async fn answer(&mut self, id: &str, answer: Answer) {
        if let Some(Running { line, expects, .. }) = &mut self.running
            && matches!(expects, Expects::Answer(expected) if expected == id)
        {
            *expects = Expects::Nothing;
            let _ = line.replies.send(Reply::Answer(answer));
        }
    }

    async fn interrupt(&mut self) {
        // Dropping the turn closes its connection, by which a server knows that it can stop, and ends its tool.
        self.was_interrupted |= self.running.take().is_some();
    }

    async fn close(self: Box<Self>, _: Duration) {}
}
