//! A turn: model calls, each with the tools that it calls, until one calls none.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::attachments;
use super::call::{Answered, Call, Prompt, Step};
use super::compaction::Compaction;
use super::conversation::{Conversation, Tokens};
use super::execution;
use super::host::Host;
use super::opaque::Maker;
use super::provider::Provider;
use super::refusals::{self, RefusedEntries};
use super::spending::Spending;
use super::stream::Reading;
use super::toolbox::{self, Toolbox};
use crate::contract::{AssistantMessage, ContextMessage, Earlier, EngineError, EngineEvent, ToolCall, Usage};
use crate::permissions::Gate;

/// Where and for whom turns run.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) model: Arc<str>,
    pub(super) cwd: PathBuf,
    /// The name under which tools start processes.
    pub(super) owner: String,
    /// What decides about the session's calls.
    pub(super) gate: Arc<Gate>,
}

pub(super) struct Turn {
    pub(super) provider: Arc<Provider>,
    pub(super) place: Place,
    pub(super) host: Host,
    pub(super) toolbox: Toolbox,
    pub(super) conversation: Conversation,
    pub(super) spending: Spending,
    pub(super) compaction: Compaction,
    /// Whose messages the model's are.
    maker: Maker,
    /// How many messages with calls were cut short, one after the other.
    pub(super) cuts: u32,
    instructions: Arc<str>,
    /// The tools as the request has them.
    tools: Option<Arc<RawValue>>,
}

/// Why a model call brought no answer.
pub(super) enum CallError {
    /// The context was too long.
    Overflow(EngineError),
    Other(EngineError),
}

impl Turn {
    pub(super) fn new(
        provider: Arc<Provider>,
        place: Place,
        host: Host,
        context: Vec<ContextMessage>,
        earlier: Option<&Earlier>,
    ) -> Self {
        let maker = provider.maker(&place.model);
        Self {
            place,
            host,
            tools: None,
            toolbox: Toolbox::default(),
            conversation: Conversation::new(context, &maker),
            maker,
            cuts: 0,
            spending: Spending::after(earlier),
            compaction: Compaction::default(),
            instructions: provider.settings.instructions.as_str().into(),
            provider,
        }
    }

    /// Runs the turn and gives its last event.
    pub(super) async fn run(mut self) -> EngineEvent {
        match self.answer().await {
            Ok(()) => EngineEvent::TurnDone(self.spending.done()),
            Err(error) => EngineEvent::Failed(error),
        }
    }

    async fn answer(&mut self) -> Result<(), EngineError> {
        self.toolbox = Toolbox::of(&self.provider.settings).await;
        self.tools = self.toolbox.list()?;
        for call in self.conversation.take_open() {
            self.use_tool(call).await;
        }
        loop {
            self.spending.check(&self.provider.settings)?;
            self.compact_in_time().await?;
            self.spending.check(&self.provider.settings)?;
            // The first model call of a turn, also where it is made anew, is about what the turn began with.
            if self.spending.iterations() > 0 {
                let messages = self.host.boundary().await;
                attachments::check(&messages)?;
                self.conversation.add_input(messages);
            }
            let (message, rest) = self.iterate().await?;
            let (calls, truncated) = (message.tool_calls.clone(), message.truncated);
            self.host.tell(EngineEvent::MessageDone(message)).await;
            if let Some(rest) = rest {
                rest.finish().await;
            }
            if calls.is_empty() {
                return Ok(());
            }
            if let Some(why) = truncated {
                self.leave_cut_calls(calls, why).await?;
                continue;
            }
            self.cuts = 0;
            for call in calls {
                self.use_tool(call).await;
            }
        }
    }

