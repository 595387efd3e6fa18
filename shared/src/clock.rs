//! The time of this host: for events and logs. What decides anything is the database's clock, read in the store.

/// Milliseconds since the epoch, by this host's clock.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// A time in milliseconds since the epoch as RFC 3339 in UTC. Out of range: the epoch.
pub fn rfc3339(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
    }
}
