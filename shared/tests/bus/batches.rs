//! Publications that are repeated are appended once, and what is missing between them is noticed.

use roundhouse_shared::bus::{Batch, Bus, BusError, Published};
use roundhouse_shared::domain::{LeaseToken, Place, SessionId};

use crate::site::{Site, event, next_event, next_events, next_gap, numbers, publish, text, texts};

on_both!(
    a_repeated_batch_of_a_run_is_appended_once,
    a_hole_in_the_numbers_of_a_run_is_a_gap,
    what_the_store_kept_is_published_once_whoever_repeats_it,
    what_the_store_kept_can_wait_for_the_run_before_it,
    a_run_whose_end_others_have_published_says_nothing_more_before_it,
);

const fn run(token: i64, first: i64, last: i64) -> Batch {
    Batch::Run { token: LeaseToken(token), first, last, fenced: true }
}

const fn fact(token: i64, entry: i64) -> Batch {
    Batch::Run { token: LeaseToken(token), first: entry, last: entry, fenced: false }
}

const fn stored(id: i64, token: i64, entry: i64, waits: bool) -> Batch {
    Batch::Stored { id, place: Some(Place { token: LeaseToken(token), entry }), waits }
}

async fn put(bus: &Bus, session: SessionId, batch: Batch, texts: &[&str]) -> Published {
    let events: Vec<_> = texts.iter().map(|text| event(text)).collect();
    bus.publish_batch(session, &batch, &events).await.unwrap()
}

async fn a_repeated_batch_of_a_run_is_appended_once(site: Site) {
    let (bus, other, session) = (site.bus(), site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    assert_eq!(put(&bus, session, run(3, 1, 2), &["a", "b"]).await, Published::Now);
    assert_eq!(put(&bus, session, run(3, 1, 2), &["a", "b"]).await, Published::Before);
    assert_eq!(put(&bus, session, fact(3, 3), &["c"]).await, Published::Now);
    assert_eq!(put(&bus, session, run(3, 4, 4), &["d"]).await, Published::Now);
    // A newer run has numbers of its own; the older one's facts are still known.
    assert_eq!(put(&other, session, run(4, 1, 1), &["e"]).await, Published::Now);
    assert_eq!(put(&bus, session, fact(3, 3), &["c"]).await, Published::Before);
    assert_eq!(put(&bus, session, fact(3, 5), &["f"]).await, Published::Now);
    assert_eq!(put(&bus, session, fact(3, 5), &["f"]).await, Published::Before);
    let refused = bus.publish_batch(session, &run(3, 6, 6), &[event("late")]).await;
    assert!(matches!(refused, Err(BusError::Fenced)));
    assert_eq!(put(&other, session, run(4, 2, 2), &["g"]).await, Published::Now);
    let events = next_events(&mut follow, 7).await;
    assert_eq!(texts(&events).concat(), "abcdefg");
    assert_eq!(numbers(&events), [1, 2, 3, 4, 5, 6, 7]);
}

async fn a_hole_in_the_numbers_of_a_run_is_a_gap(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    put(&bus, session, run(1, 1, 1), &["a"]).await;
    assert_eq!(text(&next_event(&mut follow).await), "a");
    put(&bus, session, run(1, 3, 3), &["c"]).await;
    next_gap(&mut follow).await;
    assert_eq!(text(&next_event(&mut follow).await), "c");
    // So is a run of which the beginning is missing.
    put(&bus, session, run(2, 2, 2), &["e"]).await;
    next_gap(&mut follow).await;
    assert_eq!(text(&next_event(&mut follow).await), "e");
}

async fn what_the_store_kept_is_published_once_whoever_repeats_it(site: Site) {
    let (bus, other, session) = (site.bus(), site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    put(&bus, session, run(1, 1, 1), &["a"]).await;
    assert_eq!(put(&bus, session, stored(70, 1, 2, true), &["b", "c"]).await, Published::Now);
    assert_eq!(put(&other, session, stored(70, 1, 2, false), &["b", "c"]).await, Published::Before);
    for n in 1..=20 {
        put(&other, session, run(2, n, n), &["d"]).await;
    }
    let nobodys = Batch::Stored { id: 71, place: None, waits: true };
    assert_eq!(put(&other, session, nobodys, &["e"]).await, Published::Now);
    assert_eq!(put(&bus, session, nobodys, &["e"]).await, Published::Before);
    assert_eq!(put(&bus, session, stored(70, 1, 2, false), &["b", "c"]).await, Published::Before);
    publish(&bus, session, &["f"]).await;
    let events = next_events(&mut follow, 25).await;
    assert_eq!(texts(&events).concat(), format!("abc{}ef", "d".repeat(20)));
}

async fn what_the_store_kept_can_wait_for_the_run_before_it(site: Site) {
    let (bus, other, session) = (site.bus(), site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    put(&bus, session, run(1, 1, 1), &["a"]).await;
    assert_eq!(put(&other, session, stored(1, 1, 3, true), &["end"]).await, Published::Early);
    put(&bus, session, run(1, 2, 2), &["b"]).await;
    assert_eq!(put(&other, session, stored(1, 1, 3, true), &["end"]).await, Published::Now);
    let events = next_events(&mut follow, 3).await;
    assert_eq!((texts(&events).concat(), numbers(&events)), ("abend".to_owned(), vec![1, 2, 3]));
}

async fn a_run_whose_end_others_have_published_says_nothing_more_before_it(site: Site) {
    let (bus, other, session) = (site.bus(), site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    put(&bus, session, run(1, 1, 1), &["a"]).await;
    assert_eq!(text(&next_event(&mut follow).await), "a");
    assert_eq!(put(&other, session, stored(1, 1, 4, false), &["end"]).await, Published::Now);
    // It comes late, as a command does that Redis has read and not yet done.
    assert_eq!(put(&bus, session, run(1, 2, 3), &["b", "c"]).await, Published::Before);
    assert_eq!(put(&bus, session, stored(1, 1, 4, true), &["end"]).await, Published::Before);
    assert_eq!(put(&bus, session, run(1, 5, 5), &["next"]).await, Published::Now);
    next_gap(&mut follow).await;
    assert_eq!(texts(&next_events(&mut follow, 2).await), ["end", "next"]);
}
