//! Where the replay ends and what is live begins, there is neither a hole nor a second time.

use std::sync::Arc;

use roundhouse_shared::bus::{Bus, Follow};
use roundhouse_shared::domain::{Event, EventId, SessionId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::site::{Site, assert_follow_on, next_event, next_events, publish, texts};

on_both! {
    replay_and_live_join_while_publishers_run,
    a_reader_that_reconnects_has_everything_once,
    an_event_that_comes_while_its_follower_looks_is_seen,
    followers_come_and_go_beside_one_that_stays,
}

/// Publishers, on two processes, that publish as much as they are let: else a log could be over before it is read.
struct Publishers {
    let_go: Arc<Semaphore>,
    tasks: JoinSet<()>,
}

/// What is published for each time that they are let.
const AT_ONCE: u64 = 3;

impl Publishers {
    fn start(session: SessionId, buses: &[Bus]) -> Self {
        let let_go = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        for bus in buses {
            let (bus, let_go) = (bus.clone(), let_go.clone());
            tasks.spawn(async move {
                while let Ok(time) = let_go.acquire().await {
                    time.forget();
                    publish(&bus, session, &["one"]).await;
                    publish(&bus, session, &["two", "three"]).await;
                }
            });
        }
        Self { let_go, tasks }
    }

    fn let_go(&self, times: u64) {
        self.let_go.add_permits(usize::try_from(times).unwrap());
    }

    async fn stop(self) {
        self.let_go.close();
        self.tasks.join_all().await;
    }
}

/// Reads until the event of that text.
async fn read_until(follow: &mut Follow, last: &str) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        events.push(next_event(follow).await);
        if texts(&events[events.len() - 1..]) == [last] {
            return events;
        }
    }
}

async fn replay_and_live_join_while_publishers_run(site: Site) {
    const ROUNDS: u64 = 40;
    const TIMES: u64 = 20;
    let session = SessionId::generate();
    let buses = [site.bus(), site.bus()];
    let mut witness = buses[0].follow(session, None).await;
    publish(&buses[0], session, &["first"]).await;
    let mut newest = next_event(&mut witness).await.id;
    let publishers = Publishers::start(session, &buses);
    for round in 0..ROUNDS {
        let mut followers = JoinSet::new();
        for follower in 0..8 {
            let bus = buses[usize::from(follower % 2 == 0)].clone();
            // Anywhere in the newest thousand, in what the process has for itself and in what only the log has.
            let back = (round * 7_919 + follower * 389) % newest.n.min(1_000);
            let after = EventId { n: newest.n - back, ..newest };
            followers.spawn(async move {
                let mut follow = bus.follow(session, Some(after)).await;
                assert_follow_on(after, &next_events(&mut follow, back + AT_ONCE * TIMES).await);
            });
            publishers.let_go(TIMES / 8);
        }
        publishers.let_go(TIMES % 8);
        let events = next_events(&mut witness, AT_ONCE * TIMES).await;
        assert_follow_on(newest, &events);
        newest = events[events.len() - 1].id;
        followers.join_all().await;
    }
    publishers.stop().await;
}

async fn a_reader_that_reconnects_has_everything_once(site: Site) {
    const MOST: u64 = 7;
    let session = SessionId::generate();
    let buses = [site.bus(), site.bus()];
    let mut witness = buses[0].follow(session, None).await;
    let mut follow = buses[1].follow(session, None).await;
    let publishers = Publishers::start(session, &buses);
    let mut events = Vec::new();
    for round in 0..50 {
        publishers.let_go(MOST.div_ceil(AT_ONCE));
        events.extend(next_events(&mut follow, round % MOST + 1).await);
        let last = events[events.len() - 1].id;
        follow = buses[usize::from(round % 2 == 0)].follow(session, Some(last)).await;
    }
    publishers.stop().await;
    publish(&buses[0], session, &["last"]).await;
    events.extend(read_until(&mut follow, "last").await);
    assert_eq!(events, read_until(&mut witness, "last").await);
    assert_follow_on(EventId { n: 0, ..events[0].id }, &events);
}

async fn an_event_that_comes_while_its_follower_looks_is_seen(site: Site) {
    const EVENTS: u64 = 2_000;
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut follow = site.bus().follow(session, None).await;
    let (ask, mut asked) = tokio::sync::mpsc::channel(1);
    let mut publisher = JoinSet::new();
    publisher.spawn(async move {
        while asked.recv().await.is_some() {
            publish(&bus, session, &["one"]).await;
        }
    });
    // No other event comes to its help.
    for n in 1..=EVENTS {
        ask.send(()).await.unwrap();
        assert_eq!(next_event(&mut follow).await.id.n, n);
    }
}

async fn followers_come_and_go_beside_one_that_stays(site: Site) {
    const VISITORS: usize = 3;
    let (bus, session) = (site.bus(), SessionId::generate());
    let mut visitors = JoinSet::new();
    for _ in 0..VISITORS {
        let bus = bus.clone();
        visitors.spawn(async move {
            for n in 0..100 {
                // The one before is still there, or is the last to leave.
                let mut follow = bus.follow(session, None).await;
                if n % 2 == 0 {
                    publish(&bus, session, &["visit"]).await;
                    next_event(&mut follow).await;
                }
            }
        });
    }
    visitors.join_all().await;
    let mut follow = bus.follow(session, None).await;
    publish(&site.bus(), session, &["last"]).await;
    read_until(&mut follow, "last").await;
}
