//! Queues in Redis: a list each. `RPUSH` rings, `BLPOP` answers; nobody polls and nobody else is woken.

use std::time::Duration;

use futures::{Stream, stream};
use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, RedisError};

use super::QueueError;
use crate::domain::{Lane, SessionJob};
use crate::redis::{CONNECT_TIMEOUT, RECONNECT_DELAY, RESPONSE_TIMEOUT, Settings, shared_connection};

/// How long one blocking pop lasts. A server that vanished without a word is noticed a little later than this.
const POP: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Redis {
    client: Client,
    connection: ConnectionManager,
    prefix: String,
}

impl Redis {
    pub(super) fn connect(settings: &Settings) -> Result<Self, QueueError> {
        let client = settings.client()?;
        let connection = shared_connection(&client, &settings.url)?;
        Ok(Self { client, connection, prefix: settings.prefix.clone() })
    }

    /// The name carries a version: what another version writes is not read by this one.
    fn list(&self, lane: Lane) -> String {
        format!("{}:queue:{lane}:v1", self.prefix)
    }

    pub(super) async fn push(&self, lane: Lane, job: SessionJob) -> Result<(), QueueError> {
        let Ok(text) = serde_json::to_string(&job) else { return Ok(()) };
        let mut connection = self.connection.clone();
        within(RESPONSE_TIMEOUT, connection.rpush::<_, _, ()>(self.list(lane), text)).await
    }

    pub(super) async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        let mut connection = self.connection.clone();
        within(RESPONSE_TIMEOUT, connection.llen(self.list(lane))).await
    }

    /// What rings, for ever; `None` where nothing did for a while.
    ///
    /// A wait that is given up goes on with the next one. When the stream is dropped, a ring that was just popped may be
    /// lost with its connection, and the sweeper rings again.
    pub(super) fn rings(&self, lane: Lane) -> impl Stream<Item = Result<Option<SessionJob>, QueueError>> {
        // The connection is blocked by the wait, so nobody else's.
        stream::unfold(None, move |connection| async move {
            Some(match self.pop(lane, connection).await {
                Ok((ring, connection)) => (Ok(ring), Some(connection)),
                Err(error) => {
                    tokio::time::sleep(RECONNECT_DELAY).await;
                    (Err(error), None)
                }
            })
        })
    }

    async fn pop(
        &self,
        lane: Lane,
        connection: Option<MultiplexedConnection>,
    ) -> Result<(Option<SessionJob>, MultiplexedConnection), QueueError> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.connect_blocking().await?,
        };
        let pop = connection.blpop::<_, Option<(String, Vec<u8>)>>(self.list(lane), POP.as_secs_f64());
        let popped = within(POP + RESPONSE_TIMEOUT, pop).await?;
        let ring = popped.and_then(|(_, text)| {
            serde_json::from_slice(&text)
                .inspect_err(|error| tracing::warn!(%error, "dropped a ring that cannot be read"))
                .ok()
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
