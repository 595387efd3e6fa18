//! What a process rings in itself, past Redis.

use roundhouse_shared::domain::Lane;
use roundhouse_shared::queue::{Queue, QueueError};

use crate::site::{Reader, Site, push, ring};
use crate::support::{Keeps, Server, eventually};

/// How many rings a process holds.
const MOST: usize = 10_000;

on_both! {
    an_offer_reaches_the_own_source,
    an_offer_takes_no_ring_away,
    a_process_holds_so_many_and_no_more,
}

async fn an_offer_reaches_the_own_source(site: Site) {
    let (queue, other) = (site.queue(), site.queue());
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    for _ in 0..5 {
        let offered = ring();
        queue.offer(Lane::Chat, offered).unwrap();
        assert_eq!(reader.jobs(1).await, [offered]);
        // Waiting for the one does not end waiting for the other.
        let pushed = push(&other, Lane::Chat, 1).await;
        assert_eq!(reader.jobs(1).await, pushed);
    }
}

async fn an_offer_takes_no_ring_away(site: Site) {
    let (queue, other) = (site.queue(), site.queue());
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    for _ in 0..20 {
        let offered = ring();
        queue.offer(Lane::Chat, offered).unwrap();
        let turn = reader.next().await;
        assert_eq!(turn.session, offered);
        // The source may still wait at the queue, without a slot.
        let pushed = push(&other, Lane::Chat, 2).await;
        drop(turn);
        assert_eq!(reader.jobs(2).await, pushed);
    }
}

async fn a_process_holds_so_many_and_no_more(site: Site) {
    let queue = site.queue();
    for _ in 0..MOST {
        queue.offer(Lane::Inject, ring()).unwrap();
    }
    assert!(matches!(queue.offer(Lane::Inject, ring()), Err(QueueError::Full)));
    queue.offer(Lane::Chat, ring()).unwrap();
    let pushed = queue.push(Lane::Inject, ring()).await;
    match site {
        Site::Local(_) => assert!(matches!(pushed, Err(QueueError::Full))),
        Site::Redis(_) => pushed.unwrap(),
    }
    let depth = queue.depth(Lane::Inject).await.unwrap();
    assert_eq!(depth, if queue.is_shared() { 1 } else { MOST as u64 });
    Reader::start(&queue, Lane::Inject, 1).jobs(1).await;
    queue.offer(Lane::Inject, ring()).unwrap();
}

#[tokio::test]
async fn an_offer_is_delivered_while_redis_is_away() {
    let mut server = Server::absent(Keeps::Nothing);
    let queue = Queue::connect(&server.settings()).unwrap();
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    for _ in 0..3 {
        let offered = ring();
        queue.offer(Lane::Chat, offered).unwrap();
        assert_eq!(reader.jobs(1).await, [offered]);
    }
    server.start().await;
    eventually("the queue is up", async || queue.ping().await.is_ok()).await;
    let pushed = push(&queue, Lane::Chat, 1).await;
    assert_eq!(reader.jobs(1).await, pushed);
    let offered = ring();
    queue.offer(Lane::Chat, offered).unwrap();
    assert_eq!(reader.jobs(1).await, [offered]);
    server.kill();
    let offered = ring();
    queue.offer(Lane::Chat, offered).unwrap();
    assert_eq!(reader.jobs(1).await, [offered]);
}
