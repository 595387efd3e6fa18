//! A follower gets everything from its place on, in order, once.

use futures::future::join_all;
use roundhouse_shared::bus::Followed;
use roundhouse_shared::domain::{EventId, SessionId};
use tokio::task::JoinSet;

use crate::site::{
    Site, assert_follow_on, next, next_event, next_events, publish, publish_many, text, texts,
};

on_both! {
    a_follower_from_now_gets_what_is_published_after,
    a_follower_of_a_silent_session_waits_for_the_first_event,
    a_follower_after_an_event_gets_the_rest_and_then_what_is_new,
    a_slow_follower_loses_nothing_that_the_log_has,
    a_next_that_is_given_up_loses_nothing,
    a_thousand_followers_of_a_thousand_sessions_get_their_event,
}

async fn a_follower_from_now_gets_what_is_published_after(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    publish(&bus, session, &["before"]).await;
    let mut near = bus.follow(session, None).await;
    let mut far = site.bus().follow(session, None).await;
    publish(&bus, session, &["a", "b"]).await;
    publish(&site.bus(), session, &["c"]).await;
    for follow in [&mut near, &mut far] {
        let events = next_events(follow, 3).await;
        assert_eq!(texts(&events), ["a", "b", "c"]);
        assert_follow_on(EventId { n: 1, ..events[0].id }, &events);
    }
}

async fn a_follower_of_a_silent_session_waits_for_the_first_event(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut waiting = JoinSet::new();
    for bus in [bus.clone(), bus.clone(), site.bus()] {
        let mut follow = bus.follow(session, None).await;
        waiting.spawn(async move { next_event(&mut follow).await });
    }
    publish(&bus, session, &["first", "second"]).await;
    for event in waiting.join_all().await {
        assert_eq!((event.id.n, text(&event).as_str()), (1, "first"));
    }
}

async fn a_follower_after_an_event_gets_the_rest_and_then_what_is_new(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish_many(&bus, session, 10).await;
    let first = next_event(&mut follow).await.id;
    let mut newest = 10;
    for n in [0, 1, 5, 9, 10] {
        for bus in [&bus, &site.bus()] {
            let after = EventId { n, ..first };
            let mut follow = bus.follow(session, Some(after)).await;
            let rest = next_events(&mut follow, newest - n).await;
            assert_follow_on(after, &rest);
            publish(bus, session, &["new"]).await;
            newest += 1;
            let new = next_event(&mut follow).await;
            assert_eq!((new.id.n, text(&new).as_str()), (newest, "new"));
        }
    }
}

async fn a_slow_follower_loses_nothing_that_the_log_has(site: Site) {
    const EVENTS: u64 = 900;
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut slow = bus.follow(session, None).await;
    let mut slower = bus.follow(session, None).await;
    // More than a process keeps for itself.
    publish_many(&bus, session, EVENTS).await;
    let first = next_event(&mut slow).await;
    publish_many(&bus, session, EVENTS).await;
    let rest = next_events(&mut slow, 2 * EVENTS - 1).await;
    assert_eq!(first.id.n, 1);
    assert_follow_on(first.id, &rest);
    assert_eq!(next_event(&mut slower).await, first);
    assert_eq!(next_events(&mut slower, 2 * EVENTS - 1).await, rest);
    let called: Vec<_> = (1..=EVENTS).map(|n| n.to_string()).collect();
    assert_eq!(texts(&rest[rest.len() - called.len()..]), called);
}

async fn a_next_that_is_given_up_loses_nothing(site: Site) {
    const EVENTS: u64 = 300;
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = site.bus().follow(session, None).await;
    let mut publisher = JoinSet::new();
    publisher.spawn(async move {
        for n in 1..=EVENTS {
            publish(&bus, session, &[&n.to_string()]).await;
        }
    });
    let mut numbers = Vec::new();
    while numbers.len() < 300 {
        // Given up wherever it waits first, a few times; then not, since it would never get beyond.
        let mut followed = None;
        for _ in 0..4 {
            tokio::select! {
                biased;
                came = follow.next(), if followed.is_none() => followed = Some(came),
                () = tokio::task::yield_now() => {}
            }
        }
        let followed = match followed {
            Some(followed) => followed,
            None => next(&mut follow).await,
        };
        match followed {
            Followed::Event(event) => numbers.push(event.id.n),
            Followed::Gap => panic!("a gap"),
        }
    }
    assert!(numbers.into_iter().eq(1..=EVENTS));
}

async fn a_thousand_followers_of_a_thousand_sessions_get_their_event(site: Site) {
    let (bus, publisher) = (site.bus(), site.bus());
    let sessions: Vec<_> = (0..1_000).map(|_| SessionId::generate()).collect();
    let mut followers = join_all(sessions.iter().map(|session| bus.follow(*session, None))).await;
    let called = |session: &SessionId| format!("of {session}");
    for session in &sessions {
        publish(&publisher, *session, &[&called(session)]).await;
    }
    let events = join_all(followers.iter_mut().map(next_event)).await;
    assert_eq!(texts(&events), sessions.iter().map(called).collect::<Vec<_>>());
}
