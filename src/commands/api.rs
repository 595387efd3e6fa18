//! `roundhouse api`: the HTTP side alone.

use roundhouse_api::App;
use tokio::net::TcpListener;

use crate::agents::Offered;
use crate::config::Loaded;
use crate::terminal::{chain, say};
use crate::wiring::{Foundation, StartError, migrate};

pub(super) async fn run(loaded: Loaded) -> Result<(), StartError> {
    let foundation = Foundation::open(loaded).await?;
    migrate(&foundation.store).await?;
    let (listener, address) = foundation.listen().await?;
    let agents = foundation.agents().await.iter().map(Offered::agent).collect();
    foundation.lifecycle.spawn_vital("api", serve(listener, foundation.app(agents)));
    say(&format!("Roundhouse {} listens on http://{address}", env!("CARGO_PKG_VERSION")));
    foundation.run().await
}

/// Serves until the process is stopped.
pub(super) async fn serve(listener: TcpListener, app: App) {
    if let Err(error) = roundhouse_api::serve(listener, app).await {
        tracing::error!(error = %chain(&error), "cannot serve HTTP any more");
    }
}
