//! `roundhouse oracle`: the built-in deterministic model as a server of its own.

use std::net::SocketAddr;
use std::time::Duration;

use roundhouse_shared::lifecycle::Lifecycle;
use tokio::net::TcpListener;

use crate::terminal::say;
use crate::wiring::StartError;

/// How long answers under way may go on after a stop.
const GRACE: Duration = Duration::from_secs(2);

pub(super) async fn run(listen: SocketAddr) -> Result<(), StartError> {
    let failed = |source| StartError::Listen { address: listen.to_string(), source };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let lifecycle = Lifecycle::new();
    let stop = lifecycle.soft().clone();
    lifecycle.spawn_vital("oracle", async move {
        let settings = roundhouse_oracle::Settings::default();
        if let Err(error) = roundhouse_oracle::serve(listener, settings, stop).await {
            tracing::error!(%error, "cannot serve any more");
        }
    });
    say(&format!("The oracle listens on http://{address} (OpenAI protocols: http://{address}/v1)"));
    lifecycle.run(GRACE).await;
    if lifecycle.failed() { Err(StartError::Failed) } else { Ok(()) }
}
