//! Reading of requests: borrowed where JSON allows it, and lenient, since clients send more than the oracle reads.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// A string; any other value reads as empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct Str<'a>(pub(crate) Cow<'a, str>);

impl Str<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text as the protocols send it: a string, or a list of parts; anything else reads as nothing.
#[derive(Debug, Clone, Default)]
pub(crate) enum Content<'a> {
    #[default]
    Nothing,
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// One part of a message's content, of any of the protocols.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Part<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Str<'a>,
    #[serde(borrow)]
    pub(crate) text: Str<'a>,
    #[serde(borrow)]
    pub(crate) id: Str<'a>,
    #[serde(borrow)]
    pub(crate) name: Str<'a>,
    #[serde(borrow)]
    pub(crate) tool_use_id: Str<'a>,
    #[serde(borrow)]
    pub(crate) content: Content<'a>,
}

impl<'a> Content<'a> {
    /// The texts of it, in order; parts without text are left out.
    pub(crate) fn into_texts(self) -> Vec<Cow<'a, str>> {
        match self {
            Content::Nothing => Vec::new(),
            Content::Text(text) => vec![text],
            Content::Parts(parts) => {
                parts.into_iter().map(|part| part.text.0).filter(|text| !text.is_empty()).collect()
            }
        }
    }

    /// The texts of it as one, each on a line of its own.
    pub(crate) fn into_text(self) -> Cow<'a, str> {
        let mut texts = self.into_texts();
        match texts.len() {
            0 => Cow::Borrowed(""),
            1 => texts.swap_remove(0),
            _ => Cow::Owned(texts.iter().fold(String::new(), |mut joined, text| {
                if !joined.is_empty() && !joined.ends_with('\n') {
                    joined.push('\n');
                }
                joined + text
            })),
        }
    }
}

/// A tool definition, of any of the protocols.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ToolSpec<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(crate) name: Str<'a>,
    #[serde(borrow, default)]
    pub(crate) function: Option<FunctionSpec<'a>>,
    #[serde(borrow, default)]
    pub(crate) input_schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) parameters: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) tools: Option<Vec<ToolSpec<'a>>>,
}

/// The inside of a tool definition of Chat Completions.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FunctionSpec<'a> {
    #[serde(borrow, default)]
    pub(crate) name: Str<'a>,
    #[serde(borrow, default)]
    pub(crate) parameters: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Content::deserialize(deserializer)? {
            Content::Text(text) => Str(text),
            Content::Nothing | Content::Parts(_) => Str::default(),
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = list.next_element()? {
            parts.push(part);
        }
        Ok(Content::Parts(parts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Content::Nothing)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }
}
