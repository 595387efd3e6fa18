//! Where events are missing, a follower is told so, and what follows is whole again.

use roundhouse_shared::domain::{EventId, SessionId};

use crate::site::{
    Site, assert_follow_on, events_before_gap, next_event, next_events, next_gap, numbers, publish,
    publish_many, restart, text, texts,
};

/// More than a log holds.
const TOO_MANY: u64 = 2_500;

on_both! {
    a_place_that_the_log_has_dropped_is_a_gap,
    a_follower_that_is_too_slow_is_told,
    a_place_in_another_numbering_is_a_gap_before_its_start,
    a_place_in_another_numbering_may_be_too_far_from_its_start,
    a_place_after_the_end_is_a_gap,
    a_restart_is_a_gap_before_the_new_numbers,
    a_restart_is_told_to_who_has_read_nothing_yet,
    two_restarts_are_one_gap,
}

/// The last event's place of a session that has so many.
async fn published(site: &Site, session: SessionId, count: u64) -> EventId {
    let bus = site.bus();
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["1"]).await;
    let first = next_event(&mut follow).await.id;
    drop(follow);
    publish_many(&bus, session, count - 1).await;
    EventId { n: count, ..first }
}

/// Another numbering than that of a place.
fn elsewhere(place: EventId) -> EventId {
    EventId { epoch: place.epoch ^ 1, ..place }
}

async fn a_place_that_the_log_has_dropped_is_a_gap(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let last = published(&site, session, TOO_MANY).await;
    let mut follow = bus.follow(session, Some(EventId { n: 1, ..last })).await;
    next_gap(&mut follow).await;
    publish_many(&bus, session, 20).await;
    assert_follow_on(last, &next_events(&mut follow, 20).await);
    // What it has to hold, it still does.
    let after = EventId { n: last.n - 1_900, ..last };
    let mut follow = bus.follow(session, Some(after)).await;
    assert_follow_on(after, &next_events(&mut follow, 1_900 + 20).await);
}

async fn a_follower_that_is_too_slow_is_told(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish_many(&bus, session, TOO_MANY).await;
    // What its process has heard by now may come first.
    for (n, event) in (1..).zip(events_before_gap(&mut follow).await) {
        assert_eq!(event.id.n, n);
    }
    publish(&bus, session, &["new"]).await;
    let new = next_event(&mut follow).await;
    assert_eq!((new.id.n, text(&new).as_str()), (TOO_MANY + 1, "new"));
}

async fn a_place_in_another_numbering_is_a_gap_before_its_start(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let last = published(&site, session, 3).await;
    for bus in [&bus, &site.bus()] {
        let mut follow = bus.follow(session, Some(elsewhere(last))).await;
        next_gap(&mut follow).await;
        assert_follow_on(EventId { n: 0, ..last }, &next_events(&mut follow, 3).await);
    }
    // A session that never had an event has no place but its start.
    let silent = SessionId::generate();
    let mut follow = bus.follow(silent, Some(last)).await;
    next_gap(&mut follow).await;
    publish(&bus, silent, &["first"]).await;
    assert_eq!(next_event(&mut follow).await.id.n, 1);
}

async fn a_place_in_another_numbering_may_be_too_far_from_its_start(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let last = published(&site, session, TOO_MANY).await;
    let mut follow = bus.follow(session, Some(elsewhere(last))).await;
    next_gap(&mut follow).await;
    publish(&bus, session, &["new"]).await;
    assert_eq!(next_event(&mut follow).await.id, EventId { n: TOO_MANY + 1, ..last });
}

async fn a_place_after_the_end_is_a_gap(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut last = published(&site, session, 3).await;
    for n in [last.n + 1, 99, u64::MAX - 1, u64::MAX] {
        let mut follow = bus.follow(session, Some(EventId { n, ..last })).await;
        next_gap(&mut follow).await;
        publish(&bus, session, &["new"]).await;
        let new = next_event(&mut follow).await.id;
        assert_eq!(new, EventId { n: last.n + 1, ..last }, "after the number {n}");
        last = new;
    }
}

async fn a_restart_is_a_gap_before_the_new_numbers(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut near = bus.follow(session, None).await;
    let mut far = site.bus().follow(session, None).await;
    publish(&bus, session, &["a", "b"]).await;
    for follow in [&mut near, &mut far] {
        assert_eq!(texts(&next_events(follow, 2).await), ["a", "b"]);
    }
    restart(&bus, session, &["c", "d"]).await;
    publish(&bus, session, &["e"]).await;
    for follow in [&mut near, &mut far] {
        next_gap(follow).await;
        let events = next_events(follow, 3).await;
        assert_eq!(numbers(&events), [1, 2, 3]);
        assert_eq!(texts(&events), ["c", "d", "e"]);
    }
}

async fn a_restart_is_told_to_who_has_read_nothing_yet(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["a"]).await;
    restart(&bus, session, &["b"]).await;
    // Whether it still gets what was before, or not.
    let before = events_before_gap(&mut follow).await;
    assert!(texts(&before) == ["a"] || before.is_empty(), "{before:?}");
    assert_eq!(texts(&next_events(&mut follow, 1).await), ["b"]);
}

async fn two_restarts_are_one_gap(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let last = published(&site, session, 3).await;
    let mut follow = bus.follow(session, Some(last)).await;
    restart(&bus, session, &["lost"]).await;
    restart(&bus, session, &["a", "b"]).await;
    next_gap(&mut follow).await;
    let events = next_events(&mut follow, 2).await;
    assert_eq!((numbers(&events), texts(&events).concat().as_str()), (vec![1, 2], "ab"));
}
