//! The clock of a turn: what it has worked counts over its attempts, and never less than before.

use roundhouse_shared::domain::{Lease, LeaseToken};
use roundhouse_shared::store::Store;

use crate::support::*;

on_both_databases![a_turn_goes_on_with_the_time_that_it_has_worked, only_the_run_of_a_turn_keeps_its_time];

async fn a_turn_goes_on_with_the_time_that_it_has_worked(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    assert_eq!(mail.worked_ms, 0);
    store.keep_worked(&lease, mail.turn, 1_500).await.unwrap();
    store.hand_back(&lease).await.unwrap();

    let (lease, again) = begin(store, session).await;
    assert_eq!((again.turn, again.worked_ms), (mail.turn, 1_500));
    store.keep_worked(&lease, mail.turn, 4_000).await.unwrap();
    // Repeated late, after an unclear commit.
    store.keep_worked(&lease, mail.turn, 2_000).await.unwrap();
    store.abandon(&lease, 3).await.unwrap().unwrap();

    let (lease, last) = begin(store, session).await;
    assert_eq!((last.turn, last.worked_ms), (mail.turn, 4_000));
    admit(store, session, "another turn").await;
    store.finish(&lease, answered(last.turn, "ok")).await.unwrap();
    assert_eq!(store.drain(&lease).await.unwrap().unwrap().worked_ms, 0);
}

async fn only_the_run_of_a_turn_keeps_its_time(store: &Store) {
    let (session, _, lost, mail) = running(store).await;
    store.abandon(&lost, 3).await.unwrap().unwrap();
    let (lease, _) = begin(store, session).await;
    store.keep_worked(&lost, mail.turn, 9_000).await.unwrap();
    let of_another = Lease { token: LeaseToken(lease.token.0 + 1), ..lease };
    store.keep_worked(&of_another, mail.turn, 9_000).await.unwrap();
    store.hand_back(&lease).await.unwrap();
    assert_eq!(begin(store, session).await.1.worked_ms, 0);
}
