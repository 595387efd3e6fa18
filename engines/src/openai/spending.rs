//! What a turn has used, and what it may use.

use super::settings::Settings;
use super::usage;
use crate::contract::{Earlier, EngineError, TurnDone, Usage};

/// The model calls of a turn. What is told of them is of this attempt; the limits are for all attempts together.
#[derive(Debug, Default)]
pub(super) struct Spending {
    /// The iterations of this attempt.
    iterations: u32,
    /// The usage of this attempt.
    usage: Usage,
    /// The iterations of the attempts before.
    earlier_iterations: u32,
    /// All costs that are known, of all attempts.
    cost_nanos: i64,
}

impl Spending {
    /// What is left to a turn that has come so far.
    pub(super) fn after(earlier: Option<&Earlier>) -> Self {
        let Some(Earlier { iterations, usage, .. }) = earlier else { return Self::default() };
        let cost_nanos = usage.cost_nanos.unwrap_or(0);
        Self { earlier_iterations: *iterations, cost_nanos, ..Self::default() }
    }

    /// The iterations of all attempts.
    pub(super) fn iterations(&self) -> u32 {
        self.earlier_iterations.saturating_add(self.iterations)
    }

    pub(super) fn add_iteration(&mut self, usage: Usage) {
        self.iterations += 1;
        self.add(usage);
    }

    /// Adds a call that is no iteration.
    pub(super) fn add(&mut self, usage: Usage) {
        self.cost_nanos = self.cost_nanos.saturating_add(usage.cost_nanos.unwrap_or(0));
        self.usage = usage::sum(self.usage, usage);
    }

    /// Whether there may be another model call.
    pub(super) fn check(&self, settings: &Settings) -> Result<(), EngineError> {
        let most = settings.max_iterations;
        if self.iterations() >= most {
            let calls = if most == 1 { "1 model call" } else { &format!("{most} model calls") };
            return Err(EngineError::Limit(format!(
                "it has made {calls}, and max_iterations allows no more"
            )));
        }
        match settings.max_cost_nanos {
            Some(most) if self.cost_nanos >= most => Err(EngineError::Limit(format!(
                "it has cost {} USD, and its agent may spend {} USD",
                dollars(self.cost_nanos),
                dollars(most)
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn done(&self) -> TurnDone {
        TurnDone { iterations: self.iterations, usage: self.usage, answered: Vec::new() }
    }
}

/// An amount as a decimal number.
pub(crate) fn dollars(nanos: i64) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos.rem_euclid(1_000_000_000));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
