//! What the store keeps to be published, and that all of it is, once.

use roundhouse_shared::domain::{EventName, Stored};
use roundhouse_shared::store::Outcome;

use super::simulation::Simulation;

impl Simulation<'_> {
    /// A run publishes what it has left, or dies before it can.
    pub(super) async fn leave(&mut self, stored: Option<&Stored>) {
        let Some(stored) = stored.filter(|stored| stored.id % 3 == 0) else { return };
        self.told.push(stored.clone());
        self.store.published(&[stored.id]).await.unwrap();
    }

    /// Another process publishes what was left.
    pub(super) async fn publish_left_over(&mut self) {
        let found = self.store.left_over(0, 100).await.unwrap();
        let ids: Vec<_> = found.iter().map(|stored| stored.id).collect();
        assert!(ids.is_sorted());
        self.store.published(&ids).await.unwrap();
        self.told.extend(found);
    }

    /// Every answer that somebody was to hear of was told once.
    pub(super) async fn assert_all_told_once(&mut self) {
        self.publish_left_over().await;
        let told = self.told.iter().flat_map(|stored| &stored.events);
        let mut told: Vec<_> = told
            .filter(|event| event.name == EventName::ChatResponse)
            .filter_map(|event| event.job)
            .collect();
        let answers = self.answers.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Answered(_)));
        let mut answered: Vec<_> = answers.map(|(job, _)| *job).collect();
        told.sort_unstable();
        answered.sort_unstable();
        assert_eq!(told, answered);
    }
}
