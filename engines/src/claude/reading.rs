//! What the CLI's lines mean: lines in, events out, without a process.
//!
//! The CLI has *turns* of its own: what it does from one `result` to the next. `command_lifecycle` tells which of our
//! lines such a turn is about, from the beginning or from the moment that one is folded in. The turn that the worker has
//! sent is answered by the turn of the CLI that one of its lines has started; what happens in others is nobody's answer.

mod ends;
mod questions;

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::asks::Asks;
use super::chain::{Chain, Said};
use super::link;
use super::protocol::{CommandState, Line};
use super::turn::{Command, Ending, Turn};
use super::usage::{Meter, Totals};
use crate::contract::{AssistantMessage, EngineEvent, Usage};
use crate::permissions::Gate;

/// Requests of ours, by which their replies are known.
pub(super) const INITIALIZE: &str = "initialize";
pub(super) const BASELINE: &str = "baseline";
const SPENT: &str = "spent";
const INTERRUPT: &str = "interrupt";

#[derive(Debug)]
pub(super) struct Reading {
    gate: Gate,
    meter: Meter,
    /// By the uuid of the line.
    commands: HashMap<String, Command>,
    turn: Option<Turn>,
    /// The lines that the CLI's running turn is about.
    started: Vec<String>,
    chain: Chain,
    asks: Asks,
    /// The last message that nobody asked for, until it is known what its turn has cost.
    autonomous: Option<AssistantMessage>,
    /// Messages that the model has, while more of them may come: those that it is given together are told together.
    delivered: Vec<String>,
    is_compacted: bool,
    is_ready: bool,
    /// The process has to end, and with it all that a turn which was stopped has left.
    pub(super) has_leftovers: bool,
    /// To be told, in order.
    pub(super) events: VecDeque<EngineEvent>,
    /// To be written to the CLI.
    pub(super) replies: Vec<Value>,
}

impl Reading {
    pub(super) fn new(gate: Gate, meter: Meter) -> Self {
        Self {
            gate,
            meter,
            commands: HashMap::new(),
            turn: None,
            started: Vec::new(),
            chain: Chain::default(),
            asks: Asks::default(),
            autonomous: None,
            delivered: Vec::new(),
            is_compacted: false,
            is_ready: false,
            has_leftovers: false,
            events: VecDeque::new(),
            replies: Vec::new(),
        }
    }

    /// What the process has used before.
    pub(super) fn set_baseline(&mut self, totals: Totals) {
        self.meter.before = Some(totals);
    }

