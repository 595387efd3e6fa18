//! Any interleaving of publishers and followers ends as the design says.
//!
//! A stream is a list of numberings, each a list of events; a follower is a place in it. What comes next for it is the
//! next event of its numbering, or, where that is not the newest, a gap and then the newest from its start.

use futures::FutureExt as _;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use roundhouse_shared::bus::{Bus, BusError, Follow, Followed, Numbering};
use roundhouse_shared::domain::{EventId, LeaseToken, SessionId};

use crate::site::{Site, event, next, text};

/// One step of somebody.
#[derive(Debug, Clone, Copy)]
enum Step {
    Publish { process: usize, count: usize, token: Option<i64>, numbering: Numbering },
    Follow { process: usize, after: After },
    Read { follower: usize, count: usize },
    Leave { follower: usize },
}

/// From where somebody follows.
#[derive(Debug, Clone, Copy)]
enum After {
    Now,
    /// So many events before the newest.
    Earlier(usize),
    /// An event that never was.
    Elsewhere,
}

fn step() -> impl Strategy<Value = Step> {
    let process = || 0..2_usize;
    // Now and then more than a process keeps for itself.
    let count = prop_oneof![20 => 1..5_usize, 1 => 257..300_usize];
    let token = prop_oneof![1 => Just(None), 2 => (1..5_i64).prop_map(Some)];
    let numbering = prop_oneof![6 => Just(Numbering::Continue), 1 => Just(Numbering::Restart)];
    let after = prop_oneof![
        3 => Just(After::Now),
        3 => (0..20_usize).prop_map(After::Earlier),
        1 => (0..600_usize).prop_map(After::Earlier),
        1 => Just(After::Elsewhere),
    ];
    prop_oneof![
        6 => (process(), count, token, numbering)
            .prop_map(|(process, count, token, numbering)| Step::Publish { process, count, token, numbering }),
        2 => (process(), after).prop_map(|(process, after)| Step::Follow { process, after }),
        4 => (0..10_usize, 1..20_usize).prop_map(|(follower, count)| Step::Read { follower, count }),
        1 => (0..10_usize).prop_map(|follower| Step::Leave { follower }),
    ]
}

/// Fewer than a log holds.
const MOST: usize = 1_500;

/// What was published: each numbering's name, once somebody has seen it, and its events.
#[derive(Debug, Default)]
struct Numbered {
    epoch: Option<u64>,
    texts: Vec<String>,
}

/// A follower and where it is: in which numbering, after how many events. `None` where it asked for what never was.
struct Reader {
    follow: Follow,
    place: Option<(usize, usize)>,
}

struct Simulation {
    buses: [Bus; 2],
    session: SessionId,
    stream: Vec<Numbered>,
    published: usize,
    token: i64,
    readers: Vec<Reader>,
}

impl Simulation {
    async fn run(site: Site, steps: &[Step]) {
        let session = SessionId::generate();
        let mut simulation = Self {
            buses: [site.bus(), site.bus()],
            session,
            stream: vec![Numbered::default()],
            published: 0,
            token: 0,
            readers: Vec::new(),
        };
        // The first reader reads everything at once, and so learns the names of the numberings.
        simulation.follow(0, After::Now).await;
        for step in steps {
            simulation.step(*step).await;
        }
        simulation.publish(0, 1, None, Numbering::Continue).await;
        for reader in 0..simulation.readers.len() {
            simulation.read(reader, usize::MAX).await;
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Publish { process, count, token, numbering } => {
                self.publish(process, count, token, numbering).await;
                self.read(0, usize::MAX).await;
            }
            Step::Follow { process, after } => self.follow(process, after).await,
            Step::Read { follower, count } => self.read(follower % self.readers.len(), count).await,
            Step::Leave { follower } => {
                let follower = follower % self.readers.len();
                if 0 < follower {
                    self.readers.swap_remove(follower);
                }
            }
        }
    }

    async fn publish(&mut self, process: usize, count: usize, token: Option<i64>, numbering: Numbering) {
        let count = count.min(1.max(MOST.saturating_sub(self.published)));
        let texts: Vec<_> = (self.published..).take(count).map(|n| n.to_string()).collect();
        let events: Vec<_> = texts.iter().map(|text| event(text)).collect();
        let fence = token.map(LeaseToken);
        let published = self.buses[process].publish(self.session, fence, numbering, &events).await;
        if token.is_some_and(|token| token < self.token) {
            assert!(matches!(published, Err(BusError::Fenced)));
            return;
        }
        published.unwrap();
        self.token = token.unwrap_or(self.token);
        self.published += count;
        if numbering == Numbering::Restart {
            self.stream.push(Numbered::default());
        }
        self.stream.last_mut().unwrap().texts.extend(texts);
    }

    async fn follow(&mut self, process: usize, after: After) {
        let newest = self.end();
        let (id, place) = match after {
            After::Earlier(back) if 0 < self.published => {
                let place = self.earlier(back);
                (Some(self.id(place)), Some(place))
            }
            After::Elsewhere => (Some(EventId { epoch: 1 << 60, n: 1 }), None),
            After::Now | After::Earlier(_) => (None, Some(newest)),
        };
        let follow = self.buses[process].follow(self.session, id).await;
        self.readers.push(Reader { follow, place });
    }

    /// The place after the newest event.
    fn end(&self) -> (usize, usize) {
        (self.stream.len() - 1, self.stream.last().unwrap().texts.len())
    }

    /// The place after the event that was published so many before the newest, or after the first.
    fn earlier(&self, mut back: usize) -> (usize, usize) {
        let mut first = self.end();
        for (numbering, Numbered { texts, .. }) in self.stream.iter().enumerate().rev() {
            if back < texts.len() {
                return (numbering, texts.len() - back);
            }
            back -= texts.len();
            if !texts.is_empty() {
                first = (numbering, 1);
            }
        }
        first
    }

    fn id(&self, (numbering, n): (usize, usize)) -> EventId {
        EventId { epoch: self.stream[numbering].epoch.unwrap(), n: n as u64 }
    }

    /// Reads so many things, or all there are.
    async fn read(&mut self, reader: usize, count: usize) {
        let end = self.end();
        let Self { readers, stream, .. } = self;
        let Reader { follow, place } = &mut readers[reader];
        for _ in 0..count {
            if *place == Some(end) {
                assert_eq!(follow.next().now_or_never(), None, "there is nothing more");
                return;
            }
            match (next(follow).await, *place) {
                (Followed::Event(event), Some((numbering, n))) => {
                    let Numbered { epoch, texts } = &mut stream[numbering];
                    let epoch = *epoch.get_or_insert(event.id.epoch);
                    assert_eq!(event.id, EventId { epoch, n: n as u64 + 1 });
                    assert_eq!(Some(&text(&event)), texts.get(n));
                    *place = Some((numbering, n + 1));
                }
                (Followed::Event(event), None) => panic!("no gap before {event:?}"),
                (Followed::Gap, Some((numbering, _))) if numbering == end.0 => panic!("a gap for no reason"),
                (Followed::Gap, _) => *place = Some((end.0, 0)),
            }
        }
    }
}

fn check(cases: u32, site: fn() -> Site) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let steps = vec(step(), 1..60);
    let checked = TestRunner::new(config).run(&steps, |steps| {
        runtime.block_on(Simulation::run(site(), &steps));
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn any_interleaving_is_as_designed_within_one_process() {
    check(256, Site::local);
}

#[test]
fn any_interleaving_is_as_designed_over_redis() {
    check(40, Site::redis);
}
