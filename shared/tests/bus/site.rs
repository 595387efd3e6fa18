//! Where a case runs, and short ways to publish and to listen.

use roundhouse_shared::bus::{Bus, BusError, Follow, Followed, Numbering};
use roundhouse_shared::domain::{Event, EventId, EventName, LeaseToken, NewEvent, SessionId};
use roundhouse_shared::redis::Settings;

use crate::support::{eventually, shared, soon};

/// Runs each case within one process and over Redis.
macro_rules! on_both {
    ($($case:ident,)*) => {
        mod within_one_process {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(crate::site::Site::local()).await;
                }
            )*
        }

        mod over_redis {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(crate::site::Site::redis()).await;
                }
            )*
        }
    };
}

/// One deployment, which processes take part in.
pub(crate) enum Site {
    /// All of them are one.
    Local(Bus),
    /// They have a Redis in common.
    Redis(Settings),
}

impl Site {
    pub(crate) fn local() -> Self {
        Self::Local(Bus::local())
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(shared())
    }

    /// The bus as another process has it.
    pub(crate) fn bus(&self) -> Bus {
        match self {
            Self::Local(bus) => bus.clone(),
            Self::Redis(settings) => Bus::connect(settings).unwrap(),
        }
    }
}

/// Waits until the bus says that it works.
pub(crate) async fn up(bus: &Bus) {
    eventually("the bus is up", async || bus.ping().await.is_ok()).await;
}

/// An event that can be told from others.
pub(crate) fn event(text: &str) -> NewEvent {
    let data = serde_json::json!({ "text": text }).to_string();
    NewEvent { name: EventName::MessageDelta, job: None, turn: None, data }
}

/// Publishes one after another in one step, as nobody in particular.
pub(crate) async fn publish(bus: &Bus, session: SessionId, texts: &[&str]) {
    let events: Vec<_> = texts.iter().map(|text| event(text)).collect();
    bus.publish(session, None, Numbering::Continue, &events).await.unwrap();
}

/// Publishes, so many at once, events that are called as their number would be, were they the first.
pub(crate) async fn publish_many(bus: &Bus, session: SessionId, count: u64) {
    let events: Vec<_> = (1..=count).map(|n| event(&n.to_string())).collect();
    for some in events.chunks(100) {
        bus.publish(session, None, Numbering::Continue, some).await.unwrap();
    }
}

/// Publishes after something was lost.
pub(crate) async fn restart(bus: &Bus, session: SessionId, texts: &[&str]) {
    let events: Vec<_> = texts.iter().map(|text| event(text)).collect();
    bus.publish(session, None, Numbering::Restart, &events).await.unwrap();
}

/// Publishes one with a token.
pub(crate) async fn publish_as(
    bus: &Bus,
    session: SessionId,
    token: i64,
    text: &str,
) -> Result<(), BusError> {
    bus.publish(session, Some(LeaseToken(token)), Numbering::Continue, &[event(text)]).await
}

/// What comes next.
pub(crate) async fn next(follow: &mut Follow) -> Followed {
    soon("the next event", follow.next()).await
}

/// The next event, which has to be the next thing that comes.
pub(crate) async fn next_event(follow: &mut Follow) -> Event {
    match next(follow).await {
        Followed::Event(event) => event,
        Followed::Gap => panic!("a gap"),
    }
}

/// The next events.
pub(crate) async fn next_events(follow: &mut Follow, count: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(next_event(follow).await);
    }
    events
}

/// The events before the next gap.
pub(crate) async fn events_before_gap(follow: &mut Follow) -> Vec<Event> {
    let mut events = Vec::new();
    while let Followed::Event(event) = next(follow).await {
        events.push(event);
    }
    events
}

/// The gap, which has to be the next thing that comes.
pub(crate) async fn next_gap(follow: &mut Follow) {
    assert_eq!(next(follow).await, Followed::Gap);
}

/// What an event was called.
pub(crate) fn text(event: &Event) -> String {
    let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
    data["text"].as_str().unwrap().to_owned()
}

pub(crate) fn texts(events: &[Event]) -> Vec<String> {
    events.iter().map(text).collect()
}

pub(crate) fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.id.n).collect()
}

/// Asserts that events follow on a place, and on one another.
pub(crate) fn assert_follow_on(after: EventId, events: &[Event]) {
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    let wanted: Vec<_> = (after.n + 1..).map(|n| EventId { n, ..after }).take(events.len()).collect();
    assert_eq!(ids, wanted);
}
