//! The questions of the CLI within its lines.

use super::Reading;
use crate::claude::asks::Outcome;
use crate::contract::{Answer, EngineEvent};

impl Reading {
    pub(in crate::claude) fn is_asking(&self) -> bool {
        self.asks.is_open()
    }

    pub(in crate::claude) fn answer(&mut self, id: &str, answer: Answer) {
        let outcome = self.asks.answer(id, answer, &self.gate);
        self.follow(outcome);
    }

    /// Decides one question of the CLI, where there is one that can be decided now. Call it once all events are told: tools
    /// run only once whoever keeps messages has kept the one that calls them.
    pub(in crate::claude) fn decide(&mut self) -> bool {
        let chain = &self.chain;
        let outcome = self.asks.decide(
            &self.gate,
            |ask| ask.is_side_chain || !chain.is_writing(),
            self.turn.is_some(),
            |call| chain.arguments(call),
        );
        self.follow(outcome)
    }

    fn follow(&mut self, outcome: Option<Outcome>) -> bool {
        match outcome {
            None => return false,
            Some(Outcome::Asked(event)) => self.events.push_back(event),
            Some(Outcome::Reply(line, call)) => {
                self.replies.push(line);
                let ours = call.filter(|_| self.is_ours());
                self.events.extend(ours.map(EngineEvent::ToolStarted));
            }
        }
        true
    }

    /// Whoever is asked, is asked within a turn.
    pub(super) fn put_off_questions(&mut self) {
        let withdrawn = self.asks.put_off().map(|id| EngineEvent::Withdrawn { id });
        self.events.extend(withdrawn);
    }
}
