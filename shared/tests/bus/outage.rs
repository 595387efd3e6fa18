//! A Redis that goes away, comes back with its data or without, or stands still.

use std::time::{Duration, Instant};

use roundhouse_shared::bus::{Bus, BusError, Follow, Followed, Numbering};
use roundhouse_shared::domain::{EventId, SessionId};

use crate::site::{assert_follow_on, event, next, next_event, next_events, next_gap, publish, text, up};
use crate::support::{Keeps, Server, eventually, soon};

/// A command has three seconds; so much more a slow machine may take.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);

async fn try_publish(bus: &Bus, session: SessionId, text: &str) -> Result<(), BusError> {
    bus.publish(session, None, Numbering::Continue, &[event(text)]).await
}

/// Publishing fails, and does not take long to; the bus says so itself.
async fn assert_unavailable(bus: &Bus, session: SessionId) {
    let start = Instant::now();
    let (published, ping) = tokio::join!(try_publish(bus, session, "lost"), bus.ping());
    assert!(start.elapsed() < REFUSED_WITHIN, "{:?}", start.elapsed());
    assert!(matches!(published, Err(BusError::Unavailable(_))));
    assert!(matches!(ping, Err(BusError::Unavailable(_))));
}

/// Reads on until the event of that text, and whether there was a gap.
async fn gap_before(follow: &mut Follow, last: &str) -> bool {
    let mut gap = false;
    loop {
        match next(follow).await {
            Followed::Gap => gap = true,
            Followed::Event(event) if text(&event) == last => return gap,
            Followed::Event(_) => {}
        }
    }
}

#[tokio::test]
async fn a_server_that_comes_back_empty_is_a_gap() {
    let mut server = Server::running(Keeps::Nothing).await;
    let (bus, session, silent) =
        (Bus::connect(&server.settings()).unwrap(), SessionId::generate(), SessionId::generate());
    up(&bus).await;
    let mut follow = bus.follow(session, None).await;
    let mut of_silent = bus.follow(silent, None).await;
    publish(&bus, session, &["a", "b"]).await;
    let before = next_events(&mut follow, 2).await;
    server.kill();
    assert_unavailable(&bus, session).await;
    bus.notify(&[]).await;
    server.start().await;
    up(&bus).await;
    publish(&bus, session, &["c", "d"]).await;
    next_gap(&mut follow).await;
    let after = next_events(&mut follow, 2).await;
    assert_ne!(after[0].id.epoch, before[0].id.epoch);
    assert_follow_on(EventId { n: 0, ..after[0].id }, &after);
    // Nothing was lost here, but nobody can know.
    publish(&bus, silent, &["first"]).await;
    assert!(gap_before(&mut of_silent, "first").await);
    // Whoever reconnects is told as well.
    let mut late = bus.follow(session, Some(before[1].id)).await;
    next_gap(&mut late).await;
    assert_eq!(next_events(&mut late, 2).await, after);
}

#[tokio::test]
async fn a_server_that_comes_back_with_its_data_is_a_gap_all_the_same() {
    let mut server = Server::running(Keeps::Everything).await;
    let (bus, session) = (Bus::connect(&server.settings()).unwrap(), SessionId::generate());
    up(&bus).await;
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["a"]).await;
    let first = next_event(&mut follow).await;
    server.kill();
    assert_unavailable(&bus, session).await;
    server.start().await;
    eventually("publishing works", async || try_publish(&bus, session, "d").await.is_ok()).await;
    // Nothing was lost here, but nobody can know.
    next_gap(&mut follow).await;
    let after = next_event(&mut follow).await;
    assert_eq!(text(&after), "d");
    assert_ne!(after.id.epoch, first.id.epoch);
}

#[tokio::test]
async fn an_emptied_server_is_a_gap() {
    let server = Server::running(Keeps::Nothing).await;
    let (bus, session) = (Bus::connect(&server.settings()).unwrap(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    let mut slow = bus.follow(session, None).await;
    publish(&bus, session, &["a", "b"]).await;
    let before = next_events(&mut follow, 2).await;
    let mut connection = server.connect().await;
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    publish(&bus, session, &["c"]).await;
    next_gap(&mut follow).await;
    let after = next_event(&mut follow).await;
    assert_eq!((after.id.n, text(&after).as_str()), (1, "c"));
    assert_ne!(after.id.epoch, before[0].id.epoch);
    assert!(gap_before(&mut slow, "c").await);
    // The fence is gone with the rest: whoever has the lease sets it again.
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    publish(&bus, session, &["d"]).await;
    assert!(gap_before(&mut follow, "d").await);
}

#[tokio::test]
async fn a_follower_may_come_before_the_server() {
    let mut server = Server::absent(Keeps::Nothing);
    let (bus, session) = (Bus::connect(&server.settings()).unwrap(), SessionId::generate());
    let mut follow = soon("a follower without a server", bus.follow(session, None)).await;
    assert_unavailable(&bus, session).await;
    server.start().await;
    up(&bus).await;
    // Where it began to follow is not known.
    next_gap(&mut follow).await;
    publish(&bus, session, &["a", "b"]).await;
    let events = next_events(&mut follow, 2).await;
    assert_follow_on(EventId { n: 0, ..events[0].id }, &events);
}

#[tokio::test]
async fn a_server_that_stands_still_is_away() {
    let server = Server::running(Keeps::Nothing).await;
    let (bus, session) = (Bus::connect(&server.settings()).unwrap(), SessionId::generate());
    up(&bus).await;
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["a"]).await;
    server.freeze();
    assert_unavailable(&bus, session).await;
    server.thaw();
    up(&bus).await;
    publish(&bus, session, &["b"]).await;
    // What nobody answered for may have been published all the same, and is then in its place.
    let first = next_event(&mut follow).await;
    let mut last = first.clone();
    while text(&last) != "b" {
        let event = next_event(&mut follow).await;
        assert_follow_on(last.id, std::slice::from_ref(&event));
        last = event;
    }
    assert_eq!(text(&first), "a");
}

#[tokio::test]
async fn a_lost_subscription_is_caught_up() {
    const EVENTS: u64 = 600;
    let server = Server::running(Keeps::Nothing).await;
    let (bus, session) = (Bus::connect(&server.settings()).unwrap(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    let mut connection = server.connect().await;
    let publishing = async {
        for n in 1..=EVENTS {
            publish(&bus, session, &[&n.to_string()]).await;
            if n % 100 == 0 {
                // Subscribed again, so that each time there is one to be lost.
                up(&bus).await;
                let mut kill = redis::cmd("CLIENT");
                kill.arg("KILL").arg("TYPE").arg("pubsub");
                kill.query_async::<()>(&mut connection).await.unwrap();
            }
        }
    };
    let ((), events) = tokio::join!(publishing, next_events(&mut follow, EVENTS));
    assert_follow_on(EventId { n: 0, ..events[0].id }, &events);
}
