//! Durations and sizes as people write them: `30s`, `500ms`, `1MiB`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time; written with a unit (`ms`, `s`, `m`, `h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes; written plainly or with a unit (`KiB`, `MiB`, `GiB`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The text is not a length of time or a size; says what one looks like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}")]
pub struct ParseUnitError {
    text: String,
    what: &'static str,
}

const SPANS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
const SIZES: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];

impl Span {
    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// So many seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(Duration::from_secs(s))
    }

    /// In milliseconds, as the store counts.
    pub fn millis(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// The largest unit that says it exactly.
fn write(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let exact = units.iter().filter(|(_, factor)| value.is_multiple_of(*factor));
    match exact.max_by_key(|(_, factor)| *factor) {
        Some((unit, factor)) if 0 < value => write!(f, "{}{unit}", value / factor),
        _ => write!(f, "{value}{}", units[0].0.trim_start_matches("KiB")),
    }
}

impl FromStr for Span {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let what = "a length of time like 500ms, 30s, 5m or 2h";
        let ms = parse(text, &SPANS).ok_or(ParseUnitError { text: text.to_owned(), what })?;
        Ok(Self::from_millis(ms))
    }
}

impl FromStr for Size {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let what = "a size like 65536, 64KiB or 1MiB";
        parse(text, &SIZES).map(Self).ok_or(ParseUnitError { text: text.to_owned(), what })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &SPANS)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, &SIZES)
    }
}

macro_rules! as_text {
    ($($type:ident),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(Span, Size);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_read_back_as_written() {
        for text in ["500ms", "30s", "5m", "2h", "90s", "0ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["1MiB", "64KiB", "100", "0", "3GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for bad in ["", "s", "5", "5 s", "-1s", "1.5h", "99999999999999999999s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        assert!("1MB".parse::<Size>().is_err());
    }
}
