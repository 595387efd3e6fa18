//! The bus over Redis: a bounded stream and a channel per session, one subscription connection per process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::ConnectionManager;
use redis::{AsyncCommands, RedisError, Script};
use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

use super::follow::Read;
use super::local::new_epoch;
use super::topics::{Keep, Topics};
use super::{BusError, LOG_EVENTS, LOG_KEPT, NOTICES, Notice, Numbering};
use crate::domain::{Event, EventId, EventName, JobId, LeaseToken, NewEvent, SessionId, TurnId};
use crate::redis::{RESPONSE_TIMEOUT, Settings, shared_connection};

mod subscription;

/// Appends and publishes in one step. A stale token gets 0 and changes nothing.
const APPEND: &str = r"
local meta = redis.call('HMGET', KEYS[2], 'epoch', 'n', 'token')
local token = tonumber(ARGV[1])
if token and meta[3] and token < tonumber(meta[3]) then return 0 end
local epoch, n = meta[1], tonumber(meta[2] or '0')
if not epoch or ARGV[3] == '1' then
  epoch, n = ARGV[2], 0
  redis.call('DEL', KEYS[1])
end
local first = n + 1
for i = 7, #ARGV do
  n = n + 1
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], n .. '-0', 'e', ARGV[i])
end
if token then redis.call('HSET', KEYS[2], 'token', ARGV[1]) end
redis.call('HSET', KEYS[2], 'epoch', epoch, 'n', n)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PUBLISH', ARGV[6], epoch .. ' ' .. first .. '\n' .. table.concat(ARGV, '\n', 7))
return 1
";

/// The place, and what follows it, read in one step: between two reads the log could be trimmed or renumbered.
const READ: &str = r"
local meta = redis.call('HMGET', KEYS[2], 'epoch', 'n')
if not meta[1] then return {'', '0', {}} end
if meta[1] ~= ARGV[1] then return {meta[1], meta[2], {}} end
return {meta[1], meta[2], redis.call('XRANGE', KEYS[1], ARGV[2] .. '-0', '+', 'COUNT', ARGV[3])}
";

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
    read: Script,
    pub(super) topics: Arc<Topics>,
    pub(super) notices: broadcast::Sender<Notice>,
    subscribed: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
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
        let (append, read) = (Script::new(APPEND), Script::new(READ));
        Ok(Self { connection, names, append, read, topics, notices, subscribed, _task: task })
    }

    pub(super) async fn publish(
        &self,
        session: SessionId,
        fence: Option<LeaseToken>,
        numbering: Numbering,
        events: &[NewEvent],
    ) -> Result<(), BusError> {
        let mut call = self.append.prepare_invoke();
        call.key(self.names.log(session))
            .key(self.names.meta(session))
            .arg(fence.map_or(String::new(), |token| token.0.to_string()))
            .arg(format!("{:x}", new_epoch()))
            .arg(if numbering == Numbering::Restart { "1" } else { "0" })
            .arg(LOG_EVENTS)
            .arg(u64::try_from(LOG_KEPT.as_millis()).unwrap_or(u64::MAX))
            .arg(self.names.channel(session));
        for event in events {
            call.arg(encode(event));
        }
        let mut connection = self.connection.clone();
        match within(call.invoke_async::<i64>(&mut connection)).await? {
            0 => Err(BusError::Fenced),
            _ => Ok(()),
        }
    }

    pub(super) async fn tail(&self, session: SessionId) -> Result<Option<EventId>, BusError> {
        let mut connection = self.connection.clone();
        let meta: (Option<String>, Option<u64>) =
            within(connection.hmget(self.names.meta(session), &["epoch", "n"])).await?;
        Ok(match meta {
            (Some(epoch), Some(n)) => epoch_of(&epoch).map(|epoch| EventId { epoch, n }),
            _ => None,
        })
    }

    pub(super) async fn read_after(&self, session: SessionId, after: EventId) -> Result<Read, BusError> {
        let mut call = self.read.prepare_invoke();
        call.key(self.names.log(session))
            .key(self.names.meta(session))
            .arg(format!("{:x}", after.epoch))
            .arg(after.n + 1)
            .arg(READ_EVENTS);
        let mut connection = self.connection.clone();
        type Entries = Vec<(String, Vec<(String, String)>)>;
        let (epoch, last, entries): (String, u64, Entries) =
            within(call.invoke_async(&mut connection)).await?;
        let Some(epoch) = epoch_of(&epoch) else { return Ok(Read::Gap(None)) };
        let tail = EventId { epoch, n: last };
        if epoch != after.epoch || last < after.n {
            return Ok(Read::Gap(Some(tail)));
        }
        let mut events = Vec::with_capacity(entries.len());
        for (n, (_, fields)) in (after.n + 1..).zip(&entries) {
            let event = fields.first().and_then(|(_, body)| decode(EventId { epoch, n }, body));
            events.extend(event);
        }
        // The log begins later than asked for, or was lost while its numbers were not.
        let whole = match entries.first() {
            Some((id, _)) => id.split('-').next() == Some(&(after.n + 1).to_string()),
            None => last == after.n,
        };
        if !whole || events.len() != entries.len() {
            return Ok(Read::Gap(Some(tail)));
        }
        Ok(Read::Events(events))
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

    pub(super) async fn ping(&self) -> Result<(), BusError> {
        let mut connection = self.connection.clone();
        within(redis::cmd("PING").query_async::<()>(&mut connection)).await?;
        if self.subscribed.load(Ordering::Acquire) { Ok(()) } else { Err(BusError::Unavailable(None)) }
    }
}

async fn within<T>(call: impl Future<Output = Result<T, RedisError>>) -> Result<T, BusError> {
    match tokio::time::timeout(RESPONSE_TIMEOUT, call).await {
        Ok(done) => done.map_err(|error| BusError::Unavailable(Some(error))),
        Err(_) => Err(BusError::Unavailable(None)),
    }
}

fn epoch_of(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// `name job turn data`, in one line: JSON of ours has no raw line breaks.
fn encode(event: &NewEvent) -> String {
    let job = event.job.map_or_else(|| "-".to_owned(), |job| job.to_string());
    let turn = event.turn.map_or_else(|| "-".to_owned(), |turn| turn.to_string());
    format!("{} {job} {turn} {}", event.name, event.data)
}

fn decode(id: EventId, text: &str) -> Option<Event> {
    let mut parts = text.splitn(4, ' ');
    let name = EventName::from_name(parts.next()?)?;
    let job = parts.next()?.parse::<JobId>().ok();
    let turn = parts.next()?.parse::<TurnId>().ok();
    Some(Event { id, name, job, turn, data: parts.next()?.into() })
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

    #[test]
    fn events_read_back_as_written() {
        let event = NewEvent {
            name: EventName::MessageDelta,
            job: Some(JobId::generate()),
            turn: None,
            data: r#"{"text":"a b\nc"}"#.to_owned(),
        };
        let events = decode_all(&format!("ff 7\n{}\n{}", encode(&event), encode(&event))).unwrap();
        assert_eq!(events[1].id, EventId { epoch: 255, n: 8 });
        assert_eq!((events[0].name, events[0].job, events[0].turn), (event.name, event.job, None));
        assert_eq!(&*events[0].data, event.data);
        assert_eq!(decode_all("nonsense"), None);
    }
}
