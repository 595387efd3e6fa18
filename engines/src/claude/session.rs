//! A session: its process, and the turns that run in it.

mod starting;
mod watching;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::command::{Begins, McpFile};
use super::earlier::{self, Continuation};
use super::link::Link;
use super::reading::Reading;
use super::turn::{Command, Ending, Turn};
use super::{Agent, failure, input};
use crate::contract::{
    Answer, AssistantMessage, Earlier, EngineError, EngineEvent, EngineSession, Injected, InputMessage,
    Native, OpenSession, TurnDone, TurnInput,
};

pub(super) struct Session {
    agent: Arc<Agent>,
    spec: OpenSession,
    native: Native,
    link: Option<Link>,
    /// What the end of the process will have told.
    dying: Option<BoxFuture<'static, EngineEvent>>,
    reading: Reading,
    /// The process goes on with a conversation that may have the next messages already.
    has_history: bool,
    /// The uuids that this process has had: another line with one of them it would ignore.
    used: HashSet<String>,
    /// When the CLI was last heard, or got something to do.
    heard: Instant,
    /// What was last heard, for whoever looks for the reason of a silence.
    last: String,
    odd: String,
    ends_by: Option<Instant>,
    /// Until the process has read it: no tool is to find it.
    mcp: Option<McpFile>,
}

impl Session {
    async fn continuation(&mut self, input: TurnInput) -> Result<Continuation, EngineError> {
        let has_history = std::mem::take(&mut self.has_history);
        let Some(earlier) = input.earlier.or(has_history.then(Earlier::default)) else {
            return Ok(Continuation { unsent: input.messages, ..Continuation::default() });
        };
        let (agent, native) = (Arc::clone(&self.agent), self.native.clone());
        let found = super::blocking(move || {
            earlier::look_up(&agent.transcripts, &native, &input.messages, &earlier, &agent.meter())
        })
        .await?;
        self.has_history = found.has_more;
        Ok(found)
    }

    /// Writes a line for these messages, by a uuid that the process does not know yet: the first one's id where it can be.
    fn write_messages(&mut self, messages: &[InputMessage], command: Command) -> String {
        let id = messages.first().map(|message| &message.id);
        let usable = id.filter(|id| Uuid::try_parse(id).is_ok() && !self.used.contains(*id));
        let uuid = usable.cloned().unwrap_or_else(|| Uuid::now_v7().to_string());
        self.used.insert(uuid.clone());
        let line = input::line(&uuid, messages, !self.agent.settings.slash_commands);
        if let Some(link) = &self.link {
            link.write(&line);
        }
        self.reading.wrote(uuid.clone(), command);
        uuid
    }

    fn flush(&mut self) {
        for line in self.reading.replies.drain(..) {
            if let Some(link) = &self.link {
                link.write(&line);
            }
        }
    }
}

#[async_trait]
impl EngineSession for Session {
    fn native_session(&self) -> Option<&str> {
        Some(&self.native.id)
    }

    fn is_warm(&self) -> bool {
        let lives = self.link.as_ref().is_some_and(|link| !link.has_ended());
        lives && !self.reading.has_leftovers && !self.reading.is_running() && self.reading.events.is_empty()
    }

