//! What transactions have left in the store to be published, and nobody has: its process died after the commit, or could
//! not reach the bus. Every process looks for it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::bus::{Batch, Bus, BusError, Published};
use crate::domain::Stored;
use crate::problem::chain;
use crate::store::{Store, StoreError};

/// How long whoever stored something has to publish it.
const AGE: Duration = Duration::from_secs(3);
/// How often it is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Most in one look.
const ROUND: i64 = 200;
/// How many looks there are to one for answers that nobody waits for any more.
const LOOKS: u32 = 60;

/// Publishes what a transaction of this process has just left. Best effort: what fails stays, and is found later.
pub async fn publish(store: &Store, bus: &Bus, stored: Option<&Stored>) {
    let Some(stored) = stored else { return };
    let published = match put(bus, stored, false).await {
        Ok(_) => store.published(&[stored.id]).await,
        Err(error) => {
            tracing::debug!(session.id = %stored.session, error = chain(&error), "not published; it will be");
            return;
        }
    };
    if let Err(error) = published {
        tracing::debug!(session.id = %stored.session, error = chain(&error), "what was published is still kept");
    }
}

/// Publishes what is stored, once however often this is called. With `waits`, not before its run's earlier events.
///
/// # Errors
/// The bus is away.
pub async fn put(bus: &Bus, stored: &Stored, waits: bool) -> Result<Published, BusError> {
    let batch = Batch::Stored { id: stored.id, place: stored.place, waits };
    bus.publish_batch(stored.session, &batch, &stored.events).await
}

/// Looks for leftovers until `stop`.
pub async fn run(store: Store, bus: Bus, stop: CancellationToken) {
    let mut looks = 0_u32;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if let Err(error) = round(&store, &bus, AGE).await {
            tracing::debug!(error = chain(&error), "could not look for what was not published");
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS)
            && let Err(error) = store.forget_last_answers().await
        {
            tracing::debug!(error = chain(&error), "could not forget old answers");
        }
    }
}

/// Publishes all that was left at least so long ago, in order.
///
/// # Errors
/// The store's. A bus that is away ends the round.
pub async fn round(store: &Store, bus: &Bus, age: Duration) -> Result<(), StoreError> {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    loop {
        let found = store.left_over(age_ms, ROUND).await?;
        let mut done = Vec::with_capacity(found.len());
        for stored in &found {
            if let Err(error) = put(bus, stored, false).await {
                tracing::debug!(error = chain(&error), "the bus is away; what was left stays");
                break;
            }
            tracing::info!(session.id = %stored.session, events = stored.events.len(), "published what was left");
            done.push(stored.id);
        }
        if !done.is_empty() {
            store.published(&done).await?;
        }
        if done.len() < found.len() || i64::try_from(found.len()).unwrap_or(ROUND) < ROUND {
            return Ok(());
        }
    }
}
