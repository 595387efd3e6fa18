//! The bus over Redis: a bounded stream and a channel per session, one subscription connection per process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::ConnectionManager;
use redis::{RedisError, Script, ScriptInvocation};
use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

use super::follow::Read;
use super::local::new_epoch;
use super::topics::{Keep, Topics};
use super::{Batch, BusError, LOG_EVENTS, LOG_KEPT, NOTICES, Notice, Numbering, Published};
use crate::domain::{Event, EventId, LeaseToken, NewEvent, SessionId};
use crate::outage::Outage;
use crate::redis::{RESPONSE_TIMEOUT, Settings, probe, shared_connection};

mod scripts;
mod subscription;

/// An entry of a stream: its id and its fields.
type Entry = (String, Vec<(String, String)>);

/// How long a log and its numbers outlive the last event, in milliseconds.
const KEPT_MS: u64 = LOG_KEPT.as_secs() * 1000;
/// Events read from the log at once.
const READ_EVENTS: u64 = 500;
/// What one process keeps of a session's stream; beyond, the log is asked.
const COPY_EVENTS: usize = 256;
const COPY_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Redis {
    connection: ConnectionManager,
    names: Names,
    append: Script,
    tail: Script,
    read: Script,
    outage: Outage,
    pub(super) topics: Arc<Topics>,
    pub(super) notices: broadcast::Sender<Notice>,
    subscribed: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

/// How an append introduces itself to the script.
#[derive(Debug, Default)]
struct AsWho {
    mode: &'static str,
    token: Option<i64>,
    /// The first and the last of its run's events.
    numbers: Option<(i64, i64)>,
    id: String,
    restart: bool,
    waits: bool,
}

/// The names of keys and channels. Braces keep a session's two keys in one slot of a cluster.
#[derive(Debug, Clone)]
struct Names {
    prefix: String,
}

impl Names {
    fn log(&self, session: SessionId) -> String {
        format!("{}:{{{session}}}:events:v1", self.prefix)
    }

    fn meta(&self, session: SessionId) -> String {
        format!("{}:{{{session}}}:numbers:v1", self.prefix)
    }

    fn channel(&self, session: SessionId) -> String {
        format!("{}:events:v1:{session}", self.prefix)
    }

    fn session_of(&self, channel: &str) -> Option<SessionId> {
        channel.strip_prefix(&self.prefix)?.strip_prefix(":events:v1:")?.parse().ok()
    }

    fn notices(&self) -> String {
        format!("{}:notices:v1", self.prefix)
    }
}

impl Redis {
    pub(super) fn connect(settings: &Settings) -> Result<Self, BusError> {
        let client = settings.client()?;
        let connection = shared_connection(&client, &settings.url)?;
        let names = Names { prefix: settings.prefix.clone() };
        let topics = Arc::new(Topics::new(Keep::Copy, COPY_EVENTS, COPY_BYTES));
        let notices = broadcast::Sender::new(NOTICES);
        let subscribed = Arc::new(AtomicBool::new(false));
        let task = subscription::Subscription {
            client,
            names: names.clone(),
            topics: topics.clone(),
            notices: notices.clone(),
            subscribed: subscribed.clone(),
        };
        #[expect(clippy::disallowed_methods, reason = "owned by the handle: it ends with the bus")]
        let task = AbortOnDropHandle::new(tokio::spawn(task.run()));
        Ok(Self {
            connection,
            names,
            append: Script::new(&scripts::append()),
            tail: Script::new(&scripts::tail()),
            read: Script::new(&scripts::read()),
            outage: Outage::new("bus"),
            topics,
            notices,
            subscribed,
            _task: task,
        })
    }

    pub(super) async fn publish(
        &self,
        session: SessionId,
        fence: Option<LeaseToken>,
        numbering: Numbering,
        events: &[NewEvent],
    ) -> Result<(), BusError> {
        let restart = numbering == Numbering::Restart;
        let as_who = AsWho { mode: "run", token: fence.map(|token| token.0), restart, ..AsWho::default() };
        self.append(session, as_who, events).await.map(drop)
    }

    pub(super) async fn publish_batch(
        &self,
        session: SessionId,
        batch: &Batch,
        events: &[NewEvent],
    ) -> Result<Published, BusError> {
        let (mode, waits) = match batch {
            Batch::Run { fenced: true, .. } => ("run", false),
            Batch::Run { fenced: false, .. } => ("fact", false),
            Batch::Stored { waits, .. } => ("stored", *waits),
        };
        let numbers = batch.numbers();
        let as_who = AsWho {
            mode,
            token: numbers.map(|(token, _, _)| token),
            numbers: numbers.map(|(_, first, last)| (first, last)),
            id: batch.id().unwrap_or_default(),
            waits,
            restart: false,
        };
        self.append(session, as_who, events).await
    }

    async fn append(
        &self,
        session: SessionId,
        as_who: AsWho,
        events: &[NewEvent],
    ) -> Result<Published, BusError> {
        let text = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
        let flag = |set: bool| if set { "1" } else { "0" };
        let mut call = self.append.prepare_invoke();
        call.key(self.names.log(session))
            .key(self.names.meta(session))
            .arg(as_who.mode)
            .arg(text(as_who.token))
            .arg(text(as_who.numbers.map(|(first, _)| first)))
            .arg(text(as_who.numbers.map(|(_, last)| last)))
            .arg(as_who.id)
            .arg(flag(as_who.restart))
            .arg(flag(as_who.waits))
            .arg(epoch_name(new_epoch()))
            .arg(LOG_EVENTS)
            .arg(KEPT_MS)
            .arg(self.names.channel(session));
        for event in events {
            call.arg(event.to_line());
        }
        let mut connection = self.connection.clone();
        match self.noted(within(call.invoke_async::<i64>(&mut connection)).await)? {
            0 => Err(BusError::Fenced),
            2 => Ok(Published::Before),
            3 => Ok(Published::Early),
            _ => Ok(Published::Now),
        }
    }

    pub(super) async fn tail(&self, session: SessionId) -> Result<EventId, BusError> {
        let mut connection = self.connection.clone();
        let call = self.read_call(&self.tail, session);
        let (epoch, n): (String, u64) = within(call.invoke_async(&mut connection)).await?;
        place(&epoch, n)
    }

    pub(super) async fn read_after(&self, session: SessionId, after: EventId) -> Result<Read, BusError> {
        let first = after.n.saturating_add(1);
        let mut call = self.read_call(&self.read, session);
        call.arg(epoch_name(after.epoch)).arg(first).arg(READ_EVENTS);
        let mut connection = self.connection.clone();
        let (epoch, n, entries): (String, u64, Vec<Entry>) =
            within(call.invoke_async(&mut connection)).await?;
        let place = place(&epoch, n)?;
        if place.epoch != after.epoch || place.n < after.n {
            return Ok(Read::Gap(place));
        }
        let mut events = Vec::with_capacity(entries.len());
        for (n, (_, fields)) in (first..).zip(&entries) {
            let event = fields.first().and_then(|(_, body)| decode(EventId { n, ..place }, body));
            events.extend(event);
        }
        // The log begins later than asked for, or was lost while its numbers were not.
        let whole = match entries.first() {
            Some((id, _)) => id.split('-').next() == Some(&first.to_string()),
            None => place == after,
        };
        // An entry that cannot be read was written by a newer version.
        if !whole || events.len() != entries.len() {
            return Ok(Read::Gap(place));
        }
        Ok(Read::Events(events))
    }

    /// The call of a script that begins with [`TAIL`].
    fn read_call<'a>(&self, script: &'a Script, session: SessionId) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.key(self.names.log(session))
            .key(self.names.meta(session))
            .arg(epoch_name(new_epoch()))
            .arg(KEPT_MS);
        call
    }

    pub(super) async fn notify(&self, notices: &[Notice]) {
        let mut pipe = redis::pipe();
        for notice in notices {
            let Ok(text) = serde_json::to_string(notice) else { continue };
            pipe.publish(self.names.notices(), text).ignore();
        }
        let mut connection = self.connection.clone();
        if let Err(error) = within(pipe.query_async::<()>(&mut connection)).await {
            tracing::debug!(%error, "a notice was not sent; whoever waits looks by itself");
        }
    }

    /// Notes how a write went: an outage is logged when it begins and when it ends, not with each event.
    fn noted<T>(&self, result: Result<T, BusError>) -> Result<T, BusError> {
        self.outage.note(result.as_ref().map(drop));
        result
    }

    /// Tries a write: a server may answer and refuse those, because it is full, a replica or cannot save.
    pub(super) async fn ping(&self) -> Result<(), BusError> {
        let mut connection = self.connection.clone();
        self.noted(within(probe(&mut connection, &self.names.prefix)).await)?;
        if self.subscribed.load(Ordering::Acquire) { Ok(()) } else { Err(BusError::Unavailable(None)) }
    }
}

