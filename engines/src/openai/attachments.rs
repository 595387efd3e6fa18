//! Files that come with messages, as the model gets them.

use serde::Serialize;

use super::conversation::Tokens;
use crate::contract::{Attachment, EngineError, InputMessage};
use crate::tools::text::clean;

const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Media types of text beside `text/…`.
const TEXTS: [&str; 8] = [
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/javascript",
    "application/sql",
    "application/x-sh",
];

/// What an image is taken to cost: servers do not count its bytes.
const IMAGE_TOKENS: u64 = 1000;

/// A part of a message.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ImageUrl {
    url: String,
}

impl Part {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    pub(super) fn of(attachment: &Attachment) -> Self {
        let Attachment { name, media_type, data } = attachment;
        match Kind::of(media_type) {
            Some(Kind::Image(media_type)) => {
                let url = format!("data:{media_type};base64,{}", base64(data));
                Self::ImageUrl { image_url: ImageUrl { url } }
            }
            Some(Kind::Text) => {
                let text = clean(data);
                Self::text(format!("File {name}:\n\n{text}"))
            }
            None => Self::text(format!("[The file {name} ({media_type}) cannot be shown to you.]")),
        }
    }

    pub(super) const fn is_image(&self) -> bool {
        matches!(self, Self::ImageUrl { .. })
    }

    pub(super) fn tokens(&self) -> Tokens {
        match self {
            Self::Text { text } => Tokens::of(text),
            Self::ImageUrl { .. } => Tokens(IMAGE_TOKENS),
        }
    }

    /// What a text can show of it.
    pub(super) fn shown(&self) -> &str {
        match self {
            Self::Text { text } => text,
            Self::ImageUrl { .. } => "[an image]",
        }
    }
}

pub(crate) enum Kind {
    Image(&'static str),
    Text,
}

impl Kind {
    pub(crate) fn of(media_type: &str) -> Option<Self> {
        let bare = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if let Some(image) = IMAGES.into_iter().find(|image| *image == bare) {
            return Some(Self::Image(image));
        }
        let is_text = bare.starts_with("text/")
            || TEXTS.contains(&&*bare)
            || bare.starts_with("application/") && (bare.ends_with("+json") || bare.ends_with("+xml"));
        is_text.then_some(Self::Text)
    }
}

/// Refuses new messages with a file that the model cannot get. In the context, where it can no longer be helped, such
/// a file is only mentioned.
pub(super) fn check(messages: &[InputMessage]) -> Result<(), EngineError> {
    let files = messages.iter().flat_map(|message| &message.attachments);
    match files.into_iter().find(|file| Kind::of(&file.media_type).is_none()) {
        None => Ok(()),
        Some(Attachment { name, media_type, .. }) => Err(EngineError::Unavailable(format!(
            "the file {name:?} is of the type {media_type:?}, and the engine takes only text, PNG, JPEG, GIF and WebP"
        ))),
    }
}

/// RFC 4648, with padding.
pub(crate) fn base64(data: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::with_capacity(data.len().div_ceil(3) * 4);
    for three in data.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place)) & 0x3F;
            encoded.push(if place > three.len() { '=' } else { char::from(ALPHABET[six as usize]) });
        }
    }
    encoded
}
