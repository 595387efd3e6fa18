//! Queues in Redis: a sorted set each, with the sessions that wait as members and their order as scores.
//!
//! A member is in a set once, so ringing again for a session that waits changes nothing; and `BZPOPMIN` takes the ring and
//! the knowledge that it waits in one step, so neither can be lost without the other.

use std::time::Duration;

use futures::{Stream, stream};
use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, RedisError, Script};

use super::QueueError;
use crate::domain::{Lane, SessionId};
use crate::redis::{CONNECT_TIMEOUT, RECONNECT_DELAY, RESPONSE_TIMEOUT, Settings, probe, shared_connection};

/// How long one blocking pop lasts. A server that vanished without a word is noticed a little later than this.
const POP: Duration = Duration::from_secs(5);
/// The longest wait between two pops that fail: a server may refuse them for hours.
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// Adds the sessions that do not wait yet, behind those that do. The scores are the server's time in microseconds, and
/// always greater than the last one: the order holds over several hosts, and where the server's clock steps back.
const PUSH: &str = r"
local time = redis.call('TIME')
local score = time[1] * 1000000 + time[2]
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if last and score <= tonumber(last) then score = tonumber(last) + 1 end
for i = 1, #ARGV do
  redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', score), ARGV[i])
  score = score + 1
end
return 1
";

#[derive(Debug)]
pub(super) struct Redis {
    client: Client,
    connection: ConnectionManager,
    prefix: String,
    push: Script,
}

impl Redis {
    pub(super) fn connect(settings: &Settings) -> Result<Self, QueueError> {
        let client = settings.client()?;
        let connection = shared_connection(&client, &settings.url)?;
        Ok(Self { client, connection, prefix: settings.prefix.clone(), push: Script::new(PUSH) })
    }

    /// The name carries a version: what another version writes is not read by this one.
    fn key(&self, lane: Lane) -> String {
        format!("{}:queue:{lane}:v2", self.prefix)
    }

    pub(super) async fn push(&self, lane: Lane, sessions: &[SessionId]) -> Result<(), QueueError> {
        let mut call = self.push.prepare_invoke();
        call.key(self.key(lane));
        for session in sessions {
            call.arg(session.to_string());
        }
        let mut connection = self.connection.clone();
        within(RESPONSE_TIMEOUT, call.invoke_async::<()>(&mut connection)).await
    }

    pub(super) async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        let mut connection = self.connection.clone();
        within(RESPONSE_TIMEOUT, connection.zcard(self.key(lane))).await
    }

    /// Tries a write: a server may answer and refuse those, because it is full, a replica or cannot save.
    pub(super) async fn probe(&self) -> Result<(), QueueError> {
        let mut connection = self.connection.clone();
        within(RESPONSE_TIMEOUT, probe(&mut connection, &self.prefix)).await
    }

    /// What rings, for ever; `None` where nothing did for a while.
    ///
    /// A wait that is given up goes on with the next one. When the stream is dropped, a ring that was just popped may be
    /// lost with its connection, and the sweeper rings again.
    pub(super) fn rings(&self, lane: Lane) -> impl Stream<Item = Result<Option<SessionId>, QueueError>> {
        // The connection is blocked by the wait, so nobody else's.
        stream::unfold((None, RECONNECT_DELAY), move |(connection, delay)| async move {
            Some(match self.pop(lane, connection).await {
                Ok((ring, connection)) => (Ok(ring), (Some(connection), RECONNECT_DELAY)),
                Err(error) => {
                    tokio::time::sleep(delay).await;
                    // A new connection: the address may lead to another server by then.
                    (Err(error), (None, (delay * 2).min(LONGEST_DELAY)))
                }
            })
        })
    }

    async fn pop(
        &self,
        lane: Lane,
        connection: Option<MultiplexedConnection>,
    ) -> Result<(Option<SessionId>, MultiplexedConnection), QueueError> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.connect_blocking().await?,
        };
        let mut pop = redis::cmd("BZPOPMIN");
        pop.arg(self.key(lane)).arg(POP.as_secs_f64());
        let popped = pop.query_async::<Option<(Vec<u8>, Vec<u8>, f64)>>(&mut connection);
        let popped = within(POP + RESPONSE_TIMEOUT, popped).await?;
        let ring = popped.and_then(|(_, member, _)| {
            let ring = std::str::from_utf8(&member).ok().and_then(|session| session.parse().ok());
            if ring.is_none() {
                tracing::warn!(queue = lane.as_str(), "dropped a ring that cannot be read");
            }
            ring
        });
        Ok((ring, connection))
    }

    async fn connect_blocking(&self) -> Result<MultiplexedConnection, QueueError> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(CONNECT_TIMEOUT));
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        within(CONNECT_TIMEOUT, connecting).await
    }
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, QueueError> {
    match tokio::time::timeout(limit, call).await {
        Ok(done) => done.map_err(|error| QueueError::Unavailable(Some(error))),
        Err(_) => Err(QueueError::Unavailable(None)),
    }
}