async fn within<T>(call: impl Future<Output = Result<T, RedisError>>) -> Result<T, BusError> {
    match tokio::time::timeout(RESPONSE_TIMEOUT, call).await {
        Ok(done) => done.map_err(|error| BusError::Unavailable(Some(error))),
        Err(_) => Err(BusError::Unavailable(None)),
    }
}

fn place(epoch: &str, n: u64) -> Result<EventId, BusError> {
    // A name that is not ours is as good as no answer.
    epoch_of(epoch).map(|epoch| EventId { epoch, n }).ok_or(BusError::Unavailable(None))
}

fn epoch_name(epoch: u64) -> String {
    format!("{epoch:x}")
}

fn epoch_of(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn decode(id: EventId, text: &str) -> Option<Event> {
    let NewEvent { name, job, turn, data } = NewEvent::from_line(text)?;
    Some(Event { id, name, job, turn, data: data.into() })
}

/// The events of one publication: `epoch first`, then a line each.
fn decode_all(payload: &str) -> Option<Vec<Event>> {
    let (head, body) = payload.split_once('\n')?;
    let (epoch, first) = head.split_once(' ')?;
    let (epoch, first) = (epoch_of(epoch)?, first.parse::<u64>().ok()?);
    (first..).zip(body.split('\n')).map(|(n, line)| decode(EventId { epoch, n }, line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{EventName, JobId};

    #[test]
    fn events_read_back_as_written() {
        let event = NewEvent {
            name: EventName::MessageDelta,
            job: Some(JobId::generate()),
            turn: None,
            data: r#"{"text":"a b\nc"}"#.to_owned(),
        };
        let line = event.to_line();
        let events = decode_all(&format!("ff 7\n{line}\n{line}")).unwrap();
        assert_eq!(events[1].id, EventId { epoch: 255, n: 8 });
        assert_eq!((events[0].name, events[0].job, events[0].turn), (event.name, event.job, None));
        assert_eq!(&*events[0].data, event.data);
        assert_eq!(decode_all("nonsense"), None);
    }
}
