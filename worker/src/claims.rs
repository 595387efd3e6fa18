//! What a turn has claimed, and what of it its engine has: claimed is not delivered.

use std::collections::HashSet;

use roundhouse_shared::domain::{JobId, JobKind};
use roundhouse_shared::store::{Claimed, TurnOutcome};

/// The jobs of a running turn.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    jobs: Vec<(JobId, JobKind)>,
    /// How many of them the turn began with.
    first: usize,
    delivered: HashSet<JobId>,
}

impl Claims {
    /// Those that a turn begins with.
    pub(crate) fn of(jobs: &[Claimed]) -> Self {
        let jobs: Vec<_> = jobs.iter().map(|job| (job.job, job.kind)).collect();
        Self { first: jobs.len(), jobs, delivered: HashSet::new() }
    }

    /// Those that came meanwhile.
    pub(crate) fn add(&mut self, jobs: &[Claimed]) {
        self.jobs.extend(jobs.iter().map(|job| (job.job, job.kind)));
    }

    /// How many the engine has not shown to have delivered.
    pub(crate) fn waiting(&self) -> usize {
        self.jobs.len() - self.delivered.len()
    }

    /// Those of these ids that are the turn's and were not known to be delivered. They are now.
    pub(crate) fn deliver(&mut self, ids: &[String]) -> Vec<(JobId, JobKind)> {
        let is_named = |job: JobId| ids.iter().any(|id| id.parse() == Ok(job));
        let fresh = self.jobs.iter().filter(|(job, _)| is_named(*job) && self.delivered.insert(*job));
        fresh.copied().collect()
    }

    /// Whether the engine has any of them.
    pub(crate) fn any_delivered(&self) -> bool {
        !self.delivered.is_empty()
    }

    /// Whether a job is one that the turn began with.
    pub(crate) fn is_first(&self, job: JobId) -> bool {
        self.jobs.iter().take(self.first).any(|(first, _)| *first == job)
    }

    /// Those that the engine has not taken, when the turn ends so. `answered` are the messages that the engine says it has
    /// answered, if it says so.
    ///
    /// A turn that fails takes with it what the engine has; where that is nothing, what it began with: it would fail again.
    pub(crate) fn undelivered(&self, outcome: &TurnOutcome, answered: &[String]) -> Vec<JobId> {
        let is_named = |job: &JobId| answered.iter().any(|id| id.parse() == Ok(*job));
        let all = self.jobs.iter().map(|(job, _)| *job);
        match outcome {
            TurnOutcome::Cancelled => Vec::new(),
            TurnOutcome::Answered if all.clone().any(|job| is_named(&job)) => {
                all.filter(|job| !is_named(job)).collect()
            }
            TurnOutcome::Failed(_) if !self.delivered.is_empty() => {
                all.filter(|job| !self.delivered.contains(job)).collect()
            }
            TurnOutcome::Answered | TurnOutcome::Failed(_) => {
                all.skip(self.first).filter(|job| !self.delivered.contains(job)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundhouse_shared::code::Code;
    use roundhouse_shared::problem::Problem;

    fn job(kind: JobKind) -> Claimed {
        Claimed { job: JobId::generate(), kind, message: None, text: String::new(), attachments: None }
    }

    fn id(job: &Claimed) -> String {
        job.job.to_string()
    }

    /// A turn that began with one message, and two that came meanwhile.
    fn claims() -> (Claims, [Claimed; 3]) {
        let jobs = [job(JobKind::Chat), job(JobKind::Inject), job(JobKind::Inject)];
        let mut claims = Claims::of(&jobs[..1]);
        claims.add(&jobs[1..]);
        (claims, jobs)
    }

    fn failed() -> TurnOutcome {
        TurnOutcome::Failed(Problem::new(Code::EngineFailed))
    }

    #[test]
    fn the_engine_says_what_it_has_answered() {
        let (claims, [first, second, third]) = claims();
        let answered = [id(&first), id(&second), "another".to_owned()];
        assert_eq!(claims.undelivered(&TurnOutcome::Answered, &answered), [third.job]);
    }

    #[test]
    fn without_its_word_it_is_what_was_delivered() {
        let (mut claims, [first, second, third]) = claims();
        claims.deliver(&[id(&first), id(&third)]);
        assert_eq!(claims.undelivered(&TurnOutcome::Answered, &[]), [second.job]);
        assert_eq!(
            claims.undelivered(&TurnOutcome::Answered, &["a note of its own".to_owned()]),
            [second.job]
        );
    }

    #[test]
    fn a_turn_that_never_reached_its_engine_fails_alone() {
        let (claims, [_, second, third]) = claims();
        assert_eq!(claims.undelivered(&failed(), &[]), [second.job, third.job]);
    }

    #[test]
    fn a_turn_that_fails_takes_with_it_what_was_delivered() {
        let (mut claims, [first, second, third]) = claims();
        claims.deliver(&[id(&first), id(&second)]);
        assert_eq!(claims.undelivered(&failed(), &[]), [third.job]);
        assert_eq!(claims.undelivered(&TurnOutcome::Cancelled, &[]), []);
    }

    #[test]
    fn a_delivery_is_told_once() {
        let (mut claims, [first, second, _]) = claims();
        assert_eq!(
            claims.deliver(&[id(&second), id(&first)]),
            [(first.job, JobKind::Chat), (second.job, JobKind::Inject)]
        );
        assert_eq!(claims.deliver(&[id(&second)]), []);
    }
}