    /// Whether the CLI has started up.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    pub(super) fn is_running(&self) -> bool {
        self.turn.is_some()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.ending.is_some())
    }

    fn is_interrupted(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| matches!(turn.ending, Some(Ending::Interrupted)))
    }

    /// Whether tools run, or are about to.
    pub(super) fn has_open_calls(&self) -> bool {
        self.chain.has_open_calls()
    }

    /// The lines by which the CLI has these messages already.
    pub(super) fn lines_of(&self, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
        let has = |command: &Command| command.answers.iter().any(|id| is_asked(id));
        self.commands.iter().filter(|(_, command)| has(command)).map(|(line, _)| line.clone()).collect()
    }

    pub(super) fn has_message(&self, id: &str) -> bool {
        self.commands.values().any(|command| command.answers.iter().any(|answered| answered == id))
    }

    /// Whether the CLI has messages that it has not answered.
    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    pub(super) fn wrote(&mut self, line: String, command: Command) {
        self.commands.insert(line, command);
    }

    /// A turn begins.
    pub(super) fn begin(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    /// Has the CLI stop the turn, which then ends as said.
    pub(super) fn stop(&mut self, ending: Ending) {
        if let Some(turn) = &mut self.turn {
            // Who asks first is right.
            turn.ending.get_or_insert(ending);
            self.replies.push(link::interrupt(INTERRUPT));
        }
    }

    /// Whether what happens now is the running turn's.
    fn is_ours(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.is_about(&self.started))
    }

    pub(super) fn has_deliveries(&self) -> bool {
        !self.delivered.is_empty()
    }

    /// Tells which messages the model has been given.
    pub(super) fn tell_deliveries(&mut self) {
        if self.has_deliveries() {
            self.events.push_back(EngineEvent::Delivered(std::mem::take(&mut self.delivered)));
        }
    }

    pub(super) fn read(&mut self, line: Line) {
        if !matches!(line, Line::Command { .. } | Line::Reply { .. } | Line::Other) {
            self.tell_deliveries();
        }
        match line {
            Line::Command { uuid, state: CommandState::Started } => self.started(uuid),
            Line::Command { uuid, state: CommandState::Over } => self.over(&uuid),
            Line::Idle => self.idle(),
            Line::Stream(_) | Line::Block(_) | Line::ToolResult(_) => {
                let said = self.chain.read(line);
                self.said(said);
            }
            Line::SideChain { call, text } => {
                if !text.is_empty() && self.is_ours() {
                    self.events.push_back(EngineEvent::ToolOutput { id: call, text });
                }
            }
            Line::Compacted => self.is_compacted = true,
            Line::Synthetic(summary) => {
                if std::mem::take(&mut self.is_compacted) {
                    let usage = self.meter.priced(Usage::default());
                    self.events.push_back(EngineEvent::Compacted { summary, replaced: 0, usage });
                }
            }
            Line::Retry { attempt, delay, status } => {
                if self.is_ours() {
                    self.events.push_back(EngineEvent::Retry { attempt, delay, status });
                }
            }
            Line::Result(result) => self.result(&result),
            Line::Ask(ask) => {
                let said = self.chain.settle();
                self.said(said);
                let refused = self.asks.push(ask);
                self.replies.extend(refused);
            }
            Line::CancelAsk(id) => {
                if self.asks.cancel(&id) {
                    self.events.push_back(EngineEvent::Withdrawn { id });
                }
            }
            Line::Unsupported { id, subtype } => {
                let error = format!("Unsupported control request subtype: {subtype}");
                let response = json!({"subtype": "error", "request_id": id, "error": error});
                self.replies.push(json!({"type": "control_response", "response": response}));
            }
            Line::Reply { id, result } => self.reply(&id, result),
            Line::Command { .. } | Line::Other => {}
        }
    }

    fn started(&mut self, line: String) {
        if let Some(command) = self.commands.get_mut(&line) {
            self.delivered.append(&mut command.delivers);
        }
        self.started.push(line);
        // An interrupt that came before this has stopped nothing.
        if self.is_ending() && self.is_ours() {
            self.replies.push(link::interrupt(INTERRUPT));
        }
    }

    fn said(&mut self, said: Vec<Said>) {
        let is_ours = self.is_ours();
        for said in said {
            match said {
                Said::Message { message, was_streamed } => self.message(message, was_streamed, is_ours),
                Said::Piece(event) | Said::Tool(event) if is_ours => self.events.push_back(event),
                // A tool that is only half called never runs.
                Said::Cut(message)
                    if is_ours
                        && self.is_interrupted()
                        && message.tool_calls.is_empty()
                        && !message.content.is_empty() =>
                {
                    self.message(message, true, is_ours);
                }
                Said::Piece(_) | Said::Tool(_) | Said::Cut(_) => {}
            }
        }
    }

    fn message(&mut self, mut message: AssistantMessage, was_streamed: bool, is_ours: bool) {
        message.usage = self.meter.priced(message.usage);
        if !is_ours {
            let before = self.autonomous.replace(message);
            self.events.extend(before.map(EngineEvent::Autonomous));
            return;
        }
        if !was_streamed && !message.content.is_empty() {
            self.events.push_back(EngineEvent::Delta(message.content.clone()));
        }
        let has_calls = !message.tool_calls.is_empty();
        if let Some(turn) = &mut self.turn {
            turn.iterations += 1;
            turn.has_answer = !has_calls;
            turn.has_called_tools |= has_calls;
        }
        if has_calls && self.meter.max_cost_nanos.is_some() {
            self.replies.push(link::request(SPENT, &json!({"subtype": "get_usage"})));
        }
        self.events.push_back(EngineEvent::MessageDone(message));
    }

    fn reply(&mut self, id: &str, result: Result<Value, String>) {
        match (id, result) {
            (INITIALIZE, _) => self.is_ready = true,
            (BASELINE, Ok(reply)) => self.meter.before = Totals::of_session(&reply),
            (SPENT, Ok(reply)) => {
                if let Some(reason) = self.meter.is_over(&reply) {
                    self.stop(Ending::Limit(reason));
                }
            }
            (_, Err(error)) => tracing::debug!(id, error, "the CLI has refused a request"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
