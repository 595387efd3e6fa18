//! The queue's own share of a turn.

use std::future::poll_fn;
use std::time::Instant;

use anyhow::{Context, Result};
use apalis_core::backend::Backend;
use apalis_core::worker::context::WorkerContext;
use hdrhistogram::Histogram;
use roundhouse_shared::domain::{Lane, SessionId};
use roundhouse_shared::queue::{Queue, Slots};
use roundhouse_shared::redis::Settings;
use tokio_util::sync::CancellationToken;

/// Measures push to delivery, one at a time, for each kind of queue there is.
pub(crate) async fn report(redis: Option<&str>) -> Result<()> {
    println!("| queue | p50 / p95 / p99 ms |\n|---|---|");
    measure("in process", &Settings::default()).await?;
    if let Some(url) = redis {
        let prefix = format!("bench-queue{}", std::process::id());
        measure("Redis", &Settings { url: url.to_owned(), prefix }).await?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a report for people")]
async fn measure(name: &str, settings: &Settings) -> Result<()> {
    let queue = Queue::connect(settings)?;
    let mut source = queue.source(Lane::Chat, Slots::new(8), CancellationToken::new());
    let context = WorkerContext::from("bench");
    let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    for _ in 0..2_000 {
        let pushed = Instant::now();
        queue.push(Lane::Chat, SessionId::generate()).await?;
        let task = poll_fn(|cx| source.poll_next(cx, &context)).await.context("the source ended")??;
        times.saturating_record(u64::try_from(pushed.elapsed().as_micros()).unwrap_or(u64::MAX));
        drop(task);
    }
    let ms = |p: f64| times.value_at_quantile(p) as f64 / 1000.0;
    println!("| {name} | {:.3} / {:.3} / {:.3} |", ms(0.5), ms(0.95), ms(0.99));
    Ok(())
}
