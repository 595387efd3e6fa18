//! The connection to Redis that queue and bus have in common.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult};
use serde::{Deserialize, Serialize};

/// How long one command may take. The library's own default of 500 ms is shorter than a pause that a busy server makes.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long connecting may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait between tries to connect again.
pub(crate) const RECONNECT_DELAY: Duration = Duration::from_millis(250);

/// How long what a probe has written stays, in milliseconds.
const PROBE_KEPT_MS: u64 = 60_000;

/// The `[redis]` section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `redis://…`; empty: queue and bus are in this process, and api and worker must be as well.
    pub url: String,
    /// What the names of all keys and channels begin with, so that several deployments can share a server.
    pub prefix: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { url: String::new(), prefix: "roundhouse".to_owned() }
    }
}

/// The address of Redis cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`redis.url` {url:?} cannot be used")]
pub struct BadUrl {
    url: String,
    #[source]
    source: redis::RedisError,
}

impl Settings {
    /// The client for this address. Connects to nothing yet.
    pub(crate) fn client(&self) -> Result<Client, BadUrl> {
        Client::open(self.url.as_str())
            .map_err(|source| BadUrl { url: crate::secret::masked_url(&self.url), source })
    }
}

/// A shared connection that connects when it is first used, and again whenever it broke.
pub(crate) fn shared_connection(client: &Client, url: &str) -> Result<ConnectionManager, BadUrl> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_number_of_retries(2)
        .set_max_delay(Duration::from_secs(1));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
        .map_err(|source| BadUrl { url: crate::secret::masked_url(url), source })
}

/// Writes a little that is soon gone. A server that is full, a replica, or cannot save what it has answers reads and
/// `PING`, and refuses this.
pub(crate) async fn probe(connection: &mut ConnectionManager, prefix: &str) -> RedisResult<()> {
    let mut set = redis::cmd("SET");
    set.arg(format!("{prefix}:probe:v1")).arg("1").arg("PX").arg(PROBE_KEPT_MS);
    set.query_async(connection).await
}
