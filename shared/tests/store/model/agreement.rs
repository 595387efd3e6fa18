//! What the store and the model must agree on, after each step and in the end.

use std::collections::HashMap;

use roundhouse_shared::store::JobFilter;

use super::End;
use super::simulation::{Run, Simulation};

impl Simulation<'_> {
    /// Everybody dies; then one worker runs what is left.
    pub(super) async fn run_to_the_end(&mut self) {
        for worker in 0..self.workers.len() {
            self.declare_dead(worker).await;
        }
        self.reap(i64::MAX).await;
        self.beat(0).await;
        self.sweep().await;
        self.begin(0, true).await;
        if let Some((n, Run { cut: Some(cut), .. })) = self.run(0).filter(|(_, run)| self.holds(&run.lease)) {
            self.finish_cut(n, cut, End::Answered).await;
            self.begin(0, true).await;
        }
        while let Some((n, Run { turn: Some(turn), .. })) =
            self.run(0).filter(|(_, run)| self.holds(&run.lease))
        {
            self.finish(n, turn, End::Answered).await;
            if self.expected.lease.is_some() {
                self.drain(n).await;
            }
        }
    }

    pub(super) async fn assert_as_expected(&self) {
        let row = self.store.session(self.session).await.unwrap().unwrap();
        let expected = &self.expected;
        assert_eq!(
            (row.status, row.message_count, row.usage),
            (expected.status(), expected.messages, expected.usage)
        );
        assert_eq!(row.active_turn, expected.lease.and_then(|held| held.turn));
        let filter = JobFilter { session: Some(self.session), limit: 1000, ..JobFilter::default() };
        let mut jobs = self.store.jobs(filter).await.unwrap();
        jobs.sort_by_key(|job| job.seq);
        let jobs: Vec<_> =
            jobs.iter().map(|job| (job.id, job.kind, job.state, job.turn, job.attempt)).collect();
        let expected: Vec<_> =
            expected.jobs.iter().map(|job| (job.id, job.kind, job.state, job.turn, job.attempt)).collect();
        assert_eq!(jobs, expected);
    }

    pub(super) async fn assert_all_answered_once(&self) {
        let jobs: Vec<_> = self.expected.jobs.iter().map(|job| job.id).collect();
        assert!(self.expected.jobs.iter().all(|job| job.state.ended()), "{:?}", self.expected);
        let outcomes: HashMap<_, _> = self.store.outcomes(&jobs).await.unwrap().into_iter().collect();
        assert_eq!(outcomes, self.answers);
        assert_eq!(outcomes.len(), jobs.len());
    }
}
