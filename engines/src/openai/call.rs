//! One model call: the request, tries until the first token, and the answer as it comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::answer::Answer;
use super::conversation::Entry;
use super::failure::Failure;
use super::needs::Needs;
use super::protocol::Request;
use super::provider::Provider;
use super::refusals::{self, RefusedEntries};
use super::sent::Sent;
use super::stream::{Item, Reading};
use super::verdict::error_event;
use super::{replay, retry};
use crate::contract::{EngineError, EngineEvent, Truncated, Usage};

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
    /// An answer was empty: the next one that is ends the call.
    was_empty: bool,
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
    /// The call is over.
    Answered(Answered),
    /// The call is over.
    Failed(EngineError),
    /// The call is over, since the provider refuses to read a part of the conversation; nothing of an answer came.
    Refused(RefusedEntries),
    /// The call is over, since the context was too long; nothing of an answer came.
    Overflowed(EngineError),
}

/// An answer that is complete.
pub(super) struct Answered {
    pub(super) answer: Answer,
    /// Why the provider has cut it short, if it has.
    pub(super) truncated: Option<Truncated>,
    /// The body, whose end may still be to come.
    pub(super) rest: Option<Box<Reading>>,
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
            was_empty: false,
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
                State::Reading(reading) => {
                    let next = if self.answer.is_done() {
                        Ok(Progress::End)
                    } else {
                        read(reading, &mut self.answer, &mut self.ready, &self.provider).await
                    };
                    match next {
                        Ok(Progress::More) => continue,
                        Ok(Progress::End) => match self.answer.decide(&self.provider) {
                            Ok(truncated) => return self.answered(truncated),
                            Err(failure) => failure,
                        },
                        Err(failure) => failure,
                    }
                }
            };
            if let Some(step) = self.failed(failure) {
                return step;
            }
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
                .map_err(|_| Failure::no_progress(limit, false))?
                .map_err(|error| Failure::connection("the provider cannot be reached", error))?;
            let status = response.status();
            if status.is_success() {
                if is_page(&response) {
                    return Err(Failure::page());
                }
                if is_named {
                    self.provider.remember_refused_usage();
                }
                return Ok(Box::new(Reading::new(response, self.provider.settings.idle_timeout)));
            }
            let failure = Failure::rejected(response, &self.provider).await;
            if !failure.names_usage && self.is_rewritten_after(&failure) {
                continue;
            }
            let is_about_else = failure.overflows || self.refused(&failure).is_some();
            if !self.asks_usage || is_about_else || !matches!(status.as_u16(), 400 | 422) {
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
        let needs = self.needs();
        let request = Request {
            model: &self.prompt.model,
            messages: &self.prompt.messages(&needs),
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

    fn needs(&self) -> Needs {
        self.provider.learned.needs(self.provider.settings.compat, &self.prompt.model)
    }

    /// Whether a failure has shown how the conversation has to be written otherwise. It is, with the next request.
    fn is_rewritten_after(&mut self, failure: &Failure) -> bool {
        let needs = self.needs();
        let sent = self.prompt.messages(&needs);
        let names = replay::opaque_names(&sent);
        let compat = self.provider.settings.compat;
        let is_rewritten = self.provider.learned.learn(compat, &self.prompt.model, failure, &names);
        if is_rewritten {
            self.body = None;
        }
        is_rewritten
    }

    fn refused(&self, failure: &Failure) -> Option<RefusedEntries> {
        refusals::find(failure, &self.prompt.entries, &self.prompt.messages(&self.needs()))
    }

    /// What a failure comes to; `None`: the call goes on at once.
    fn failed(&mut self, failure: Failure) -> Option<Step> {
        self.spent = std::mem::take(&mut self.answer).usage(&self.provider);
        if failure.overflows {
            let failure = if self.has_begun { failure.saying(too_long) } else { failure };
            let step = if self.has_begun { Step::Failed } else { Step::Overflowed };
            return Some(step(failure.error));
        }
        if !self.has_begun {
            if self.is_rewritten_after(&failure) {
                self.state = State::Asking;
                return None;
            }
            if let Some(refused) = self.refused(&failure) {
                return Some(Step::Refused(refused));
            }
        }
        let settings = &self.provider.settings;
        // Of an empty answer nothing but thinking was told, which another one does not contradict.
        let may_retry = if failure.is_empty {
            !std::mem::replace(&mut self.was_empty, true)
        } else {
            failure.may_retry && !self.has_begun
        };
        if !may_retry || self.tries >= settings.max_tries {
            return Some(Step::Failed(failure.error));
        }
        let max = settings.max_retry_delay;
        let delay = match failure.retry_after() {
            Some(delay) => delay.min(max),
            None => retry::backoff(self.tries, settings.retry_delay, max),
        };
        tracing::warn!(attempt = self.tries, ?delay, error = %failure.error, "the model call is tried again");
        self.state = State::Waiting(delay);
        Some(Step::Event(EngineEvent::Retry { attempt: self.tries, delay, status: failure.status() }))
    }

    fn answered(&mut self, truncated: Option<Truncated>) -> Step {
        let rest = match std::mem::replace(&mut self.state, State::Asking) {
            State::Reading(reading) => Some(reading),
            State::Waiting(_) | State::Asking => None,
        };
        Step::Answered(Answered { answer: std::mem::take(&mut self.answer), truncated, rest })
    }
}

impl Prompt {
    fn messages<'a>(&'a self, needs: &'a Needs) -> Vec<Sent<'a>> {
        replay::messages(&self.instructions, &self.entries, needs)
    }
}

fn too_long(detail: &str) -> String {
    format!("the conversation is too long for the model: {detail}")
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
        Item::Line => answer.take_line(reading.data(), ready, provider)?,
        Item::Json => answer.take_body(reading.data(), ready, provider)?,
        Item::Rest => {
            // Half an event is no news beside the end of the stream, which tells whether the answer was cut off.
            if let Err(failure) = answer.take(reading.data(), ready, provider)
                && failure.is_reported
            {
                return Err(failure);
            }
        }
        Item::End => return Ok(Progress::End),
    }
    if answer.take_progress() {
        reading.progressed();
    }
    Ok(Progress::More)
}
