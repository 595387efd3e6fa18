//! One model call: the request, tries until the first token, and the answer as it comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::answer::{Answer, error_event};
use super::conversation::Entry;
use super::failure::Failure;
use super::protocol::Request;
use super::provider::Provider;
use super::retry;
use super::stream::{Item, Reading};
use crate::contract::{EngineError, EngineEvent, Usage};

/// A model call that is under way. Dropping it closes its connection.
pub(super) struct Call {
    provider: Arc<Provider>,
    prompt: Prompt,
    asks_usage: bool,
    /// The request's body, once written.
    body: Option<Bytes>,
    tries: u32,
    state: State,
    answer: Answer,
    /// What an answer that was given up has used.
    spent: Option<Usage>,
    /// What there is to tell before the call goes on.
    ready: VecDeque<EngineEvent>,
    /// Something of the answer was passed on: from then on no try can be taken back.
    has_begun: bool,
}

/// What a model is asked.
pub(super) struct Prompt {
    pub(super) model: Arc<str>,
    pub(super) instructions: Arc<str>,
    pub(super) entries: Arc<Vec<Entry>>,
    pub(super) tools: Option<Arc<RawValue>>,
}

enum State {
    Waiting(Duration),
    Asking,
    Reading(Box<Reading>),
}

/// What [`Call::next`] has come to.
pub(super) enum Step {
    /// Something to tell; the call goes on.
    Event(EngineEvent),
    /// The call is over; the body may have an end that is still to come.
    Answered(Answer, Option<Box<Reading>>),
    /// The call is over.
    Failed(EngineError),
    /// The call is over, since the context was too long; nothing of an answer came.
    Overflowed(EngineError),
}

impl Call {
    pub(super) fn new(provider: Arc<Provider>, prompt: Prompt) -> Self {
        Self {
            asks_usage: !provider.refuses_usage(),
            provider,
            prompt,
            body: None,
            tries: 0,
            state: State::Asking,
            answer: Answer::default(),
            spent: None,
            ready: VecDeque::new(),
            has_begun: false,
        }
    }

    /// Goes on to the next thing to tell. Not to be called again once the call is over.
    pub(super) async fn next(&mut self) -> Step {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.has_begun = true;
                return Step::Event(event);
            }
            let failure = match &mut self.state {
                State::Waiting(delay) => {
                    sleep(*delay).await;
                    self.state = State::Asking;
                    continue;
                }
                State::Asking => match self.ask().await {
                    Ok(reading) => {
                        self.state = State::Reading(reading);
                        continue;
                    }
                    Err(failure) => failure,
                },
                State::Reading(_) if self.answer.is_done() => return self.answered(),
                State::Reading(reading) => {
                    match read(reading, &mut self.answer, &mut self.ready, &self.provider).await {
                        Ok(Progress::More) => continue,
                        Ok(Progress::End) if self.answer.is_complete() => return self.answered(),
                        Ok(Progress::End) => Failure::truncated(),
                        Err(failure) => failure,
                    }
                }
            };
            return self.failed(failure);
        }
    }

    /// Sends the request until a server takes it; a server that does not know `stream_options` is asked without.
    ///
    /// A server that may not know them is asked without in this call alone: what it refused may have been another thing,
    /// that has passed since, and the usage of one call is less of a loss than that of all.
    async fn ask(&mut self) -> Result<Box<Reading>, Failure> {
        self.tries += 1;
        let mut is_named = false;
        loop {
            let body = self.body()?;
            let limit = self.provider.settings.first_byte_timeout;
            let response = timeout(limit, self.provider.completion(body).send())
                .await
                .map_err(|_| Failure::no_progress(limit))?
                .map_err(|error| Failure::connection("the provider cannot be reached", error))?;
            let status = response.status();
            if status.is_success() {
                if is_page(&response) {
                    return Err(Failure::last("the answer is a web page: is base_url right?"));
                }
                if is_named {
                    self.provider.remember_refused_usage();
                }
                return Ok(Box::new(Reading::new(response, self.provider.settings.idle_timeout)));
            }
            let failure = Failure::rejected(response, &self.provider).await;
            if !self.asks_usage || failure.overflows || !matches!(status.as_u16(), 400 | 422) {
                return Err(failure);
            }
            is_named = failure.names_usage;
            self.asks_usage = false;
            self.body = None;
        }
    }

    fn body(&mut self) -> Result<Bytes, Failure> {
        if let Some(body) = &self.body {
            return Ok(body.clone());
        }
        let request = Request {
            model: &self.prompt.model,
            instructions: &self.prompt.instructions,
            entries: &self.prompt.entries,
            tools: self.prompt.tools.as_deref(),
            asks_usage: self.asks_usage,
            extra: &self.provider.settings.extra_body,
        };
        let body = request.to_bytes().map_err(Failure::lasting)?;
        self.body = Some(body.clone());
        Ok(body)
    }

    /// What the call has used for an answer that came to nothing, told once.
    pub(super) fn take_spent(&mut self) -> Option<Usage> {
        self.spent.take()
    }

    fn failed(&mut self, failure: Failure) -> Step {
        self.spent = std::mem::take(&mut self.answer).usage(&self.provider);
        if failure.overflows && !self.has_begun {
            return Step::Overflowed(failure.error);
        }
        let settings = &self.provider.settings;
        if self.has_begun || !failure.may_retry || self.tries >= settings.max_tries {
            return Step::Failed(failure.error);
        }
        let max = settings.max_retry_delay;
        let delay = match failure.retry_after() {
            Some(delay) => delay.min(max),
            None => retry::backoff(self.tries, settings.retry_delay, max),
        };
        tracing::warn!(attempt = self.tries, ?delay, error = %failure.error, "the model call is tried again");
        self.state = State::Waiting(delay);
        Step::Event(EngineEvent::Retry { attempt: self.tries, delay, status: failure.status() })
    }

    fn answered(&mut self) -> Step {
        let rest = match std::mem::replace(&mut self.state, State::Asking) {
            State::Reading(reading) => Some(reading),
            State::Waiting(_) | State::Asking => None,
        };
        Step::Answered(std::mem::take(&mut self.answer), rest)
    }
}

fn is_page(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

enum Progress {
    More,
    End,
}

/// Reads one item into the answer.
async fn read(
    reading: &mut Reading,
    answer: &mut Answer,
    ready: &mut VecDeque<EngineEvent>,
    provider: &Provider,
) -> Result<Progress, Failure> {
    match reading.next(answer.is_complete()).await? {
        Item::Event => answer.take(reading.data(), ready, provider)?,
        Item::ErrorEvent => return Err(error_event(reading.data(), provider)),
        Item::Json => answer.take_body(reading.data(), ready, provider)?,
        Item::Rest => {
            // Half an event is no news beside the end of the stream, which tells whether the answer was cut off.
            if let Err(failure) = answer.take(reading.data(), ready, provider)
                && failure.status().is_some()
            {
                return Err(failure);
            }
        }
        Item::End => return Ok(Progress::End),
    }
    Ok(Progress::More)
}
