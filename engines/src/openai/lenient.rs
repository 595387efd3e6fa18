//! Values of the wire that may be missing, null or of another kind, without failing the answer that they are part of.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::tools::text::without_nul;

/// A text, borrowed from the wire where it can be. Null and what is no text are empty; of a list of content parts
/// it is their text.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text as it may leave the engine.
    pub(super) fn into_string(self) -> String {
        without_nul(self.0.into_owned())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut joined = String::new();
        while let Some(part) = parts.next_element::<Text<'de>>()? {
            joined.push_str(&part.0);
        }
        Ok(Text(Cow::Owned(joined)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut part: A) -> Result<Self::Value, A::Error> {
        let mut found = Text::default();
        while let Some(key) = part.next_key::<Text<'de>>()? {
            if key.0 == "text" {
                found = part.next_value()?;
            } else {
                part.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// A count. Null and what is no count are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_u64<E>(self, count: u64) -> Result<Self::Value, E> {
        Ok(Count(count))
    }

    fn visit_i64<E>(self, count: i64) -> Result<Self::Value, E> {
        Ok(Count(u64::try_from(count).unwrap_or(0)))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such a cast saturates")]
    fn visit_f64<E>(self, count: f64) -> Result<Self::Value, E> {
        Ok(Count(count as u64))
    }

    fn visit_str<E>(self, count: &str) -> Result<Self::Value, E> {
        Ok(Count(count.parse().unwrap_or(0)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Count(0))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Count(0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Count(0))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Count(0))
    }
}

/// JSON with what no Rust string can hold replaced by U+FFFD: broken UTF-8, and escaped surrogates without their
/// other half (a server that cuts text between UTF-16 units writes such).
pub(crate) fn repaired(json: &[u8]) -> String {
    let text = String::from_utf8_lossy(json);
    let mut whole = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        let escape = &rest[at..];
        let length = match utf16_unit(escape) {
            Some(0xD800..=0xDBFF)
                if matches!(escape.get(6..).and_then(utf16_unit), Some(0xDC00..=0xDFFF)) =>
            {
                12
            }
            Some(0xD800..=0xDFFF) => {
                whole.push('\u{FFFD}');
                rest = &escape[6..];
                continue;
            }
            Some(_) => 6,
            None => escape.chars().take(2).map(char::len_utf8).sum(),
        };
        whole.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    whole.push_str(rest);
    whole
}

fn utf16_unit(escape: &str) -> Option<u16> {
    u16::from_str_radix(escape.strip_prefix("\\u")?.get(..4)?, 16).ok()
}
