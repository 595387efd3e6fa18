//! One message and its answer, through broken connections and Ctrl-C.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use tokio::signal::unix::Signal;
use tokio::time::{Instant, sleep, timeout};

use super::lines::Lines;
use super::questions::Questions;
use super::screen::Screen;
use super::server::{ClientError, Event, Events, Server};
use super::tools::Tools;
use super::{member, text};
use crate::terminal::{harmless, is_watched};

/// How long a server may be away before the client gives up.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long to wait before connecting again.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// How long a stream that was taken up again may be silent before the job itself is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A message on its way to its answer.
pub(super) struct Turn<'a> {
    pub(super) server: &'a Server,
    pub(super) screen: &'a mut Screen,
    pub(super) interrupts: &'a mut Signal,
    pub(super) lines: &'a mut Lines,
    /// The same for each try to say the message.
    pub(super) key: String,
    pub(super) session: Option<String>,
    pub(super) job: Option<String>,
    /// The turn that answers.
    pub(super) answering: Option<String>,
    pub(super) last_event: Option<String>,
    pub(super) is_cancelling: bool,
    /// The turn is to be cancelled once the session is known.
    pub(super) owes_cancel: bool,
    pub(super) tools: Tools,
    /// What the agent asks.
    pub(super) questions: Questions,
    /// Whether a line that is typed answers the question that is shown.
    pub(super) takes_answers: bool,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnEnd {
    pub(super) cancelled: bool,
}

/// What an event means for the message.
enum Seen {
    More,
    /// The job may have ended: it has to be looked at.
    Look,
    Answered(TurnEnd),
}

