//! A worker takes what it has a slot for, and leaves the rest to others.

use std::pin::pin;

use roundhouse_shared::domain::Lane;

use crate::site::{Reader, Site, depth, push};
use crate::support::soon;

on_both! {
    a_source_takes_no_more_than_it_has_slots_for,
    what_one_worker_has_no_slot_for_another_takes,
    a_source_without_a_slot_takes_nothing,
    a_slot_that_comes_later_is_used,
    a_turn_that_only_waits_leaves_its_slot_to_another,
}

async fn a_source_takes_no_more_than_it_has_slots_for(site: Site) {
    let queue = site.queue();
    let rings = push(&queue, Lane::Chat, 5).await;
    let mut reader = Reader::start(&queue, Lane::Chat, 2);
    let first = reader.next().await;
    let second = reader.next().await;
    assert_eq!([first.session, second.session], rings[..2]);
    assert_eq!(reader.slots.free(), 0);
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 3);
    drop(second);
    let third = reader.next().await;
    assert_eq!(third.session, rings[2]);
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 2);
    drop((first, third));
    assert_eq!(reader.jobs(2).await, rings[3..]);
    // With a slot in hand it waits for the next ring.
    reader.free(1).await;
}

async fn what_one_worker_has_no_slot_for_another_takes(site: Site) {
    let (one, other) = (site.queue(), site.queue());
    let rings = push(&one, Lane::Chat, 5).await;
    let mut busy = Reader::start(&one, Lane::Chat, 2);
    let turns = [busy.next().await, busy.next().await];
    let mut idle = Reader::start(&other, Lane::Chat, 2);
    assert_eq!(idle.jobs(3).await, rings[2..]);
    depth(&one, Lane::Chat, 0).await;
    drop(turns);
}

async fn a_source_without_a_slot_takes_nothing(site: Site) {
    let queue = site.queue();
    let rings = push(&queue, Lane::Chat, 2).await;
    let full = Reader::start(&queue, Lane::Chat, 0);
    let mut other = Reader::start(&site.queue(), Lane::Chat, 1);
    assert_eq!(other.jobs(2).await, rings);
    drop(full);
}

async fn a_slot_that_comes_later_is_used(site: Site) {
    let queue = site.queue();
    push(&queue, Lane::Inject, 1).await;
    let mut first = Reader::start(&queue, Lane::Inject, 1);
    let busy = first.next().await;
    let mut reader = Reader::with(&queue, Lane::Chat, first.slots.clone());
    drop(first);
    let rings = push(&queue, Lane::Chat, 1).await;
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 1);
    drop(busy);
    assert_eq!(reader.jobs(1).await, rings);
}

async fn a_turn_that_only_waits_leaves_its_slot_to_another(site: Site) {
    let queue = site.queue();
    let rings = push(&queue, Lane::Chat, 2).await;
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    let waiting = reader.next().await;
    waiting.slot.rest();
    let other = reader.next().await;
    assert_eq!([waiting.session, other.session], rings[..]);
    {
        let mut resumed = pin!(waiting.slot.resume());
        assert!(futures::poll!(&mut resumed).is_pending());
        drop(other);
        // Also where the source has taken the slot again and waits for a ring with it.
        soon("the slot", resumed).await;
    }
    reader.free(0).await;
    let rings = push(&queue, Lane::Chat, 1).await;
    drop(waiting);
    assert_eq!(reader.jobs(1).await, rings);
}
