//! Three queues, each in the order of its rings.

use roundhouse_shared::domain::Lane;
use roundhouse_shared::queue::{Queue, QueueError};
use roundhouse_shared::redis::Settings;
use tokio::task::JoinSet;

use crate::site::{Reader, Site, depth, push, ring};

on_both! {
    a_queue_keeps_the_order_of_its_rings,
    a_queue_does_not_wait_for_another,
    a_depth_is_what_nobody_has_taken,
    a_session_that_waits_is_rung_for_once,
    a_session_that_was_taken_is_rung_for_again,
    rings_at_once_keep_their_order,
    a_ring_is_delivered_to_one_of_many,
    the_queues_answer,
}

async fn a_queue_keeps_the_order_of_its_rings(site: Site) {
    let (ringing, taking) = (site.queue(), site.queue());
    let before = push(&ringing, Lane::Chat, 20).await;
    let mut reader = Reader::start(&taking, Lane::Chat, 3);
    assert_eq!(reader.jobs(20).await, before);
    let after = push(&ringing, Lane::Chat, 20).await;
    assert_eq!(reader.jobs(20).await, after);
}

async fn a_queue_does_not_wait_for_another(site: Site) {
    let queue = site.queue();
    push(&queue, Lane::Chat, 3).await;
    let mut chat = Reader::start(&queue, Lane::Chat, 1);
    let turn = chat.next().await;
    for lane in [Lane::Inject, Lane::Maintenance] {
        let rings = push(&queue, lane, 2).await;
        let mut reader = Reader::start(&queue, lane, 1);
        assert_eq!(reader.jobs(2).await, rings);
    }
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 2, "behind the turn that goes on");
    drop(turn);
}

async fn a_depth_is_what_nobody_has_taken(site: Site) {
    let queue = site.queue();
    for (waiting, lane) in Lane::ALL.iter().enumerate() {
        assert_eq!(queue.depth(*lane).await.unwrap(), 0);
        push(&queue, *lane, waiting + 1).await;
    }
    for (waiting, lane) in Lane::ALL.iter().enumerate() {
        assert_eq!(site.queue().depth(*lane).await.unwrap(), waiting as u64 + 1);
        Reader::start(&queue, *lane, 1).jobs(1).await;
    }
}

async fn a_session_that_waits_is_rung_for_once(site: Site) {
    let queue = site.queue();
    let rings = push(&queue, Lane::Chat, 200).await;
    for _ in 0..3 {
        site.queue().push_all(Lane::Chat, &rings).await.unwrap();
        queue.push(Lane::Chat, rings[7]).await.unwrap();
    }
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 200);
    // Each queue has its own.
    queue.push(Lane::Maintenance, rings[0]).await.unwrap();
    assert_eq!(queue.depth(Lane::Maintenance).await.unwrap(), 1);
    assert_eq!(Reader::start(&queue, Lane::Chat, 1).jobs(200).await, rings);
    depth(&queue, Lane::Chat, 0).await;
}

async fn a_session_that_was_taken_is_rung_for_again(site: Site) {
    let queue = site.queue();
    let rung = push(&queue, Lane::Chat, 1).await[0];
    let mut reader = Reader::start(&queue, Lane::Chat, 2);
    let turn = reader.next().await;
    queue.push(Lane::Chat, rung).await.unwrap();
    assert_eq!(reader.next().await.session, rung);
    drop(turn);
}

async fn rings_at_once_keep_their_order(site: Site) {
    let queue = site.queue();
    let first = push(&queue, Lane::Chat, 1).await;
    let rings: Vec<_> = (0..500).map(|_| ring()).collect();
    queue.push_all(Lane::Chat, &rings).await.unwrap();
    let last = push(&site.queue(), Lane::Chat, 1).await;
    let expected = [first, rings, last].concat();
    assert_eq!(Reader::start(&queue, Lane::Chat, 1).jobs(502).await, expected);
}

async fn a_ring_is_delivered_to_one_of_many(site: Site) {
    const SOURCES: usize = 4;
    const RINGS: usize = 200;
    let mut taking = JoinSet::new();
    let (send, mut taken) = tokio::sync::mpsc::channel(RINGS);
    for _ in 0..SOURCES {
        let (mut reader, send) = (Reader::start(&site.queue(), Lane::Chat, 3), send.clone());
        taking.spawn(async move {
            while let Some(delivery) = reader.try_next().await {
                send.send(delivery.session).await.unwrap();
            }
        });
    }
    let queue = site.queue();
    let mut rings = push(&queue, Lane::Chat, RINGS).await;
    let mut jobs = Vec::new();
    for _ in 0..RINGS {
        jobs.push(crate::support::soon("all rings", taken.recv()).await.unwrap());
    }
    rings.sort_unstable();
    jobs.sort_unstable();
    assert_eq!(jobs, rings);
    depth(&queue, Lane::Chat, 0).await;
    assert!(taken.is_empty());
}

async fn the_queues_answer(site: Site) {
    let queue = site.queue();
    queue.ping().await.unwrap();
    assert_eq!(queue.is_shared(), matches!(site, Site::Redis(_)));
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_refused_at_once() {
    for url in ["nonsense", "postgres://user:secret@localhost/db"] {
        let settings = Settings { url: url.to_owned(), ..Settings::default() };
        let error = Queue::connect(&settings).unwrap_err();
        assert!(matches!(error, QueueError::BadUrl(_)), "{url}");
        assert!(!format!("{error}").contains("secret"), "{error}");
    }
}