impl Turn<'_> {
    pub(super) async fn run(&mut self, agent: &str, message: String) -> Result<TurnEnd, ClientError> {
        let ended = self.ask(agent, &message).await;
        self.screen.end()?;
        ended
    }

    /// Says the message, again where the connection broke before the server took it.
    async fn ask(&mut self, agent: &str, message: &str) -> Result<TurnEnd, ClientError> {
        let server = self.server;
        let started = Instant::now();
        let mut was_reached = false;
        loop {
            let (session, key) = (self.session.clone(), self.key.clone());
            match self.wait(server.chat(agent, session.as_deref(), message, &key)).await? {
                Ok(mut events) => {
                    was_reached = true;
                    if let Some(end) = self.read(&mut events).await? {
                        return Ok(end);
                    }
                }
                // A server that was never there will not come; one that says no means it.
                Err(error @ ClientError::Unreachable { .. }) if !was_reached => return Err(error),
                Err(error) if error.may_have_been_taken() => was_reached = true,
                Err(error) => return Err(error),
            }
            if let (Some(session), Some(job)) = (self.session.clone(), self.job.clone()) {
                self.screen.remark("the connection broke; waiting for the answer");
                return self.follow(&session, &job).await;
            }
            if PATIENCE < started.elapsed() {
                return Err(ClientError::Odd("it closes the connection before it takes the message"));
            }
            self.wait(sleep(RECONNECT_DELAY)).await?;
        }
    }

    /// Reads the request's own stream; `None`: it broke before the end.
    async fn read(&mut self, events: &mut Events) -> Result<Option<TurnEnd>, ClientError> {
        while let Some(event) = self.wait(events.next()).await? {
            match event.name.as_str() {
                "done" => return self.answered(&event.data).map(Some),
                "error" => return Err(event.data.into()),
                _ => {}
            }
            if let Some(turn) = text(&event.data, "turnId") {
                self.answering = Some(turn);
            }
            // The terminal event of this stream is `done`; the session's own would come again.
            if event.name != "chat.response" {
                self.see(event)?;
            }
            if self.owes_cancel && self.session.is_some() {
                self.cancel().await;
            }
        }
        Ok(None)
    }

    /// Follows the session until the job has its answer. The job itself is the truth; events only make it lively.
    async fn follow(&mut self, session: &str, job: &str) -> Result<TurnEnd, ClientError> {
        let server = self.server;
        let mut reached = Instant::now();
        if self.last_event.is_none() {
            self.screen.gap();
        }
        loop {
            match self.look(job).await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => reached = Instant::now(),
                Err(error) if error.is_passing() && reached.elapsed() < PATIENCE => {}
                Err(error) if error.is_passing() => return Err(ClientError::Lost { job: job.to_owned() }),
                Err(error) => return Err(error),
            }
            let after = self.last_event.clone();
            if let Ok(mut events) = self.wait(server.session(session, after.as_deref())).await? {
                while let Ok(Some(event)) = self.wait(timeout(LOOK_AGAIN, events.next())).await? {
                    match self.see_other(event, job)? {
                        Seen::More => {}
                        Seen::Look => break,
                        Seen::Answered(end) => return Ok(end),
                    }
                }
            }
            self.wait(sleep(RECONNECT_DELAY)).await?;
        }
    }

    /// The job's answer, if it has one.
    async fn look(&mut self, job: &str) -> Result<Option<TurnEnd>, ClientError> {
        let server = self.server;
        let mut job = self.wait(server.job(job)).await??;
        self.answering = text(&job, "turnId").or(self.answering.take());
        let mut part = |name: &str| job.get_mut(name).map(Value::take).filter(|part| !part.is_null());
        if let Some(problem) = part("problem") {
            return Err(match ClientError::from(problem) {
                // A job's own problem stays, however high its status.
                ClientError::Problem(problem) => ClientError::Failed(problem),
                other => other,
            });
        }
        part("result").map(|result| self.answered(&result)).transpose()
    }

    /// An event of the session's stream, where other messages' events are as well.
    fn see_other(&mut self, event: Event, job: &str) -> Result<Seen, ClientError> {
        let (of_job, of_turn) = (text(&event.data, "jobId"), text(&event.data, "turnId"));
        let is_job = of_job.as_deref() == Some(job);
        if is_job && of_turn.is_some() {
            self.answering.clone_from(&of_turn);
        }
        let is_turn = of_turn.is_some() && of_turn == self.answering;
        match event.name.as_str() {
            "session.snapshot" | "resync" => self.see(event).map(|()| Seen::More),
            "chat.response" if is_job => self.answered(&event.data).map(Seen::Answered),
            "turn.failed" | "job.cancelled" if is_job || is_turn => {
                self.last_event = event.id.or(self.last_event.take());
                Ok(Seen::Look)
            }
            _ if is_job || is_turn => self.see(event).map(|()| Seen::More),
            _ => {
                self.last_event = event.id.or(self.last_event.take());
                Ok(Seen::More)
            }
        }
    }

    /// An event of this message.
    fn see(&mut self, event: Event) -> Result<(), ClientError> {
        let Event { name, id, data } = event;
        self.last_event = id.or(self.last_event.take());
        match name.as_str() {
            "job.accepted" => {
                self.session = text(&data, "sessionId").or(self.session.take());
                self.job = text(&data, "jobId");
            }
            "turn.started" => match data.get("attempt").and_then(Value::as_i64) {
                Some(attempt) if 1 < attempt => {
                    self.change(|questions| *questions = Questions::default());
                    self.tools = Tools::default();
                    self.screen.restart(attempt)?;
                }
                _ => {}
            },
            "session.snapshot" | "resync" => {
                self.screen.gap();
                self.take_up(&data);
            }
            "message.delta" => self.screen.text(member(&data, "text"))?,
            "thinking.delta" => self.screen.thinking(member(&data, "text"))?,
            "message.completed" => {
                let message = data.get("message").unwrap_or(&data);
                if member(message, "role") == "assistant" {
                    self.screen.message(member(message, "content"))?;
                }
            }
            "interaction.requested" => self.asked(&data),
            "interaction.resolved" => self.resolved(&data),
            name => self.see_beside(name, &data),
        }
        Ok(())
    }

    /// What happens beside the answer.
    fn see_beside(&mut self, name: &str, data: &Value) {
        match name {
            "tool.started" => self.screen.aside(&self.tools.started(data)),
            "tool.output" if is_watched() => {
                self.tools.output(data).iter().for_each(|line| self.screen.aside(line));
            }
            "tool.completed" => self.tools.completed(data).iter().for_each(|line| self.screen.aside(line)),
            "context.compacted" => self.screen.aside("the older part of the conversation is summarised now"),
            "context.reset" => self.screen.remark(
                "the engine has lost the conversation; the agent knows of it what is stored as messages",
            ),
            "engine.retry" => {
                let status = data.get("status").and_then(Value::as_u64);
                let why =
                    status.map_or("does not answer".to_owned(), |status| format!("answers HTTP {status}"));
                let ms = data.get("delayMs").and_then(Value::as_u64).unwrap_or_default();
                self.screen.remark(&format!("the model's server {why}; it is asked again in {ms} ms"));
            }
            _ => {}
        }
    }

    /// The result, whichever way it came.
    fn answered(&mut self, result: &Value) -> Result<TurnEnd, ClientError> {
        let cancelled = result.get("cancelled").and_then(Value::as_bool).unwrap_or_default();
        self.session = text(result, "sessionId").or(self.session.take());
        if !cancelled {
            self.screen.message(member(result, "content"))?;
        }
        Ok(TurnEnd { cancelled })
    }

    /// Waits for something, and for Ctrl-C meanwhile: the first one cancels the turn, the second one ends it all.
    async fn wait<T>(&mut self, something: impl Future<Output = T>) -> Result<T, ClientError> {
        let mut something = std::pin::pin!(something);
        loop {
            tokio::select! {
                done = &mut something => return Ok(done),
                line = self.lines.answer(), if self.takes_answers => {
                    self.typed(line).await;
                    continue;
                }
                _ = self.interrupts.recv() => {}
            }
            if self.is_cancelling {
                return Err(ClientError::Interrupted);
            }
            self.is_cancelling = true;
            self.screen.leave_prompt();
            self.screen.remark("cancelling; Ctrl-C again to leave at once");
            self.cancel().await;
        }
    }

    /// Cancels the turn, if the server has it already.
    async fn cancel(&mut self) {
        self.owes_cancel = self.session.is_none();
        let Some(session) = self.session.clone() else { return };
        if let Err(error) = self.server.cancel(&session).await {
            self.screen.remark(&format!("cannot cancel: {}", harmless(&error.to_string())));
        }
    }
}
