//! How turns end, within the CLI's lines.

use super::Reading;
use crate::claude::failure;
use crate::claude::protocol::TurnResult;
use crate::claude::turn::Ending;
use crate::contract::{AssistantMessage, EngineError, EngineEvent, Usage};

impl Reading {
    /// Ends the turn without the CLI. `other`: unless it is being ended for another reason.
    pub(in crate::claude) fn give_up(&mut self, other: EngineEvent) {
        if let Some(turn) = self.turn.take() {
            self.tell_deliveries();
            self.has_leftovers |= turn.leaves_processes();
            self.put_off_questions();
            self.events.push_back(turn.ending.map_or(other, Ending::event));
        }
    }

    pub(super) fn over(&mut self, line: &str) {
        if self.started.iter().any(|started| started == line) {
            // Its result tells.
            return;
        }
        self.commands.remove(line);
        let Some(turn) = &mut self.turn else { return };
        turn.lines.retain(|kept| kept != line);
        if turn.lines.is_empty() {
            let detail =
                "the CLI has not taken the message: it was dropped, or the conversation has it already"
                    .to_owned();
            self.give_up(EngineEvent::Failed(EngineError::Provider {
                status: None,
                retry_after: None,
                detail,
            }));
        }
    }

    /// Nothing runs any more. Where no result has told of the turn's end, none will.
    pub(super) fn idle(&mut self) {
        if self.is_ours() {
            self.end_segment();
            let detail = "the CLI has told no result, or one that could not be read".to_owned();
            self.give_up(EngineEvent::Failed(EngineError::Provider {
                status: None,
                retry_after: None,
                detail,
            }));
        }
    }

    pub(super) fn result(&mut self, result: &TurnResult) {
        let said = self.chain.finish();
        self.said(said);
        let used = self.meter.read(result);
        let mut lines = self.end_segment();
        let others = result.answers.iter().filter(|line| !lines.contains(line));
        lines.extend(others.cloned().collect::<Vec<_>>());
        let answered: Vec<_> = lines
            .iter()
            .filter_map(|line| self.commands.remove(line))
            .flat_map(|command| command.answers)
            .collect();
        let by_itself = self.autonomous.take();
        if let Some(turn) = self.turn.take_if(|turn| turn.is_about(&lines)) {
            self.has_leftovers |= turn.leaves_processes();
            self.put_off_questions();
            self.events.extend(by_itself.map(EngineEvent::Autonomous));
            self.events.extend(turn.end(result, used, answered));
            return;
        }
        let by_itself = by_itself.map(|message| {
            let usage = Usage { cost_nanos: used.cost_nanos, ..message.usage };
            EngineEvent::Autonomous(AssistantMessage { usage, ..message })
        });
        self.events.extend(by_itself);
        // The CLI could not even begin.
        if let Some(error @ EngineError::ResumeDropped(_)) = failure::of_result(result) {
            self.give_up(EngineEvent::Failed(error));
        }
    }

    /// The CLI's turn is over. Gives the lines that it was about.
    fn end_segment(&mut self) -> Vec<String> {
        self.chain.clear();
        std::mem::take(&mut self.started)
    }
}
