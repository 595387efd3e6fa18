//! How long to wait before the next try.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// Doubling from `base`, at most `max`, less up to half at random: those who failed together shall not come back
/// together.
pub(super) fn backoff(attempt: u32, base: Duration, max: Duration) -> Duration {
    let doubled = base.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1))).min(max);
    // Each RandomState hashes with new keys; nothing here needs better randomness, or a crate for it.
    let random = RandomState::new().build_hasher().finish() % 1000;
    doubled.mul_f64(0.5 + f64::from(u32::try_from(random).unwrap_or(0)) / 2000.0)
}

/// How long the provider asks to be left alone: milliseconds (`OpenAI`, Azure), seconds or a date (HTTP).
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let milliseconds = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()).map(|ms| ms / 1000.0);
    let seconds = || text(RETRY_AFTER.as_str())?.parse::<f64>().ok();
    let until = || {
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text(RETRY_AFTER.as_str())?).ok()?;
        Some(date.duration_since(Timestamp::now()).as_secs_f64().max(0.0))
    };
    let seconds = milliseconds.or_else(seconds).or_else(until)?;
    Duration::try_from_secs_f64(seconds).ok()
}
