//! Another server, or older data, in the place of the one that gave the numbers: whoever was told numbers is told of a gap.

use roundhouse_shared::bus::Bus;
use roundhouse_shared::domain::{EventId, SessionId};
use roundhouse_shared::redis::Settings;

use crate::proxy::{Proxy, target_of};
use crate::site::{assert_follow_on, next_event, next_events, next_gap, publish, text, texts, up};
use crate::support::{Keeps, Server, eventually};

async fn command(server: &Server, words: &[&str]) -> String {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async(&mut server.connect().await).await.unwrap()
}

/// Lets a server follow what listens at an address, and waits until it has its data.
async fn replicate(replica: &Server, address: &str) {
    let (host, port) = address.rsplit_once(':').unwrap();
    command(replica, &["REPLICAOF", host, port]).await;
    eventually("the replica is in sync", async || {
        command(replica, &["INFO", "replication"]).await.contains("master_link_status:up")
    })
    .await;
}

/// Publishes until the numbers that were told are given a second time, and asserts that nobody who was told them goes on
/// without a word.
async fn assert_gap_after(bus: &Bus, session: SessionId, told: EventId) {
    publish(bus, session, &["e", "f", "g"]).await;
    let mut returned = bus.follow(session, Some(told)).await;
    next_gap(&mut returned).await;
    let after = next_events(&mut returned, 3).await;
    assert_eq!(texts(&after), ["e", "f", "g"]);
    assert_ne!(after[0].id.epoch, told.epoch);
    assert_follow_on(EventId { n: 0, ..after[0].id }, &after);
    // Everybody agrees on the new numbers.
    let mut late = bus.follow(session, Some(after[0].id)).await;
    assert_eq!(texts(&next_events(&mut late, 2).await), ["f", "g"]);
}

#[tokio::test]
async fn a_server_that_was_restored_from_an_older_dump_is_a_gap() {
    let mut server = Server::running(Keeps::Nothing).await;
    let (bus, other) = (Bus::connect(&server.settings()).unwrap(), Bus::connect(&server.settings()).unwrap());
    let (session, quiet) = (SessionId::generate(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["a", "b"]).await;
    publish(&bus, quiet, &["a"]).await;
    command(&server, &["SAVE"]).await;
    publish(&bus, session, &["c", "d"]).await;
    let told = next_events(&mut follow, 4).await[3].id;
    server.kill();
    server.start().await;
    up(&bus).await;
    up(&other).await;
    assert_gap_after(&other, session, told).await;
    next_gap(&mut follow).await;
    assert_eq!(texts(&next_events(&mut follow, 3).await), ["e", "f", "g"]);
    // A place can be asked for before anything is published.
    let mut of_quiet = other.follow(quiet, Some(EventId { n: 5, ..told })).await;
    next_gap(&mut of_quiet).await;
    publish(&bus, quiet, &["b"]).await;
    assert_eq!(text(&next_event(&mut of_quiet).await), "b");
}

#[tokio::test]
async fn a_replica_that_was_promoted_is_a_gap() {
    let (master, replica) = (Server::running(Keeps::Nothing).await, Server::running(Keeps::Nothing).await);
    let [at_master, at_replica] = [&master, &replica].map(|server| target_of(&server.settings().url));
    let (door, link) = (Proxy::to(&at_master).await, Proxy::to(&at_master).await);
    let settings = Settings { url: door.url(&master.settings().url), ..Settings::default() };
    let (bus, session) = (Bus::connect(&settings).unwrap(), SessionId::generate());
    replicate(&replica, &link.address().to_string()).await;
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["a", "b"]).await;
    assert_eq!(next_events(&mut follow, 2).await.len(), 2);
    eventually("the replica has both", async || {
        let log = format!("roundhouse:{{{session}}}:events:v1");
        redis::cmd("XLEN").arg(log).query_async::<u64>(&mut replica.connect().await).await.unwrap() == 2
    })
    .await;
    // What is published from now on it never gets.
    link.refuse(true);
    link.cut_all();
    publish(&bus, session, &["c", "d"]).await;
    let told = next_events(&mut follow, 2).await[1].id;
    command(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    door.retarget(&at_replica);
    door.cut_all();
    up(&bus).await;
    eventually("publishing works", async || bus.ping().await.is_ok()).await;
    assert_gap_after(&bus, session, told).await;
    next_gap(&mut follow).await;
    assert_eq!(text(&next_event(&mut follow).await), "e");
}

#[tokio::test]
async fn a_server_that_got_older_data_back_while_it_ran_is_a_gap() {
    let (server, backup) = (Server::running(Keeps::Nothing).await, Server::running(Keeps::Nothing).await);
    let [here, there] = [&server, &backup].map(|server| target_of(&server.settings().url));
    let (bus, session) = (Bus::connect(&server.settings()).unwrap(), SessionId::generate());
    let mut follow = bus.follow(session, None).await;
    publish(&bus, session, &["a", "b"]).await;
    assert_eq!(next_events(&mut follow, 2).await.len(), 2);
    // Its first replica gives a server a new identity.
    replicate(&backup, &here).await;
    command(&backup, &["REPLICAOF", "NO", "ONE"]).await;
    publish(&bus, session, &["c", "d"]).await;
    next_gap(&mut follow).await;
    let told = next_events(&mut follow, 2).await[1].id;
    // The same process, with the same connections, and the data of some time ago.
    replicate(&server, &there).await;
    command(&server, &["REPLICAOF", "NO", "ONE"]).await;
    assert_gap_after(&bus, session, told).await;
}
