//! What a process holds of a Redis, and that it lets go of it.

use redis::aio::MultiplexedConnection;
use roundhouse_shared::bus::{Bus, BusError};
use roundhouse_shared::domain::{EventId, SessionId};
use roundhouse_shared::redis::Settings;

use crate::site::{next_event, next_gap, publish, up};
use crate::support::{Keeps, Server, connections, eventually};

/// The channels that somebody is subscribed to.
async fn channels(connection: &mut MultiplexedConnection) -> usize {
    let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query_async(connection).await.unwrap();
    channels.len()
}

#[tokio::test]
async fn a_channel_goes_with_its_last_follower() {
    let server = Server::running(Keeps::Nothing).await;
    let mut connection = server.connect().await;
    let bus = Bus::connect(&server.settings()).unwrap();
    up(&bus).await;
    assert_eq!(channels(&mut connection).await, 1, "that of the notices");
    let sessions: Vec<_> = (0..600).map(|_| SessionId::generate()).collect();
    for round in 0..3 {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for session in &sessions {
            first.push(bus.follow(*session, None).await);
            second.push(bus.follow(*session, None).await);
        }
        eventually("one channel for each session", async || channels(&mut connection).await == 601).await;
        drop(first);
        publish(&bus, sessions[round], &["to who is left"]).await;
        next_event(&mut second[round]).await;
        assert_eq!(channels(&mut connection).await, 601);
        drop(second);
        eventually("no channel but one", async || channels(&mut connection).await == 1).await;
    }
}

#[tokio::test]
async fn a_follower_that_comes_at_once_after_the_last_one_left_hears() {
    let server = Server::running(Keeps::Nothing).await;
    let (bus, publisher) =
        (Bus::connect(&server.settings()).unwrap(), Bus::connect(&server.settings()).unwrap());
    up(&bus).await;
    let session = SessionId::generate();
    for _ in 0..200 {
        let mut follow = bus.follow(session, None).await;
        publish(&publisher, session, &["hello"]).await;
        next_event(&mut follow).await;
    }
}

#[tokio::test]
async fn a_dropped_bus_leaves_no_connection() {
    let server = Server::running(Keeps::Nothing).await;
    let mut connection = server.connect().await;
    let session = SessionId::generate();
    for _ in 0..3 {
        let bus = Bus::connect(&server.settings()).unwrap();
        up(&bus).await;
        let mut follow = bus.follow(session, None).await;
        publish(&bus, session, &["hello"]).await;
        next_event(&mut follow).await;
        assert_eq!(connections(&mut connection).await, 2, "one for commands, one for the subscription");
        drop(bus);
        // Whoever follows holds the bus.
        assert_eq!(connections(&mut connection).await, 2);
        drop(follow);
        eventually("no connection", async || connections(&mut connection).await == 0).await;
    }
}

#[tokio::test]
async fn a_bus_is_dropped_while_there_is_no_server() {
    let server = Server::absent(Keeps::Nothing);
    let bus = Bus::connect(&server.settings()).unwrap();
    let follow = bus.follow(SessionId::generate(), None).await;
    assert!(bus.ping().await.is_err());
    drop((bus, follow));
    let runtime = tokio::runtime::Handle::current();
    eventually("no task but this", async || runtime.metrics().num_alive_tasks() == 0).await;
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_refused_at_once_and_not_shown() {
    for url in ["nonsense", "postgres://user:secret@localhost/db", "redis://user:secret@host:port"] {
        let settings = Settings { url: url.to_owned(), ..Settings::default() };
        let error = Bus::connect(&settings).unwrap_err();
        assert!(matches!(error, BusError::BadUrl(_)), "{url}");
        assert!(!format!("{error}").contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn deployments_with_other_prefixes_share_a_server_and_nothing_else() {
    let server = Server::running(Keeps::Nothing).await;
    let named = |prefix: &str| Settings { prefix: prefix.to_owned(), ..server.settings() };
    let (one, other) = (Bus::connect(&named("a")).unwrap(), Bus::connect(&named("ab")).unwrap());
    let session = SessionId::generate();
    let (mut of_one, mut of_other) = (one.follow(session, None).await, other.follow(session, None).await);
    publish(&one, session, &["one"]).await;
    publish(&other, session, &["other"]).await;
    let (of_one, of_other) = (next_event(&mut of_one).await, next_event(&mut of_other).await);
    assert_eq!((of_one.id.n, of_other.id.n), (1, 1));
    assert_ne!(of_one.id.epoch, of_other.id.epoch);
    let mut lost = other.follow(session, Some(EventId { n: 1, ..of_one.id })).await;
    next_gap(&mut lost).await;
}
