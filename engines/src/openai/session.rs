//! A session: the loop of model calls that is a turn.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::answer::Answer;
use super::call::{Call, Step};
use super::protocol::{self, Message};
use super::provider::Provider;
use super::stream::Reading;
use super::usage;
use crate::contract::{EngineError, EngineEvent, EngineSession, TurnDone, TurnInput, Usage};

pub(super) struct Session {
    provider: Arc<Provider>,
    model: Arc<str>,
    /// The running turn. It lives here and not in the future that `next` returns, so that one can be dropped.
    turn: Option<BoxStream<'static, EngineEvent>>,
    was_interrupted: bool,
}

impl Session {
    pub(super) fn new(provider: Arc<Provider>, model: Arc<str>) -> Self {
        Self { provider, model, turn: None, was_interrupted: false }
    }
}

#[async_trait]
impl EngineSession for Session {
    async fn send(&mut self, input: TurnInput) -> Result<(), EngineError> {
        if self.turn.is_some() || self.was_interrupted {
            return Err(EngineError::Unavailable("a turn is already running in this session".to_owned()));
        }
        if input.messages.is_empty() {
            return Err(EngineError::Unavailable("a turn needs a message to answer".to_owned()));
        }
        let turn = Turn::new(Arc::clone(&self.provider), Arc::clone(&self.model), protocol::context(input));
        self.turn = Some(
            stream::unfold(Box::new(turn), |mut turn| async {
                let event = turn.next().await?;
                Some((event, turn))
            })
            .boxed(),
        );
        Ok(())
    }

    async fn next(&mut self) -> EngineEvent {
        if std::mem::take(&mut self.was_interrupted) {
            return EngineEvent::Interrupted;
        }
        if let Some(turn) = &mut self.turn
            && let Some(event) = turn.next().await
        {
            if event.ends_turn() {
                self.turn = None;
            }
            return event;
        }
        std::future::pending().await
    }

    async fn interrupt(&mut self) {
        // Dropping the turn closes its connection, by which a server knows that it can stop.
        self.was_interrupted |= self.turn.take().is_some();
    }

    async fn close(self: Box<Self>, _: Duration) {}
}

/// A turn: model calls until one calls no tools.
struct Turn {
    provider: Arc<Provider>,
    state: State,
    done: TurnDone,
}

enum State {
    Calling(Box<Call>),
    /// The answer was given; the body of the last call may have an end still to come.
    Answered(Option<Box<Reading>>),
    Over,
}

impl Turn {
    fn new(provider: Arc<Provider>, model: Arc<str>, messages: Vec<Message>) -> Self {
        let call = Call::new(Arc::clone(&provider), model, messages.into());
        Self { provider, state: State::Calling(Box::new(call)), done: TurnDone::default() }
    }

    async fn next(&mut self) -> Option<EngineEvent> {
        match &mut self.state {
            State::Calling(call) => match call.next().await {
                Step::Event(event) => Some(event),
                Step::Answered(answer, rest) => Some(self.answered(answer, rest)),
                Step::Failed(error) => Some(self.failed(error)),
            },
            State::Answered(rest) => {
                if let Some(rest) = rest.take() {
                    rest.finish().await;
                }
                self.state = State::Over;
                Some(EngineEvent::TurnDone(self.done))
            }
            State::Over => None,
        }
    }

    fn answered(&mut self, answer: Answer, rest: Option<Box<Reading>>) -> EngineEvent {
        if answer.calls_tools() {
            return self.failed(EngineError::Provider {
                status: None,
                retry_after: None,
                detail: "the model called a tool, although it was offered none".to_owned(),
            });
        }
        let message = answer.into_message(&self.provider);
        self.count(message.usage);
        self.state = State::Answered(rest);
        EngineEvent::MessageDone(message)
    }

    fn count(&mut self, usage: Usage) {
        self.done.usage = if self.done.iterations == 0 { usage } else { usage::sum(self.done.usage, usage) };
        self.done.iterations += 1;
    }

    fn failed(&mut self, error: EngineError) -> EngineEvent {
        self.state = State::Over;
        EngineEvent::Failed(error)
    }
}
