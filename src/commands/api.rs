//! `roundhouse api`: the HTTP side alone.

use crate::agents::Offered;
use crate::config::Loaded;
use crate::terminal::say;
use crate::wiring::{Foundation, StartError, migrate};

pub(super) async fn run(loaded: Loaded) -> Result<(), StartError> {
    let foundation = Foundation::open(loaded).await?;
    migrate(&foundation.store).await?;
    let (listener, address) = foundation.listen().await?;
    let agents = foundation.agents().await.iter().map(Offered::agent).collect();
    foundation.lifecycle.spawn_vital("api", roundhouse_api::serve(listener, foundation.app(agents)));
    say(&format!("Roundhouse {} listens on http://{address}", env!("CARGO_PKG_VERSION")));
    foundation.run().await
}
