//! A source ends with its token, and holds nothing any more.

use roundhouse_shared::domain::Lane;
use roundhouse_shared::queue::Queue;

use crate::site::{Reader, Site, push};
use crate::support::{Keeps, Server, connections, eventually, soon};

on_both! {
    a_source_ends_with_its_token,
    a_source_that_waits_for_a_slot_ends_with_its_token,
    a_dropped_source_gives_its_slot_back,
}

async fn a_source_ends_with_its_token(site: Site) {
    let queue = site.queue();
    let mut reader = Reader::start(&queue, Lane::Chat, 2);
    push(&queue, Lane::Chat, 1).await;
    let turn = reader.next().await;
    reader.free(0).await;
    reader.stop.cancel();
    assert!(soon("the end", reader.try_next()).await.is_none());
    assert!(soon("the end again", reader.try_next()).await.is_none());
    // The turn that runs keeps its slot.
    reader.free(1).await;
    drop(turn);
    reader.free(2).await;
}

async fn a_source_that_waits_for_a_slot_ends_with_its_token(site: Site) {
    let queue = site.queue();
    push(&queue, Lane::Chat, 2).await;
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    let turn = reader.next().await;
    reader.stop.cancel();
    assert!(soon("the end", reader.try_next()).await.is_none());
    drop(turn);
    reader.free(1).await;
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 1);
}

async fn a_dropped_source_gives_its_slot_back(site: Site) {
    let reader = Reader::start(&site.queue(), Lane::Inject, 1);
    reader.free(0).await;
    let slots = reader.slots.clone();
    drop(reader);
    eventually("the slot is free", async || slots.free() == 1).await;
}

#[tokio::test]
async fn what_is_rung_after_a_stop_waits_for_others() {
    let server = Server::running(Keeps::Nothing).await;
    let mut connection = server.connect().await;
    let queue = Queue::connect(&server.settings()).unwrap();
    let reader = Reader::start(&queue, Lane::Chat, 1);
    eventually("the source waits for a ring", async || {
        let info: String = redis::cmd("INFO").arg("clients").query_async(&mut connection).await.unwrap();
        info.contains("blocked_clients:1")
    })
    .await;
    reader.stop.cancel();
    eventually("its connection is closed", async || connections(&mut connection).await == 0).await;
    let rings = push(&queue, Lane::Chat, 2).await;
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 2);
    let other = Queue::connect(&server.settings()).unwrap();
    assert_eq!(Reader::start(&other, Lane::Chat, 1).jobs(2).await, rings);
    drop((queue, other, reader));
    eventually("no connection", async || connections(&mut connection).await == 0).await;
}
