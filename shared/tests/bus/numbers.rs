//! Events are numbered where they are appended, without holes, and arrive as they were made.

use roundhouse_shared::bus::Numbering;
use roundhouse_shared::domain::{EventId, EventName, JobId, NewEvent, SessionId, TurnId};
use tokio::task::JoinSet;

use crate::site::{
    Site, assert_follow_on, event, next_event, next_events, numbers, publish, restart, text, texts,
};

on_both! {
    numbers_have_no_hole_whoever_publishes,
    sessions_have_numbers_of_their_own,
    a_restart_counts_from_one_again,
    publishing_nothing_takes_no_number,
    an_event_arrives_as_it_was_made,
    any_text_survives,
}

async fn numbers_have_no_hole_whoever_publishes(site: Site) {
    const PUBLISHERS: usize = 8;
    const EACH: usize = 40;
    let session = SessionId::generate();
    let buses = [site.bus(), site.bus()];
    let mut follow = site.bus().follow(session, None).await;
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let bus = buses[publisher % buses.len()].clone();
        publishers.spawn(async move {
            for n in 0..EACH {
                let (one, other) = (format!("{publisher} {n} a"), format!("{publisher} {n} b"));
                publish(&bus, session, &[&one, &other]).await;
            }
        });
    }
    let events = next_events(&mut follow, 2 * (PUBLISHERS * EACH) as u64).await;
    publishers.join_all().await;
    assert_follow_on(EventId { n: 0, ..events[0].id }, &events);
    for publisher in 0..PUBLISHERS {
        let own = texts(&events).into_iter().filter(|text| text.starts_with(&format!("{publisher} ")));
        let sent = (0..EACH).flat_map(|n| ["a", "b"].map(|part| format!("{publisher} {n} {part}")));
        assert!(own.eq(sent), "the order of one publisher is kept");
    }
    for pair in texts(&events).chunks(2) {
        assert_eq!(pair[0].trim_end_matches('a'), pair[1].trim_end_matches('b'), "published in one step");
    }
}

async fn sessions_have_numbers_of_their_own(site: Site) {
    let (bus, one, other) = (site.bus(), SessionId::generate(), SessionId::generate());
    let mut of_one = bus.follow(one, None).await;
    let mut of_other = bus.follow(other, None).await;
    publish(&bus, one, &["a", "b"]).await;
    publish(&bus, other, &["c"]).await;
    publish(&bus, one, &["d"]).await;
    let events = next_events(&mut of_one, 3).await;
    assert_eq!((numbers(&events), texts(&events).concat().as_str()), (vec![1, 2, 3], "abd"));
    let event = next_event(&mut of_other).await;
    assert_eq!((event.id.n, text(&event).as_str()), (1, "c"));
    assert_ne!(event.id.epoch, events[0].id.epoch);
}

async fn a_restart_counts_from_one_again(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    restart(&bus, session, &["a", "b"]).await;
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["c"]).await;
    let before = next_event(&mut follow).await;
    restart(&bus, session, &["d"]).await;
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["e"]).await;
    let after = next_event(&mut follow).await;
    assert_eq!((before.id.n, after.id.n), (3, 2));
    assert_ne!(before.id.epoch, after.id.epoch);
}

async fn publishing_nothing_takes_no_number(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &[]).await;
    publish(&bus, session, &["a"]).await;
    publish(&bus, session, &[]).await;
    publish(&bus, session, &["b"]).await;
    assert_eq!(numbers(&next_events(&mut follow, 2).await), [1, 2]);
}

async fn an_event_arrives_as_it_was_made(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut live = bus.follow(session, None).await;
    let mut made = Vec::new();
    for (n, name) in EventName::ALL.iter().enumerate() {
        let job = (n % 2 == 0).then(JobId::generate);
        let turn = (n % 3 == 0).then(TurnId::generate);
        made.push(NewEvent { name: *name, job, turn, data: format!(r#"{{"n": {n}}}"#) });
    }
    bus.publish(session, None, Numbering::Continue, &made).await.unwrap();
    let first = next_event(&mut live).await;
    let mut replayed = site.bus().follow(session, Some(EventId { n: 0, ..first.id })).await;
    for (n, made) in made.iter().enumerate() {
        let event = if n == 0 { first.clone() } else { next_event(&mut live).await };
        assert_eq!((event.name, event.job, event.turn), (made.name, made.job, made.turn));
        assert_eq!(*event.data, made.data);
        assert_eq!(next_event(&mut replayed).await, event);
    }
}

async fn any_text_survives(site: Site) {
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut live = bus.follow(session, None).await;
    let large = "ä\n\u{1f980} ".repeat((1 << 20) / 8);
    let sent = [
        "",
        " ",
        "two\nlines\r\n",
        "tab\t nul\0 \"quoted\" \\",
        "日本語 🦀 e\u{301} \u{2028}",
        &large,
        "last",
    ];
    publish(&bus, session, &sent).await;
    let data = "{\n  \"text\": \"raw line breaks between\"\n}".to_owned();
    let pretty = NewEvent { data, ..event("") };
    bus.publish(session, None, Numbering::Continue, &[pretty.clone(), event("after")]).await.unwrap();
    let events = next_events(&mut live, sent.len() as u64 + 2).await;
    assert_eq!(texts(&events[..sent.len()]), sent);
    assert_eq!(*events[sent.len()].data, pretty.data);
    assert_eq!(text(&events[sent.len() + 1]), "after");
    // The same from the log, as a process reads it that has heard nothing of it.
    let mut replayed = site.bus().follow(session, Some(EventId { n: 0, ..events[0].id })).await;
    assert_eq!(next_events(&mut replayed, events.len() as u64).await, events);
}
