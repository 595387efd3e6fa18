//! `roundhouse migrate`: the schema alone.

use crate::config::Loaded;
use crate::terminal::say;
use crate::wiring::{StartError, migrate, open_store};

pub(super) async fn run(loaded: &Loaded) -> Result<(), StartError> {
    let (store, _) = open_store(loaded).await?;
    migrate(&store).await?;
    store.close().await;
    say("The schema is up to date.");
    Ok(())
}
