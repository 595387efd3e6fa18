//! A run that has lost its lease publishes nothing.

use roundhouse_shared::bus::{BusError, Numbering};
use roundhouse_shared::domain::{LeaseToken, SessionId};

use crate::site::{Site, event, next_events, numbers, publish, publish_as, texts};

on_both! {
    a_stale_token_publishes_nothing,
    a_stale_token_does_not_even_restart_the_numbers,
    a_token_fences_its_own_session_only,
}

async fn a_stale_token_publishes_nothing(site: Site) {
    let (bus, other, session) = (site.bus(), site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish_as(&bus, session, 2, "second lease").await.unwrap();
    for bus in [&bus, &other] {
        assert!(matches!(publish_as(bus, session, 1, "first lease").await, Err(BusError::Fenced)));
    }
    publish_as(&other, session, 2, "second again").await.unwrap();
    publish_as(&other, session, 3, "third lease").await.unwrap();
    assert!(matches!(publish_as(&bus, session, 2, "second lease").await, Err(BusError::Fenced)));
    publish(&bus, session, &["anybody"]).await;
    assert!(matches!(publish_as(&bus, session, 2, "second lease").await, Err(BusError::Fenced)));
    let events = next_events(&mut follow, 4).await;
    assert_eq!(texts(&events), ["second lease", "second again", "third lease", "anybody"]);
    assert_eq!(numbers(&events), [1, 2, 3, 4]);
}

async fn a_stale_token_does_not_even_restart_the_numbers(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish_as(&bus, session, 10, "tenth").await.unwrap();
    // As numbers: as texts, 9 would be the greater.
    let stale = Some(LeaseToken(9));
    let restarted = bus.publish(session, stale, Numbering::Restart, &[event("ninth")]).await;
    assert!(matches!(restarted, Err(BusError::Fenced)));
    publish_as(&bus, session, 10, "tenth again").await.unwrap();
    let events = next_events(&mut follow, 2).await;
    assert_eq!(texts(&events), ["tenth", "tenth again"]);
    assert_eq!(numbers(&events), [1, 2]);
    // A restart by the newest lease forgets the numbers, not the token.
    bus.publish(session, Some(LeaseToken(11)), Numbering::Restart, &[event("eleventh")]).await.unwrap();
    assert!(matches!(publish_as(&bus, session, 10, "tenth").await, Err(BusError::Fenced)));
}

async fn a_token_fences_its_own_session_only(site: Site) {
    let bus = site.bus();
    publish_as(&bus, SessionId::generate(), 7, "here").await.unwrap();
    publish_as(&bus, SessionId::generate(), 1, "there").await.unwrap();
}
