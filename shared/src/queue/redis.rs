//! Queues in Redis: a list each. `RPUSH` rings, `BLPOP` answers; nobody polls and nobody else is woken.

use std::time::Duration;

use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, RedisError};
use tokio::sync::Mutex;

use super::QueueError;
use crate::domain::{Lane, SessionJob};
use crate::redis::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT, Settings, shared_connection};

/// How long one blocking pop lasts. A server that vanished without a word is noticed a little later than this.
const POP: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Redis {
    client: Client,
    connection: ConnectionManager,
    prefix: String,
}

/// The connection that a source pops on: blocking, so nobody else's.
pub(super) type Popper = Mutex<Option<MultiplexedConnection>>;

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

    /// The next ring; `None` where none came for a while.
    ///
    /// Dropped, it may lose one that was just popped: its connection goes with it, and the sweeper rings again.
    pub(super) async fn pop(&self, lane: Lane, popper: &Popper) -> Result<Option<SessionJob>, QueueError> {
        let mut held = popper.lock().await;
        let mut connection = if let Some(connection) = held.take() {
            connection
        } else {
            let config = AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_connection_timeout(Some(CONNECT_TIMEOUT));
            let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
            within(CONNECT_TIMEOUT, connecting).await?
        };
        let pop = connection.blpop::<_, Option<(String, String)>>(self.list(lane), POP.as_secs_f64());
        let popped = within(POP + RESPONSE_TIMEOUT, pop).await?;
        *held = Some(connection);
        let Some((_, text)) = popped else { return Ok(None) };
        match serde_json::from_str(&text) {
            Ok(job) => Ok(Some(job)),
            Err(error) => {
                tracing::warn!(%error, "dropped a ring that cannot be read");
                Ok(None)
            }
        }
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
