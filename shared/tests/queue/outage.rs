//! A Redis that goes away and comes back: what it lost is the sweeper's, and the queues go on by themselves.

use std::time::{Duration, Instant};

use redis::AsyncCommands as _;
use roundhouse_shared::domain::Lane;
use roundhouse_shared::queue::{Queue, QueueError};

use crate::site::{Reader, push, ring};
use crate::support::{Keeps, Refusal, Server, eventually};

/// A command has three seconds; so much more a slow machine may take.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);

async fn up(queue: &Queue) {
    eventually("the queue is up", async || queue.ping().await.is_ok()).await;
}

async fn assert_unavailable(queue: &Queue) {
    let start = Instant::now();
    let (pushed, ping, depth) =
        tokio::join!(queue.push(Lane::Chat, ring()), queue.ping(), queue.depth(Lane::Chat));
    assert!(start.elapsed() < REFUSED_WITHIN, "{:?}", start.elapsed());
    assert!(matches!(pushed, Err(QueueError::Unavailable(_))));
    assert!(matches!(ping, Err(QueueError::Unavailable(_))));
    assert!(matches!(depth, Err(QueueError::Unavailable(_))));
}

#[tokio::test]
async fn a_source_may_come_before_the_server() {
    let mut server = Server::absent(Keeps::Nothing);
    let queue = Queue::connect(&server.settings()).unwrap();
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    assert_unavailable(&queue).await;
    server.start().await;
    up(&queue).await;
    let rings = push(&queue, Lane::Chat, 3).await;
    assert_eq!(reader.jobs(3).await, rings);
}

#[tokio::test]
async fn a_queue_goes_on_after_the_server_was_away() {
    let mut server = Server::running(Keeps::Nothing).await;
    let queue = Queue::connect(&server.settings()).unwrap();
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    for _ in 0..2 {
        let rings = push(&queue, Lane::Chat, 2).await;
        assert_eq!(reader.jobs(2).await, rings);
        server.kill();
        // The connection that is used next may not know yet.
        eventually("the queue is down", async || queue.ping().await.is_err()).await;
        assert_unavailable(&queue).await;
        server.start().await;
        up(&queue).await;
    }
    let rings = push(&queue, Lane::Chat, 2).await;
    assert_eq!(reader.jobs(2).await, rings);
}

#[tokio::test]
async fn rings_survive_with_a_server_that_keeps_them() {
    let mut server = Server::running(Keeps::Everything).await;
    let queue = Queue::connect(&server.settings()).unwrap();
    let rings = push(&queue, Lane::Chat, 5).await;
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    let turn = reader.next().await;
    server.kill();
    server.start().await;
    up(&queue).await;
    assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 4);
    assert_eq!(turn.session, rings[0]);
    drop(turn);
    assert_eq!(reader.jobs(4).await, rings[1..]);
}

#[tokio::test]
async fn a_server_that_stands_still_is_away() {
    let server = Server::running(Keeps::Nothing).await;
    let queue = Queue::connect(&server.settings()).unwrap();
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    up(&queue).await;
    server.freeze();
    assert_unavailable(&queue).await;
    let offered = ring();
    queue.offer(Lane::Chat, offered).unwrap();
    assert_eq!(reader.jobs(1).await, [offered]);
    server.thaw();
    up(&queue).await;
    // What nobody answered for may have been rung all the same; what is rung from now on comes.
    let last = push(&queue, Lane::Chat, 1).await[0];
    while reader.next().await.session != last {}
}

#[tokio::test]
async fn what_cannot_be_read_is_dropped() {
    let server = Server::running(Keeps::Nothing).await;
    let queue = Queue::connect(&server.settings()).unwrap();
    let mut connection = server.connect().await;
    let mut rings = push(&queue, Lane::Chat, 1).await;
    let keys: Vec<String> = connection.keys("*").await.unwrap();
    assert_eq!(keys.len(), 1);
    for unreadable in [&b""[..], b"nonsense", b"{}", b"\xff\xfe"] {
        connection.zadd::<_, _, _, ()>(&keys[0], unreadable, 0).await.unwrap();
    }
    rings.extend(push(&queue, Lane::Chat, 1).await);
    let mut reader = Reader::start(&queue, Lane::Chat, 1);
    assert_eq!(reader.jobs(rings.len()).await, rings);
}

#[tokio::test]
async fn a_server_that_refuses_writes_is_away_until_it_takes_them() {
    for refusal in [Refusal::Full, Refusal::Replica, Refusal::CannotSave] {
        let server = Server::running(Keeps::Nothing).await;
        let queue = Queue::connect(&server.settings()).unwrap();
        let mut reader = Reader::start(&queue, Lane::Chat, 1);
        let rings = push(&queue, Lane::Chat, 1).await;
        assert_eq!(reader.jobs(1).await, rings);

        server.refuse(refusal).await;
        for _ in 0..2 {
            let error = queue.push(Lane::Chat, ring()).await.unwrap_err();
            let told = roundhouse_shared::problem::chain(&error);
            assert!(told.contains(refusal.code()), "{refusal:?}: {told}");
            assert!(matches!(queue.ping().await, Err(QueueError::Unavailable(Some(_)))), "{refusal:?}");
        }
        // Reads work all the while; the source waits on, and takes what this process offers itself.
        assert_eq!(queue.depth(Lane::Chat).await.unwrap(), 0);
        let offered = ring();
        queue.offer(Lane::Chat, offered).unwrap();
        assert_eq!(reader.jobs(1).await, [offered]);

        server.accept(refusal).await;
        up(&queue).await;
        let rings = push(&queue, Lane::Chat, 2).await;
        assert_eq!(reader.jobs(2).await, rings, "{refusal:?}");
    }
}

/// A source that is refused must not ask without a pause.
#[tokio::test]
async fn a_source_does_not_storm_a_server_that_refuses_pops() {
    let server = Server::running(Keeps::Nothing).await;
    let queue = Queue::connect(&server.settings()).unwrap();
    let reader = Reader::start(&queue, Lane::Chat, 1);
    let mut connection = server.connect().await;
    let pops = async |connection: &mut redis::aio::MultiplexedConnection| -> u64 {
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_bzpopmin:"));
        let Some(line) = line else { return 0 };
        let number = |name: &str| {
            let value = line.split([':', ',']).find_map(|field| field.strip_prefix(name));
            value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
        };
        number("calls=") + number("rejected_calls=")
    };
    eventually("the source waits for a ring", async || 0 < pops(&mut connection).await).await;
    server.refuse(Refusal::Replica).await;
    let before = pops(&mut connection).await;
    eventually("the source to be refused twice", async || before + 2 <= pops(&mut connection).await).await;
    let (start, counted) = (Instant::now(), pops(&mut connection).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = pops(&mut connection).await - counted;
    assert!(asked <= 4 + start.elapsed().as_secs() * 4, "{asked} pops in {:?}", start.elapsed());
    drop(reader);
}
