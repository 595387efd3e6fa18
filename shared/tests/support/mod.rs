//! What the suites of the bus and of the queue have in common: a Redis, and waiting without guessing a time.

mod redis;

use std::time::{Duration, Instant};

pub(crate) use redis::{Keeps, Refusal, Server, connections, shared};

/// Longer than anything takes, however slow the machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// Between two looks at something that tells nobody when it changes.
const LOOK: Duration = Duration::from_millis(10);

/// Looks again and again, until it is so.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < DEADLINE, "still not so: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for what has to come.
pub(crate) async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(DEADLINE, coming).await;
    came.unwrap_or_else(|_| panic!("did not come: {what}"))
}