    async fn send(&mut self, mut input: TurnInput) -> Result<(), EngineError> {
        let refused = |reason: &str| Err(EngineError::Unavailable(reason.to_owned()));
        if self.reading.is_running() || !self.reading.events.is_empty() {
            return refused("a turn is already running in this session");
        }
        if input.messages.is_empty() {
            return refused("a turn needs a message to answer");
        }
        let context = std::mem::take(&mut input.context);
        if !context.is_empty() {
            self.seed(context).await?;
        } else if self.link.as_ref().is_none_or(Link::has_ended) {
            // A process that was kept may have ended since: the transcript has to have what it knew.
            let begins = match self.check().await {
                Ok(()) => Begins::Resumed,
                Err(EngineError::ResumeDropped(_)) if self.spec.anchor.is_none() => Begins::New,
                Err(error) => return Err(error),
            };
            self.start(begins).await?;
        }
        let Continuation { events, usage, iterations, delivered, mut unsent, is_open, stopped, .. } =
            self.continuation(input).await?;
        let sent = unsent.iter().map(|message| &message.id);
        let all: Vec<_> = delivered.iter().chain(sent).cloned().collect();
        self.heard = Instant::now();
        self.ends_by = None;
        if !delivered.is_empty() {
            self.reading.events.push_back(EngineEvent::Delivered(delivered));
        }
        self.reading.events.extend(events);

        let mut lines = self.reading.lines_of(|id| all.iter().any(|asked| asked == id));
        unsent.retain(|message| !self.reading.has_message(&message.id));
        let delivers: Vec<_> = unsent.iter().map(|message| message.id.clone()).collect();
        if is_open {
            // Found again by the first message that is sent with it.
            let id = unsent.first().map(|message| message.id.clone()).unwrap_or_default();
            let note = InputMessage { id, text: earlier::note(stopped).to_owned(), attachments: Vec::new() };
            unsent.insert(0, note);
            lines.push(self.write_messages(&unsent, Command { answers: all.clone(), delivers }));
        } else if !unsent.is_empty() {
            let answers = all.iter().filter(|id| !self.reading.has_message(id)).cloned().collect();
            lines.push(self.write_messages(&unsent, Command { answers, delivers }));
        }
        if lines.is_empty() {
            let done = TurnDone { iterations: iterations.max(1), usage, answered: all };
            self.reading.events.push_back(EngineEvent::TurnDone(done));
        } else {
            self.reading.begin(Turn { lines, iterations, usage, ..Turn::default() });
        }
        Ok(())
    }

    async fn next(&mut self) -> EngineEvent {
        loop {
            self.flush();
            if let Some(event) = self.reading.events.pop_front() {
                if event.ends_turn() {
                    self.ends_by = None;
                }
                if let EngineEvent::MessageDone(AssistantMessage { anchor: Some(anchor), .. }) = &event {
                    self.spec.anchor = Some(anchor.clone());
                }
                return event;
            }
            if let Some(dying) = &mut self.dying {
                let event = dying.await;
                self.dying = None;
                self.reading.give_up(event);
                continue;
            }
            if self.reading.decide() {
                continue;
            }
            if !self.reading.is_running() && (self.reading.has_commands() || self.link.is_none()) {
                // What is said now is the next turn's.
                return std::future::pending().await;
            }
            if self.reading.is_ending() && self.ends_by.is_none() {
                self.ends_by = Some(Instant::now() + watching::ENDING);
            }
            let deadline = self.deadline();
            let Some(link) = &mut self.link else {
                // It was lost in a turn before.
                let event = failure::of_exit(None, "", "");
                self.reading.give_up(EngineEvent::Failed(event));
                continue;
            };
            let has_deliveries = self.reading.has_deliveries();
            let silence = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                read = link.read() => match read {
                    Some(read) => self.heard(read),
                    None => self.kill(true),
                },
                () = sleep(watching::TOGETHER), if has_deliveries => self.reading.tell_deliveries(),
                () = silence => self.overdue(),
            }
        }
    }

    async fn proceed(&mut self, _: Vec<InputMessage>) {}

    async fn inject(&mut self, message: InputMessage) -> Injected {
        let lives = self.link.as_ref().is_some_and(|link| !link.has_ended());
        if !lives || !self.reading.is_running() || self.reading.is_ending() {
            return Injected::NotNow;
        }
        if !self.reading.has_message(&message.id) {
            let ids = vec![message.id.clone()];
            self.write_messages(&[message], Command { answers: ids.clone(), delivers: ids });
        }
        Injected::Accepted
    }

    async fn answer(&mut self, id: &str, answer: Answer) {
        self.heard = Instant::now();
        self.reading.answer(id, answer);
        self.flush();
    }

    async fn interrupt(&mut self) {
        self.stop(Ending::Interrupted);
    }

    async fn close(mut self: Box<Self>, grace: Duration) {
        if let Some(dying) = self.dying.take() {
            dying.await;
        }
        if let Some(link) = self.link.take() {
            // An interrupt would be a person's word in the conversation, which goes on elsewhere without one.
            // Nor would it wait for what it does of what it was given for the next turn.
            let is_at_work = self.reading.is_running() || self.reading.has_commands();
            let grace = if is_at_work { Duration::ZERO } else { grace };
            link.close(grace).await;
        }
    }
}