    /// One model call, with a shorter context where the first was too long.
    async fn iterate(&mut self) -> Result<(AssistantMessage, Option<Box<Reading>>), EngineError> {
        let Answered { answer, truncated, rest } = match self.call(self.prompt(), true).await {
            Err(CallError::Overflow(error)) => {
                self.compact_after(error).await?;
                self.call(self.prompt(), true).await.map_err(CallError::into_last)?
            }
            other => other.map_err(CallError::into_last)?,
        };
        // Where the tools are only away, it is told to the model like any call of a tool that is not there.
        let has_tools = !self.toolbox.is_empty() || !self.provider.settings.sources.is_empty();
        if answer.calls_tools() && !has_tools {
            self.spend(answer.usage(&self.provider).unwrap_or_default()).await;
            return Err(EngineError::Provider {
                status: None,
                retry_after: None,
                detail: "the model called a tool, although it was offered none".to_owned(),
            });
        }
        let message = answer.into_message(truncated, &self.maker, &self.provider, self.conversation.ids());
        self.spending.add_iteration(message.usage);
        self.conversation.add_answer(&message, &self.maker);
        Ok((message, rest))
    }

    fn prompt(&self) -> Prompt {
        Prompt {
            model: Arc::clone(&self.place.model),
            instructions: Arc::clone(&self.instructions),
            entries: self.conversation.entries(),
            tools: self.tools.clone(),
        }
    }

    /// About how many tokens the next model call has.
    pub(super) fn tokens(&self) -> Tokens {
        self.conversation.tokens(self.tokens_around())
    }

    /// About how many of them are not in messages.
    pub(super) fn tokens_around(&self) -> Tokens {
        Tokens::of(&self.instructions) + toolbox::tokens(self.tools.as_deref())
    }

    /// Makes a model call. What it says is told as it comes, if it is for the one who asked.
    pub(super) async fn call(&mut self, prompt: Prompt, is_answer: bool) -> Result<Answered, CallError> {
        let mut call = Box::new(Call::new(Arc::clone(&self.provider), prompt));
        loop {
            let step = call.next().await;
            if let Some(usage) = call.take_spent() {
                self.spend(usage).await;
            }
            match step {
                Step::Event(event) => {
                    if is_answer || matches!(event, EngineEvent::Retry { .. }) {
                        self.host.tell(event).await;
                    }
                }
                Step::Answered(answered) => return Ok(answered),
                Step::Refused(refused) => {
                    // A summary is made from a text of ours, not from the messages themselves.
                    if is_answer {
                        self.tell_refused(&refused).await;
                    }
                    return Err(CallError::Other(refused.error));
                }
                Step::Failed(error) => return Err(CallError::Other(error)),
                Step::Overflowed(error) => return Err(CallError::Overflow(error)),
            }
        }
    }

    /// Has a refusal stored, so that the next turn goes without what was refused.
    async fn tell_refused(&self, refused: &RefusedEntries) {
        for at in refused.entries.iter().filter_map(|entry| self.conversation.place(*entry)) {
            if let Some(opaque) = refusals::record(refused.what, &self.maker) {
                self.host.tell(EngineEvent::Refused { at, opaque }).await;
            }
        }
    }

    /// Counts a model call that brought nothing to keep.
    pub(super) async fn spend(&mut self, usage: Usage) {
        if usage != Usage::default() {
            self.spending.add(usage);
            self.host.tell(EngineEvent::Spent(usage)).await;
        }
    }

    async fn use_tool(&mut self, call: ToolCall) {
        let outcome =
            execution::run(&call, &self.toolbox, &self.provider.settings, &self.place, &mut self.host).await;
        let ToolCall { id, name, .. } = call;
        self.conversation.add_result(&id, outcome.text.clone());
        let done =
            EngineEvent::ToolDone { id, name, success: outcome.success, result: outcome.text, anchor: None };
        self.host.tell(done).await;
    }
}

impl CallError {
    /// The error, if there is no other way.
    pub(super) fn into_last(self) -> EngineError {
        match self {
            Self::Overflow(error) => does_not_fit(error, ""),
            Self::Other(error) => error,
        }
    }
}

/// Says that the context is too long, with the words of the one who found that.
pub(super) fn does_not_fit(error: EngineError, beside: &str) -> EngineError {
    match error {
        EngineError::Provider { status, retry_after, detail } => EngineError::Provider {
            status,
            retry_after,
            detail: format!("the conversation is too long for the model{beside}: {detail}"),
        },
        other => other,
    }
}
